"""Writing a batch: what goes into which round trip, and what came of each entry."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil

from haybaler.effects import Steps, await_effect
from haybaler.errors import EntryTooLargeError, StoreError, StoreFullError, StoreUnavailableError
from haybaler.stores.driver import Content
from haybaler.stores.group_commit import GroupCommit
from haybaler_redis.attempts import carried_out, repeated
from haybaler_redis.clients import Clients
from haybaler_redis.commands import (
    BULK_KEYS,
    FLUSH_BYTES,
    FLUSH_COMMANDS,
    set_many,
    set_one,
    split_flushes,
)
from haybaler_redis.effort import alongside, computed
from haybaler_redis.exchange import Reply
from haybaler_redis.failures import is_passing, is_timeout, mapped, presentable
from haybaler_redis.records import HEADER_BYTES, most_bytes, record, record_in_pieces
from haybaler_redis.staging import staged

Item = tuple[bytes, Content]
Outcome = StoreError | None


def group_bounds(clients: Clients, *, wait: float) -> GroupCommit:
    """
    Return the bounds for what many callers write together. One command can write a whole group.

    With as many groups as there are connections, nobody waits for a group who would not have to wait for a connection
    anyway. In a cluster, where each node has groups of its own, one that hangs leaves half of the connections.

    :param clients: The clients.
    :param wait: Seconds to wait for a turn.
    :returns: The bounds.
    """
    in_flight = ceil(clients.limit / 2) if clients.clustered else clients.limit
    return GroupCommit(in_flight, entries=BULK_KEYS, size=FLUSH_BYTES - BULK_KEYS * HEADER_BYTES, wait=wait)


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
        if not chosen:
            return outcomes
        in_bulk, retries = yield from self._takes_many()
        flushes = _flushes([items[index] for index in chosen], BULK_KEYS if in_bulk else FLUSH_COMMANDS)
        records = yield from computed(flushes[0].size, flushes[0].records)
        results: list[Outcome] = []
        for flush, following in pairwise([*flushes, _Flush([], 0)]):
            sending = self._send(flush, records, in_bulk=in_bulk, retries=retries)
            sent, records = yield from alongside(sending, following.size, following.records)
            results += sent
            if (outage := _outage(sent)) is not None:
                # It had its chance; what follows does not wait as long once more, or at all.
                retries = 0
                if not self.clients.clustered and None not in sent:
                    results += [outage] * (len(chosen) - len(results))
                    break
        for index, result in zip(chosen, results, strict=True):
            outcomes[index] = result
        return outcomes

    def _refusal(self, size: int) -> EntryTooLargeError | None:
        if size <= self.max_bytes:
            return None
        return EntryTooLargeError(f"The entry has {size} bytes or more; the store takes at most {self.max_bytes}.")

    def _takes_many(self) -> Steps[tuple[bool, int]]:
        """Ask whether one command can set many keys, with their expiry; and say how many retries are left then."""
        if self.clients.clustered:
            return False, self.retries
        try:
            features = yield from await_effect(self.clients.features())
        except Exception as error:  # noqa: BLE001 - the write itself will show what is wrong
            return False, 0 if is_timeout(error) else self.retries
        return features.mset if self.ttl is None else features.msetex, self.retries

    def _send(self, flush: "_Flush", records: Sequence[bytes], *, in_bulk: bool, retries: int) -> Steps[list[Outcome]]:
        if flush.is_large:
            key, content = flush.items[0]
            pieces = yield from computed(flush.size, record_in_pieces, key, content)
            refusal = self._refusal(sum(map(len, pieces)) - HEADER_BYTES)
            return [refusal or (yield from staged(self.clients, key, pieces, self.ttl, retries))]
        outcomes: list[Outcome] = [self._refusal(len(record) - HEADER_BYTES) for record in records]
        pairs = [
            (key, record)
            for (key, _), record, refusal in zip(flush.items, records, outcomes, strict=True)
            if refusal is None
        ]
        replies = iter((yield from self._set(pairs, in_bulk=in_bulk, retries=retries)))
        return [refusal or _outcome(next(replies)) for refusal in outcomes]

    def _set(self, records: Sequence[tuple[bytes, bytes]], *, in_bulk: bool, retries: int) -> Steps[list[Reply]]:
        run = partial(carried_out, self.clients, retries=retries, writes=True)
        if in_bulk and len(records) > 1:
            (reply,) = yield from run([set_many(records, self.ttl)])
            if not isinstance(reply, Exception) or is_passing(reply):
                return [reply] * len(records)
            # One command fails as a whole; alone, each entry gets what it deserves.
        commands = [set_one(key, data, self.ttl) for key, data in records]
        replies: list[Reply] = []
        for part in split_flushes([len(data) for _, data in records], most=FLUSH_COMMANDS):
            replies += yield from run(commands[part])
        return replies


@dataclass(frozen=True, slots=True)
class _Flush:
    """
    What goes into one round trip.

    :param items: Keys and contents.
    :param size: The most bytes of their records.
    """

    items: Sequence[Item]
    size: int

    @property
    def is_large(self) -> bool:
        """Whether it is one entry that needs several."""
        return self.size > FLUSH_BYTES

    def records(self) -> list[bytes]:
        """Return the records; none of a large entry, which is cut into pieces instead."""
        return [] if self.is_large else [record(key, content) for key, content in self.items]


def _flushes(items: Sequence[Item], most: int) -> list[_Flush]:
    sizes = [most_bytes(content) for _, content in items]
    return [_Flush(items[part], sum(sizes[part])) for part in split_flushes(sizes, most=most)]


def _outcome(reply: Reply) -> Outcome:
    return mapped(reply, action="write an entry") if isinstance(reply, Exception) else None


def _outage(outcomes: Sequence[Outcome]) -> StoreUnavailableError | None:
    """Return an outcome that speaks of the server, not of its entry; None if there is no such outcome."""
    for outcome in outcomes:
        if isinstance(outcome, StoreUnavailableError) and not isinstance(outcome, StoreFullError):
            return outcome
    return None
