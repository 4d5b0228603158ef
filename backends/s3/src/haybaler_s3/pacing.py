"""How much is under way at once in one event loop, so that other work gets its turn and memory stays bounded."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import anyio.lowlevel

MIB = 1024 * 1024
# Requests that start in one turn of the event loop. Preparing, signing and sending one takes the client one to three
# milliseconds of the loop's thread; four hold it up for some 13 ms and cost next to nothing in throughput.
STARTS = 4
# Room for large entries that are being written, in MiB.
ROOM = 64


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
