"""How many bytes a scope holds: a counter in the server, which all processes share."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from haybaler.effects import Steps
from haybaler.stores.quota import Listing, LocalCount, Sizes, Tally, room_of
from haybaler_redis.attempts import carried_out
from haybaler_redis.clients import Clients
from haybaler_redis.commands import Command, expire
from haybaler_redis.failures import mapped

# What the key of a counter ends with. No path has such a character, and what removes a scope removes it.
SUFFIX = b"#count"

# The fields of a counter: what the scope holds, and how often that has been counted by listing.
_BYTES, _COUNTS = "bytes", "counts"

# Takes room for those entries that fit, in one step, as `haybaler.stores.quota.fitting` does.
_TAKE = """
local used = tonumber(redis.call('HGET', KEYS[1], 'bytes') or '0')
local taken, fits = 0, {}
for index = 2, #ARGV do
  local more = tonumber(ARGV[index])
  local fit = more <= 0 or used + taken + more <= tonumber(ARGV[1])
  if fit then taken = taken + more end
  fits[index - 1] = fit and 1 or 0
end
redis.call('HINCRBY', KEYS[1], 'bytes', string.format('%.0f', taken))
return fits
"""
# Corrects a counter that nobody else has corrected since it was read: two corrections of one mistake are another one.
_CORRECT = """
if (redis.call('HGET', KEYS[1], 'counts') or '0') == ARGV[1] then
  redis.call('HINCRBY', KEYS[1], 'counts', 1)
  redis.call('HINCRBY', KEYS[1], 'bytes', ARGV[2])
  return 1
end
return 0
"""


@dataclass(slots=True, eq=False)
class _Question:
    folder: str
    taken: int  # bytes: as long as it is not answered, all that it asks for


class SharedCount(LocalCount):
    """
    Counts for all processes, from the first write with a bound on.

    Listing a scope means looking at every key of the database, so it is only counted that way when it seems to be full.
    Then it turns out, too, what has expired or was deleted or replaced since.

    :param clients: The clients.
    :param prefix: What stands before a path in every key.
    :param ttl: Milliseconds that entries, and the counter, live from the last write on; None for ever.
    :param retries: The most further attempts of each round trip.
    """

    every = 5.0

    def __init__(self, clients: Clients, prefix: bytes, ttl: int | None, retries: int) -> None:
        super().__init__()
        self._clients = clients
        self._prefix = prefix
        self._ttl = ttl
        self._retries = retries
        self._questions: set[_Question] = set()  # those that are on their way

    def prepare(self, folder: str, listing: Listing) -> Steps[Sizes | None]:  # noqa: ARG002
        """As `ScopeCount.prepare`: the server knows."""
        yield from ()
        return None

    def take(self, folder: str, growth: Sequence[int], most: int) -> Steps[list[bool]]:
        """As `ScopeCount.take`."""
        with self._question(folder, growth) as question:
            replies = yield from self._sent(folder, "EVAL", _TAKE, 1, self._key(folder), most, *growth)
            fits = [bool(int(answer)) for answer in replies]
            with self._lock:
                question.taken = self._wait(self._tally(folder), growth, fits)
        return fits

    def refund(self, folder: str, growth: int) -> Steps[None]:
        """As `ScopeCount.refund`."""
        yield from self._sent(folder, "HINCRBY", self._key(folder), _BYTES, -growth)

    def _counted(self, folder: str, tally: Tally, listing: Listing) -> Steps[Sizes]:
        # What other processes take meanwhile stays counted; what they took before may not.
        known = yield from self._sent(folder, "HMGET", self._key(folder), _BYTES, _COUNTS)
        before, counts = (int(value or 0) for value in known)
        with self._lock:
            pending = tally.pending
            questions = [question for question in self._questions if question.folder == folder]
        found = yield from listing()
        # The server may have answered these before, and their entries come after the listing; by now they are known, or
        # else may have all that they ask for.
        with self._lock:
            correction = sum(found.values()) + pending + sum(question.taken for question in questions) - before
            is_exact = self._questions.isdisjoint(questions)
        is_made = yield from self._sent(folder, "EVAL", _CORRECT, 1, self._key(folder), counts, correction)
        if not (is_exact and int(is_made)):
            tally.changed = True  # who is refused now may count once more
        return found

    @contextmanager
    def _question(self, folder: str, sizes: Sequence[int]) -> Iterator["_Question"]:
        question = _Question(folder, room_of(sizes))
        with self._lock:
            self._questions.add(question)
        try:
            yield question
        finally:
            with self._lock:
                self._questions.remove(question)

    def _key(self, folder: str) -> bytes:
        return self._prefix + folder.encode() + SUFFIX

    def _sent(self, folder: str, *arguments: bytes | int | str) -> Steps[Any]:
        commands = [Command(self._key(folder), arguments)]
        if self._ttl is not None:
            commands.append(expire(self._key(folder), self._ttl))
        replies: list[Any] = yield from carried_out(self._clients, commands, retries=self._retries)
        for reply in replies:
            if isinstance(reply, Exception):
                raise mapped(reply, action="count the bytes of a scope")
        return replies[0]
