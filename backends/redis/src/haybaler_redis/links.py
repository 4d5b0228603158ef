"""One open client, the bound on its use, and its end."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from threading import BoundedSemaphore, Lock
from typing import Any, TypeVar
from weakref import finalize

import anyio
import redis.asyncio as aioredis

from haybaler.effects import Steps, perform, perform_async
from haybaler.errors import StoreTimeoutError
from haybaler.sharing import AsyncShared, SyncShared
from haybaler_redis.connecting import Opened
from haybaler_redis.features import Features
from haybaler_redis.topology import look_around

R = TypeVar("R")
Request = Callable[[Any], Steps[R]]  # what to ask a client for

_NO_TURN = "All connections of the store were in use for too long."


class AsyncLink:
    """
    The client of one event loop. The loop closes it at its own end, if nobody has done so before.

    :param opened: The client.
    :param limit: The most requests in flight; each uses one connection at a time.
    :param wait: Seconds to wait for a turn.
    """

    def __init__(self, opened: Opened[Awaitable[None]], *, limit: int, wait: float) -> None:
        self.client = opened.client
        self._opened = opened
        self._turns = anyio.Semaphore(limit, fast_acquire=True)
        self._wait = wait
        self._loop = asyncio.get_running_loop()
        # What the garbage collector takes together it takes in any order, and a connection warns of itself. This holds
        # on to the client until it is closed; not while it is in use, for then its users hold on to the link.
        self._idle = [opened]
        self._replaced: list[Any] = []  # nodes of a cluster, by the last look at it
        finalize(self, _end, self._loop, self._idle, self._replaced)
        self._connecting: AsyncShared[object] = AsyncShared()
        self._looking: AsyncShared[None] = AsyncShared()
        self._lifetime: AsyncGenerator[None, None] | None = None
        self._users = 0
        self._closing = False
        self.features: Features | None = None  # what is known about the server, once somebody has asked
        self.limits: dict[str, int] = {}  # the most bytes of a value, by the name of the node, as far as known

    async def run(self, request: Request[R]) -> R:
        """
        Carry out a request when it is its turn.

        :param request: What to ask for.
        :returns: What came of it.
        :raises StoreTimeoutError: If there was no turn in time.
        """
        if self._lifetime is None:
            self._lifetime = _lifetime(self._opened, self._replaced)
            await anext(self._lifetime)  # never suspends; makes it known to the loop
        self._users += 1
        self._idle.clear()
        try:
            if isinstance(self.client, aioredis.RedisCluster):
                await self._connecting.run(self.client.initialize)  # nothing to do, once it is connected
            await self._acquire()
            try:
                return await perform_async(request(self.client))
            finally:
                self._turns.release()
        finally:
            self._users -= 1
            if not self._users:
                self._idle.append(self._opened)
            if self._closing:
                await self.close()

    async def look_around(self) -> None:
        """Find out which node of a cluster keeps which keys; whoever comes meanwhile shares what comes of it."""
        await self._looking.run(self._look_around)

    async def drop_idle(self) -> None:
        """Disconnect what is not in use."""
        await self._opened.drop_idle()

    async def close(self) -> None:
        """Disconnect; requests that are in flight are finished first."""
        self._closing = True
        if not self._users and self._lifetime is not None:
            lifetime, self._lifetime = self._lifetime, None
            await lifetime.aclose()

    async def _look_around(self) -> None:
        replaced = await self.run(look_around)
        known = list(self._replaced)
        self._replaced.extend(replaced)
        await _disconnect(known)  # whoever is cancelled here leaves all of them to the next, or to who closes
        self._replaced[:] = [node for node in self._replaced if not any(node is other for other in known)]

    async def _acquire(self) -> None:
        with suppress(anyio.WouldBlock):
            self._turns.acquire_nowait()  # mostly there is a turn, and a deadline costs more than taking it
            return
        try:
            with anyio.fail_after(self._wait):
                await self._turns.acquire()
        except TimeoutError as error:
            raise StoreTimeoutError(_NO_TURN) from error

    def forget(self) -> None:
        """Disconnect, if the event loop has been closed without that."""
        if self._loop.is_closed():
            self._opened.abandon(self._replaced)

    def __del__(self) -> None:
        self.forget()


def _end(loop: asyncio.AbstractEventLoop, idle: list[Opened[Awaitable[None]]], replaced: list[Any]) -> None:
    for opened in idle:
        if loop.is_closed():
            opened.abandon(replaced)


async def _lifetime(opened: Opened[Awaitable[None]], replaced: list[Any]) -> AsyncGenerator[None, None]:
    # An event loop that ends in the ordinary way finishes its asynchronous generators while it can still run.
    try:
        yield
    finally:
        await opened.close()
        await _disconnect(replaced)


async def _disconnect(nodes: list[Any]) -> None:
    for node in nodes:
        await node.disconnect()


class SyncLink:
    """
    The client of all threads without an event loop.

    :param opened: The client.
    :param limit: The most requests in flight; each uses one connection at a time.
    :param wait: Seconds to wait for a turn.
    """

    def __init__(self, opened: Opened[None], *, limit: int, wait: float) -> None:
        self.client = opened.client
        self._opened = opened
        self._turns = BoundedSemaphore(limit)
        self._wait = wait
        self._lock = Lock()
        self._looking: SyncShared[object] = SyncShared()
        self._users = 0
        self._closing = False
        self.features: Features | None = None  # what is known about the server, once somebody has asked
        self.limits: dict[str, int] = {}  # the most bytes of a value, by the name of the node, as far as known

    def run(self, request: Request[R]) -> R:
        """
        Carry out a request when it is its turn.

        :param request: What to ask for.
        :returns: What came of it.
        :raises StoreTimeoutError: If there was no turn in time.
        """
        with self._turn():
            return perform(request(self.client))

    def look_around(self) -> None:
        """Find out which node of a cluster keeps which keys; whoever comes meanwhile shares what comes of it."""
        self._looking.run(lambda: self.run(look_around))

    def drop_idle(self) -> None:
        """Disconnect what is not in use."""
        self._opened.drop_idle()

    def close(self) -> None:
        """Disconnect; requests that are in flight are finished first."""
        with self._lock:
            self._closing = True
            unused = not self._users
        if unused:
            self._opened.close()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
        try:
            if not self._turns.acquire(timeout=self._wait):
                raise StoreTimeoutError(_NO_TURN)
            try:
                yield
            finally:
                self._turns.release()
        finally:
            with self._lock:
                self._users -= 1
                last = self._closing and not self._users
            if last:
                self._opened.close()
