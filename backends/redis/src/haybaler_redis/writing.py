"""Writing a batch: what goes into which round trip, and what came of each entry."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import ceil

from haybaler.effects import Steps, await_effect, computed
from haybaler.errors import EntryTooLargeError, StoreError, StoreFullError, StoreUnavailableError
from haybaler.stores.driver import Content
from haybaler.stores.group_commit import GroupCommit
from haybaler.stores.shares import most_bytes
from haybaler_redis.attempts import answered, carried_out
from haybaler_redis.clients import Clients
from haybaler_redis.commands import (
    BULK_KEYS,
    FLUSH_COMMANDS,
    set_many,
    set_one,
    split_flushes,
)
from haybaler_redis.effort import INLINE_BYTES, side_by_side
from haybaler_redis.exchange import Reply
from haybaler_redis.failures import is_passing, is_timeout, mapped
from haybaler_redis.limits import LOWEST
from haybaler_redis.records import HEADER_BYTES, record_in_pieces, records
from haybaler_redis.staging import staged

# Round trips of one batch at a time: while the server takes one in, the next is made.
FLUSHES_IN_FLIGHT = 2

# Groups that are written at once. A round trip costs the event loop as much as many entries: where 200 Agents come as
# fast as they can, they are done in a fifth less time than with a group for each of 16 connections. And whoever waits
# for one of four to end waits for a fraction of a round trip.
GROUPS = 4

# Groups' worth of entries that one caller may write while nobody else does, without the work of dividing them.
UNDIVIDED = 16
# An entry up to this size goes in one command, a larger one piece by piece.
WHOLE_BYTES = 4 * 1024 * 1024

Item = tuple[bytes, Content]
Outcome = StoreError | None


def group_bounds(clients: Clients, *, wait: float) -> GroupCommit:
    """
    Return the bounds for what many callers write together. One command can write a whole group.

    In a cluster each node has groups of its own; one that hangs leaves half of the connections.

    :param clients: The clients.
    :param wait: Seconds to wait for a turn.
    :returns: The bounds.
    """
    in_flight = min(GROUPS, ceil(clients.limit / 2) if clients.clustered else clients.limit)
    size = WHOLE_BYTES - BULK_KEYS * HEADER_BYTES
    undivided = UNDIVIDED if in_flight > 1 else 1
    return GroupCommit(in_flight, entries=BULK_KEYS, size=size, undivided=undivided, wait=wait)


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
        yield from answered(self.clients, self.clients.features(), retries=self.retries, action="use the server")

    def write(self, items: Sequence[Item]) -> Steps[list[Outcome]]:
        """
        Write a batch, one bounded part after another.

        :param items: Keys, all different, and contents.
        :returns: Outcome i belongs to item i.
        """
        sizes = most_bytes([content for _, content in items])
        if max(sizes, default=0) > self.max_bytes:
            return (yield from self._write_fitting(items))
        return (yield from self._write_all(items, sizes))

    def _write_fitting(self, items: Sequence[Item]) -> Steps[list[Outcome]]:
        """Write what is not too large already in characters; what has too many bytes shows when it is encoded."""
        lengths = [len(content) for _, content in items]
        fitting = [item for item, length in zip(items, lengths, strict=True) if length <= self.max_bytes]
        sent = yield from self._write_all(fitting, most_bytes([content for _, content in fitting]))
        return self._with_refusals(lengths, [self.max_bytes] * len(items), sent)

    def _write_all(self, items: Sequence[Item], sizes: Sequence[int]) -> Steps[list[Outcome]]:
        if not items:
            return []
        in_bulk, retries = yield from self._takes_many()
        patience = _Patience(retries)
        flushes = _flushes(items, sizes, BULK_KEYS if in_bulk else FLUSH_COMMANDS)
        parts = [partial(self._flush, flush, patience, in_bulk=in_bulk) for flush in flushes]
        # A cluster's client that has lost a node finds its way anew, which no other request should get into.
        sent = yield from side_by_side(parts, limit=1 if self.clients.clustered else FLUSHES_IN_FLIGHT)
        return list(chain.from_iterable(sent))

    def _with_refusals(self, sizes: Iterable[int], limits: Iterable[int], sent: Iterable[Outcome]) -> list[Outcome]:
        """Return one outcome for each size: `sent` has those of the entries that are not too large."""
        remaining, bounded = iter(sent), zip(sizes, limits, strict=True)
        return [next(remaining) if size <= most else self._refusal(size, most) for size, most in bounded]

    def _refusal(self, size: int, most: int) -> EntryTooLargeError:
        whose = "server" if most < self.max_bytes else "store"
        return EntryTooLargeError(f"The entry has {size} bytes or more; the {whose} takes at most {most}.")

    def _takes_many(self) -> Steps[tuple[bool, int]]:
        """Ask whether one command can set many keys, with their expiry; and say how many retries are left then."""
        if self.clients.clustered:
            return False, self.retries
        try:
            features = yield from await_effect(self.clients.features())
        except Exception as error:  # noqa: BLE001 - the write itself will show what is wrong
            return False, 0 if is_timeout(error) else self.retries
        return features.mset if self.ttl is None else features.msetex, self.retries

    def _flush(self, flush: "_Flush", patience: "_Patience", *, in_bulk: bool) -> Steps[list[Outcome]]:
        if patience.outage is not None and not self.clients.clustered:
            return [patience.outage] * len(flush.items)
        limits = yield from self._limits(flush, patience)
        sent = yield from self._send(flush, limits, in_bulk=in_bulk, retries=patience.retries)
        patience.note(sent)
        return sent

    def _limits(self, flush: "_Flush", patience: "_Patience") -> Steps[list[int]]:
        """Return the most bytes of each content, by the store's bound and by that of the server that is to keep it."""
        limits = [self.max_bytes] * len(flush.items)
        if max(flush.sizes) + HEADER_BYTES <= LOWEST:
            return limits
        large = [index for index, size in enumerate(flush.sizes) if size + HEADER_BYTES > LOWEST]
        try:
            found = yield from await_effect(self.clients.largest([flush.items[index][0] for index in large]))
        except Exception as error:  # noqa: BLE001 - the write itself will show what is wrong
            patience.retries = 0 if is_timeout(error) else patience.retries
            return limits
        for index, limit in zip(large, found, strict=True):
            limits[index] = min(self.max_bytes, limit - HEADER_BYTES)
        return limits

    def _send(self, flush: "_Flush", limits: Sequence[int], *, in_bulk: bool, retries: int) -> Steps[list[Outcome]]:
        if flush.size > WHOLE_BYTES:
            ((key, content),) = flush.items
            pieces = yield from computed(record_in_pieces, key, content, size=flush.size, inline=INLINE_BYTES)
            if (size := sum(map(len, pieces)) - HEADER_BYTES) > limits[0]:
                return [self._refusal(size, limits[0])]
            return [(yield from staged(self.clients, key, pieces, self.ttl, retries))]
        made = records(flush.items)
        if flush.size - HEADER_BYTES <= min(limits):
            return (yield from self._set(made, in_bulk=in_bulk, retries=retries))
        sizes = [len(data) for _, (_, data) in made]
        fitting = [pair for pair, size, most in zip(made, sizes, limits, strict=True) if size <= most]
        sent = (yield from self._set(fitting, in_bulk=in_bulk, retries=retries)) if fitting else []
        return self._with_refusals(sizes, limits, sent)

    def _set(
        self, made: Sequence[tuple[bytes, tuple[bytes, bytes]]], *, in_bulk: bool, retries: int
    ) -> Steps[list[Outcome]]:
        run = partial(carried_out, self.clients, retries=retries, writes=True)
        if in_bulk and len(made) > 1:
            (reply,) = yield from run([set_many(made, self.ttl)])
            if not isinstance(reply, Exception) or is_passing(reply):
                return [_outcome(reply)] * len(made)
            # One command fails as a whole; alone, each entry gets what it deserves.
        commands = [set_one(key, record, self.ttl) for key, record in made]
        replies: list[Reply] = []
        for part in split_flushes([len(data) for _, (_, data) in made], most=FLUSH_COMMANDS):
            replies += yield from run(commands[part])
        return [_outcome(reply) for reply in replies]


