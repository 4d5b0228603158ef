"""
Where blocking and CPU-bound work goes in asynchronous code, and how much of it runs at once.

haybaler never uses the event loop's default executor: name resolution and other people's `to_thread` calls wait there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from threading import Lock
from typing import Generic, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

import anyio
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# Threads for other people's synchronous counters, policies and stores, and for bulk counting, in each event loop.
WORKERS = 32

_limiter: RunVar[CapacityLimiter] = RunVar("haybaler_workers")


async def run_in_worker(function: Callable[[*Ts], R], *args: *Ts, limiter: CapacityLimiter | None = None) -> R:
    """
    Call a blocking function in a worker thread.

    A cancellation of the awaiting task cannot stop a call that has begun: it runs to its end, unobserved.

    :param function: What to call.
    :param args: Its positional arguments.
    :param limiter: The bound to count against; by default haybaler's own, `WORKERS` threads for each event loop.
    :returns: What the function returned.
    """
    return await run_sync(function, *args, limiter=limiter or _loop_limiter())


def _loop_limiter() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(WORKERS)
        _limiter.set(limiter)
        return limiter


async def map_bounded(function: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int) -> list[R]:
    """
    Await `function(item)` for every item, at most `limit` at a time.

    A fixed number of tasks take the items in turn, so a thousand items never mean a thousand tasks. The first error
    cancels the rest and is raised as it is, not in a group; functions that must not spoil their neighbours return
    errors instead of raising them.

    :param function: Awaited once for each item.
    :param items: The items.
    :param limit: The most calls in flight.
    :returns: The results; result i belongs to item i.
    """
    numbered = list(enumerate(items))
    results: dict[int, R] = {}
    errors: list[Exception] = []
    remaining = iter(numbered)

    async def drain() -> None:
        for index, item in remaining:
            try:
                results[index] = await function(item)
            except Exception as error:  # noqa: BLE001 - raised below, where no group wraps it
                errors.append(error)
                group.cancel_scope.cancel()
                return

    async with anyio.create_task_group() as group:
        for _ in range(min(limit, len(numbered))):
            group.start_soon(drain)
    if errors:
        raise errors[0]
    return [results[index] for index, _ in numbered]


class PerLoop(Generic[T]):
    """
    One object for each event loop, made when a loop first asks for it and forgotten once the loop is closed.

    :param factory: Makes the object; called inside the loop that asks.
    """

    def __init__(self, factory: Callable[[], T]) -> None:
        self._factory = factory
        self._objects: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()
        self._lock = Lock()

    def get(self) -> T:
        """
        Return the running loop's object.

        :returns: The object, made now if need be.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._objects:
                self._forget_closed_loops()
                self._objects[loop] = self._factory()
            return self._objects[loop]

    def _forget_closed_loops(self) -> None:
        # Clients refer to their loop, and a weak key lives as long as its own value refers to it.
        for loop in [loop for loop in self._objects if loop.is_closed()]:
            del self._objects[loop]

    def pop(self) -> T | None:
        """
        Forget the running loop's object.

        :returns: The object, or None if there was none.
        """
        with self._lock:
            return self._objects.pop(asyncio.get_running_loop(), None)
