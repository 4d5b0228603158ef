"""One open client, the bound on its use, and its end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from threading import BoundedSemaphore, Lock
from typing import Any
from weakref import finalize

import anyio

from haybaler_s3.pacing import Room, StartGate, Turns

Opening = Callable[[AsyncExitStack], Awaitable[Any]]


class LoopLink:
    """
    The client of one event loop, opened on first use. The loop closes it at its own end, if nobody has done so before.

    :param opening: Returns the client, and leaves with the stack how it is closed.
    :param limit: The most requests in flight; each uses one connection.
    :param abandon: Given the client if the loop was closed before it.
    """

    def __init__(self, opening: Opening, *, limit: int, abandon: Callable[[Any], None]) -> None:
        self._opening = opening
        self._abandon = abandon
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(limit)
        self._gate = StartGate()
        self._lock = anyio.Lock(fast_acquire=True)
        self._lifetime: AsyncGenerator[Any, None] | None = None
        self._client: Any = None
        self._lost: finalize[..., LoopLink] | None = None
        self._users = 0
        self._closing = False
        self.room = Room()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Any]:
        """
        Lend the client for one request, when it is its turn: what is signed must not wait.

        :returns: The client, while the request is in flight.
        """
        self._users += 1
        try:
            async with self.turns.taken():
                client = await self._opened()
                await self._gate.passed()
                yield client
        finally:
            self._users -= 1
            if self._closing:
                await self.close()

    async def close(self) -> None:
        """Close the client; requests that are in flight are finished first."""
        self._closing = True
        lifetime = self._lifetime
        if not self._users and lifetime is not None:
            self._lifetime = self._client = None
            if self._lost is not None:
                self._lost.detach()
            with anyio.CancelScope(shield=True):
                await lifetime.aclose()

    async def _opened(self) -> Any:
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    self._lifetime = _lifetime(self._opening)
                    self._client = await anext(self._lifetime)
                    # Not `__del__`: the garbage collector may come to the connections first.
                    self._lost = finalize(self, _lose, self._loop, self._client, self._abandon)
                    self._lost.atexit = False
        return self._client


def _lose(loop: asyncio.AbstractEventLoop, client: Any, abandon: Callable[[Any], None]) -> None:
    if loop.is_closed():
        abandon(client)


async def _lifetime(opening: Opening) -> AsyncGenerator[Any, None]:
    # An event loop that ends in the ordinary way finishes its asynchronous generators while it can still run.
    async with AsyncExitStack() as opened:
        yield await opening(opened)


class ThreadLink:
    """
    The client of all threads without an event loop.

    :param client: A synchronous client.
    :param close: Closes it.
    :param limit: The most requests in flight, those included that nobody waits for any more.
    """

    def __init__(self, client: Any, close: Callable[[], None], *, limit: int) -> None:
        self.calls = BoundedSemaphore(limit)
        self._client = client
        self._close = close
        self._lock = Lock()
        self._users = 0
        self._closing = False

    @contextmanager
    def lent(self) -> Iterator[Any]:
        """
        Lend the client for one request.

        :returns: The client, while the request is in flight.
        """
        with self._lock:
            self._users += 1
        try:
            yield self._client
        finally:
            with self._lock:
                self._users -= 1
                last = self._closing and not self._users
            if last:
                self._close()

    def close(self) -> None:
        """Close the client; requests that are in flight are finished first."""
        with self._lock:
            self._closing = True
            unused = not self._users
        if unused:
            self._close()
