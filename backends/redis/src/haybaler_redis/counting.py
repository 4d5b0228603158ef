"""How many bytes a scope holds: a counter in the server, which all processes share."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from haybaler.effects import Steps
from haybaler.stores.quota import Growth, Listing, LocalCount, room_of
from haybaler_redis.attempts import carried_out
from haybaler_redis.clients import Clients
from haybaler_redis.commands import Command, expire
from haybaler_redis.failures import mapped

# What the key of a counter ends with. No path has such a character, and what removes a scope removes it.
SUFFIX = b"#bytes"

# Takes room for those entries that fit, in one step, as `haybaler.stores.quota.fitting` does.
_TAKE = """
local used = tonumber(redis.call('GET', KEYS[1]) or '0')
local taken, fits = 0, {}
for index = 2, #ARGV do
  local more = tonumber(ARGV[index])
  local fit = more <= 0 or used + taken + more <= tonumber(ARGV[1])
  if fit then taken = taken + more end
  fits[index - 1] = fit and 1 or 0
end
redis.call('INCRBY', KEYS[1], string.format('%.0f', taken))
return fits
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

    def take(self, folder: str, growth: Growth, most: int, listing: Listing) -> Steps[list[bool]]:  # noqa: ARG002
        """As `ScopeCount.take`, without a listing."""
        sizes = growth()
        with self._question(folder, sizes) as question:
            replies = yield from self._sent(folder, ("EVAL", _TAKE, 1, self._key(folder), most, *sizes))
            fits = [bool(int(answer)) for answer in replies]
            with self._lock:
                question.taken = self._wait(self._tally(folder), sizes, fits)
        return fits

    def refund(self, folder: str, growth: int) -> Steps[None]:
        """As `ScopeCount.refund`."""
        yield from self._added(folder, -growth)

    def recount(self, folder: str, listing: Listing) -> Steps[bool]:
        """As `ScopeCount.recount`. What other processes take meanwhile stays counted; what they took before may not."""
        with self._lock:
            if not self._is_due(folder):
                return False
            tally = self._tally(folder)
            tally.counted, tally.changed = time.monotonic(), False
        before = yield from self._added(folder, 0)
        with self._lock:
            pending = tally.pending
            questions = [question for question in self._questions if question.folder == folder]
        found = yield from listing()
        # The server may have answered these before, and their entries come after the listing; by now they are known.
        pending += sum(question.taken for question in questions)
        yield from self._added(folder, found + pending - before)
        return True

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

    def _added(self, folder: str, amount: int) -> Steps[int]:
        return int((yield from self._sent(folder, ("INCRBY", self._key(folder), amount))))

    def _key(self, folder: str) -> bytes:
        return self._prefix + folder.encode() + SUFFIX

    def _sent(self, folder: str, arguments: tuple[bytes | int | str, ...]) -> Steps[Any]:
        commands = [Command(self._key(folder), arguments)]
        if self._ttl is not None:
            commands.append(expire(self._key(folder), self._ttl))
        replies: list[Any] = yield from carried_out(self._clients, commands, retries=self._retries)
        for reply in replies:
            if isinstance(reply, Exception):
                raise mapped(reply, action="count the bytes of a scope")
        return replies[0]