@dataclass(frozen=True, slots=True)
class _Flush:
    """
    What goes into one round trip.

    :param items: Keys and contents.
    :param sizes: The most bytes of each content.
    """

    items: Sequence[Item]
    sizes: Sequence[int]

    @property
    def size(self) -> int:
        """The most bytes of the records."""
        return sum(self.sizes) + HEADER_BYTES * len(self.items)


@dataclass(slots=True)
class _Patience:
    """
    How long the rest of a batch waits for the server.

    :param retries: The most further attempts of a round trip.
    :param outage: What came of an entry because of the server, where nothing got through.
    """

    retries: int
    outage: StoreUnavailableError | None = None

    def note(self, sent: Sequence[Outcome]) -> None:
        """Take into account what came of a part: after an outage, what follows waits no longer, or not at all."""
        outages = (outcome for outcome in sent if isinstance(outcome, StoreUnavailableError))
        if outage := next((outcome for outcome in outages if not isinstance(outcome, StoreFullError)), None):
            self.retries = 0
            self.outage = None if None in sent else outage


def _flushes(items: Sequence[Item], sizes: Sequence[int], most: int) -> list[_Flush]:
    return [_Flush(items[part], sizes[part]) for part in split_flushes(sizes, most=most)]


def _outcome(reply: Reply) -> Outcome:
    return mapped(reply, action="write an entry") if isinstance(reply, Exception) else None
