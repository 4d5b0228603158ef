"""How much is under way at once in one event loop, so that other work gets its turn and memory stays bounded."""

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import anyio.lowlevel

MIB = 1024 * 1024
# Requests that start in one turn of the event loop. Preparing, signing and sending one takes the client one to three
# milliseconds of the loop's thread; four hold it up for some 13 ms and cost next to nothing in throughput.
STARTS = 4
# Seconds after which a server that still asks to slow down gets half as much once more.
SETTLING = 1.0
# Seconds after which a server that does not ask any more gets twice as much again.
CONTENT = 5.0
# Room for large entries that are being written, in MiB.
ROOM = 64


class Turns:
    """
    Bounds the requests in flight. A server that asks to slow down gets half as many, and twice as many again once it
    has been content for a while.

    :param limit: The most of them.
    :param clock: Tells the time in seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = limit
        self._limiter = anyio.CapacityLimiter(limit)
        self._clock = clock
        self._changed = -math.inf

    @property
    def limit(self) -> int:
        """The most requests in flight at present."""
        return int(self._limiter.total_tokens)

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for one's turn, and give it back at the end."""
        turn = object()
        try:
            self._limiter.acquire_on_behalf_of_nowait(turn)
        except anyio.WouldBlock:
            await self._limiter.acquire_on_behalf_of(turn)
        try:
            yield
        finally:
            self._limiter.release_on_behalf_of(turn)

    def heard(self, *, slow_down: bool) -> None:
        """
        Take into account how a request has gone.

        :param slow_down: Whether the server asked to slow down.
        """
        since, limit = self._clock() - self._changed, self.limit
        if slow_down and since >= SETTLING:  # what was sent before the change says nothing of the new limit
            self._set(max(limit // 2, 1))
        elif slow_down or limit == self._most:
            return
        elif since >= CONTENT:
            self._set(min(limit * 2, self._most))

    def _set(self, limit: int) -> None:
        self._limiter.total_tokens = limit
        self._changed = self._clock()


class StartGate:
    """
    Lets few requests start in each turn of the event loop.

    Fifty of them started in one turn would keep everybody else waiting for a tenth of a second.
    """

    def __init__(self) -> None:
        self._lock = anyio.Lock(fast_acquire=True)
        self._started = 0

    async def passed(self) -> None:
        """Wait for one's own turn."""
        async with self._lock:
            self._started = (self._started + 1) % STARTS
            if not self._started:
                await anyio.lowlevel.checkpoint()


class Room:
    """
    Bounds the bytes of large entries that are being written at the same time.

    :param total: The room, in MiB. A larger entry than that has all of it for itself.
    """

    def __init__(self, total: int = ROOM) -> None:
        self._total = total
        self._free = anyio.Semaphore(total, fast_acquire=True)
        self._first = anyio.Lock(fast_acquire=True)

    @asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """
        Take room, once there is enough, and give it back at the end. Whoever came first gets it first.

        :param size: In bytes; what is smaller than a MiB takes none.
        """
        if size < MIB:
            yield
            return
        async with AsyncExitStack() as held:
            async with self._first:
                for _ in range(min(size // MIB, self._total)):
                    await held.enter_async_context(self._free)
            yield
