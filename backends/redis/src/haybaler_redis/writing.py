"""Writing a batch: what goes into which round trip, and what came of each entry."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from haybaler.effects import Steps, await_effect
from haybaler.errors import EntryTooLargeError, StoreError
from haybaler.stores.driver import Content
from haybaler_redis.attempts import carried_out, repeated
from haybaler_redis.clients import Clients
from haybaler_redis.commands import (
    BULK_KEYS,
    FLUSH_BYTES,
    FLUSH_COMMANDS,
    Command,
    set_many,
    set_one,
    split_flushes,
)
from haybaler_redis.effort import computed
from haybaler_redis.exchange import Reply
from haybaler_redis.failures import is_passing, mapped, presentable
from haybaler_redis.records import HEADER_BYTES, most_bytes, record
from haybaler_redis.staging import staged

_ACTION = "write an entry"

Item = tuple[bytes, Content]
Outcome = StoreError | None


@dataclass(frozen=True, slots=True)
class Writing:
    """
    How entries are written.

    :param clients: The clients.
    :param ttl: Milliseconds that an entry lives, or None.
    :param max_bytes: The most bytes of one content.
    :param retries: The most further attempts.
    """

    clients: Clients
    ttl: int | None
    max_bytes: int
    retries: int

    def prepare(self) -> Steps[None]:
        """
        Connect, and ask what the server can do.

        :raises StoreError: If it cannot be used.
        """
        try:
            yield from repeated(lambda: await_effect(self.clients.features()), retries=self.retries)
        except Exception as error:  # noqa: BLE001 - it is raised, mapped
            raise mapped(error, action="use the server") from presentable(error)

    def write(self, items: Sequence[Item]) -> Steps[list[Outcome]]:
        """
        Write a batch, one bounded part after another.

        :param items: Keys, all different, and contents.
        :returns: Outcome i belongs to item i.
        """
        outcomes: list[Outcome] = [self._refusal(len(content)) for _, content in items]
        chosen = [index for index, refusal in enumerate(outcomes) if refusal is None]
        if chosen:
            in_bulk = yield from self._takes_many()
            sizes = [most_bytes(items[index][1]) for index in chosen]
            for part in split_flushes(sizes, most=BULK_KEYS if in_bulk else FLUSH_COMMANDS):
                flush = [items[index] for index in chosen[part]]
                results = yield from self._flush(flush, sum(sizes[part]), in_bulk=in_bulk)
                for index, result in zip(chosen[part], results, strict=True):
                    outcomes[index] = result
        return outcomes

    def _refusal(self, size: int) -> EntryTooLargeError | None:
        if size <= self.max_bytes:
            return None
        return EntryTooLargeError(f"The entry has {size} bytes or more; the store takes at most {self.max_bytes}.")

    def _takes_many(self) -> Steps[bool]:
        """Ask whether one command can set many keys, with their expiry."""
        if self.clients.clustered:
            return False
        try:
            features = yield from await_effect(self.clients.features())
        except Exception:  # noqa: BLE001 - the write itself will show what is wrong
            return False
        return self.ttl is None or features.msetex

    def _flush(self, flush: Sequence[Item], most: int, *, in_bulk: bool) -> Steps[list[Outcome]]:
        pieces = yield from computed(most, _records, flush)
        sizes = [sum(map(len, record)) for record in pieces]
        if len(flush) == 1 and sizes[0] > FLUSH_BYTES:
            refusal = self._refusal(sizes[0] - HEADER_BYTES)
            return [refusal or (yield from staged(self.clients, flush[0][0], pieces[0], self.ttl, self.retries))]
        outcomes: list[Outcome] = [self._refusal(size - HEADER_BYTES) for size in sizes]
        chosen = [index for index, refusal in enumerate(outcomes) if refusal is None]
        records = [(flush[index][0], b"".join(pieces[index])) for index in chosen]
        if records:
            replies = yield from self._set(records, in_bulk=in_bulk)
            for index, reply in zip(chosen, replies, strict=True):
                outcomes[index] = mapped(reply, action=_ACTION) if isinstance(reply, Exception) else None
        return outcomes

    def _set(self, records: Sequence[tuple[bytes, bytes]], *, in_bulk: bool) -> Steps[list[Reply]]:
        run = partial(carried_out, self.clients, retries=self.retries)
        if in_bulk and len(records) > 1:
            (reply,) = yield from run([set_many(records, self.ttl)])
            if not isinstance(reply, Exception) or is_passing(reply):
                return [reply] * len(records)
            # One command fails as a whole; alone, each entry gets what it deserves.
        commands: list[Command] = [set_one(key, data, self.ttl) for key, data in records]
        replies: list[Reply] = []
        for part in split_flushes([len(data) for _, data in records], most=FLUSH_COMMANDS):
            replies += yield from run(commands[part])
        return replies


def _records(items: Sequence[Item]) -> list[list[bytes]]:
    return [record(key, content) for key, content in items]
