"""
Where blocking and CPU-bound work goes in asynchronous code, and how much of it runs at once.

haybaler never uses the event loop's default executor: name resolution and other people's `to_thread` calls wait there.
"""

import asyncio
import math
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Generic, TypeVar, TypeVarTuple

import anyio
from anyio import CancelScope, CapacityLimiter
from anyio.lowlevel import RunVar
from anyio.to_thread import run_sync

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# Threads for other people's synchronous counters, policies and stores, and for bulk counting, in each event loop.
WORKERS = 32

_bounded: RunVar[CapacityLimiter] = RunVar("haybaler_workers")
_unbounded: RunVar[CapacityLimiter] = RunVar("haybaler_unbounded")

with suppress(ImportError):  # it is no public name
    # anyio loads it at the first call, on the event loop, where that takes more than 10 ms.
    import anyio._backends._asyncio


async def run_in_worker(
    function: Callable[[*Ts], R], *args: *Ts, limiter: CapacityLimiter | None = None, abandon: bool = False
) -> R:
    """
    Call a blocking function in a worker thread.

    A cancellation of the awaiting task cannot stop a call that has begun: it runs to its end, unobserved, and counts
    against the bound until then. A call that has not begun never begins.

    :param function: What to call.
    :param args: Its positional arguments.
    :param limiter: The bound to count against; by default haybaler's own, `WORKERS` threads for each event loop.
    :param abandon: Whether a cancel scope or timeout of anyio does not wait for a call that has begun either; that of
        an asyncio task never does.
    :returns: What the function returned.
    """
    call = _Call(partial(function, *args), limiter or _loop_limiter(_bounded, WORKERS))
    await call.limiter.acquire_on_behalf_of(call)
    try:
        return await run_sync(call.run, limiter=_loop_limiter(_unbounded, math.inf), abandon_on_cancel=abandon)
    finally:
        call.leave()


async def run_or_undo(function: Callable[[], R], undo: Callable[[R], object], *, seconds: float) -> R:
    """
    Call a blocking function that changes something in a worker thread. No cancellation and no timeout waits for it.

    :param function: What to call.
    :param undo: Takes the result; called, once, in a worker thread if nobody gets the result any more.
    :param seconds: How long a cancellation waits for undoing what is already done.
    :returns: What the function returned.
    """
    abandoned = Event()
    results: list[R] = []
    not_undone = [True]

    def call() -> R:
        results.append(function())
        if abandoned.is_set():
            undo_once()
        return results[0]

    def undo_once() -> None:
        if _take(not_undone):
            undo(results[0])

    try:
        return await run_in_worker(call, abandon=True)
    except BaseException:
        abandoned.set()
        if results:  # the thread had done it, and the event loop has not come to take the result
            await clean_up(partial(run_in_worker, undo_once), seconds=seconds)
        raise


def _loop_limiter(variable: RunVar[CapacityLimiter], total: float) -> CapacityLimiter:
    try:
        return variable.get()
    except LookupError:
        limiter = CapacityLimiter(total)
        variable.set(limiter)
        return limiter


class _Call(Generic[R]):
    """
    A call in a worker thread that keeps its place in the limiter until thread and awaiting task are both done with it.

    anyio gives the place back as soon as asyncio cancels the task, while the thread still runs; a store that hangs
    would then collect threads without end. Taking the one item out of a list is atomic, so no lock is needed.
    """

    def __init__(self, function: Callable[[], R], limiter: CapacityLimiter) -> None:
        self.limiter = limiter
        self._loop = asyncio.get_running_loop()
        self._function = function
        self._not_begun = [True]
        self._nobody_done = [True]

    def run(self) -> R:
        if not _take(self._not_begun):
            raise CancelledError  # nobody awaits it any more
        try:
            return self._function()
        finally:
            if not _take(self._nobody_done):
                with suppress(RuntimeError):  # the loop is closed, and its limiter gone with it
                    self._loop.call_soon_threadsafe(self.limiter.release_on_behalf_of, self)

    def leave(self) -> None:
        if _take(self._not_begun) or not _take(self._nobody_done):
            self.limiter.release_on_behalf_of(self)


def _take(token: list[bool]) -> bool:
    try:
        return token.pop()
    except IndexError:
        return False


async def map_bounded(function: Callable[[T], Awaitable[R]], items: Iterable[T], *, limit: int) -> list[R]:
    """
    Await `function(item)` for every item, at most `limit` at a time.

    A fixed number of tasks take the items in turn, so a thousand items never mean a thousand tasks, and a single item
    none. The first error cancels the rest and is raised as it is, not in a group; functions that must not spoil their
    neighbours return errors instead of raising them. The tasks are asyncio's own: with those of anyio, four short calls
    take nearly three times the processor time, which shows where a hundred runs write a few entries each.

    :param function: Awaited once for each item.
    :param items: The items.
    :param limit: The most calls in flight.
    :returns: The results; result i belongs to item i.
    """
    listed = list(items)
    if len(listed) == 1:
        return [await function(listed[0])]
    results: dict[int, R] = {}
    errors: list[Exception] = []
    tasks: list[asyncio.Task[None]] = []
    remaining = enumerate(listed)

    async def drain() -> None:
        # A task that raises would make the group cancel the caller's, which early releases of 3.11 do not take back.
        for index, item in remaining:
            try:
                results[index] = await function(item)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
                for task in tasks:
                    task.cancel()
                return

    async with asyncio.TaskGroup() as group:
        # Where tasks start eagerly, one may have failed before the next is made.
        tasks.extend(group.create_task(drain()) for _ in range(min(limit, len(listed))) if not errors)
    if errors:
        raise errors[0]
    if len(results) < len(listed):  # an item was cancelled all by itself, of which a group does not tell
        raise CancelledError
    return list(map(results.__getitem__, range(len(listed))))


async def clean_up(function: Callable[[], Awaitable[object]], *, seconds: float) -> None:
    """
    Await `function()` although the running task has been cancelled.

    It is called in a task of its own: in one that asyncio has cancelled, the timeouts that libraries put around their
    requests end them at once (`asyncio.timeout` before Python 3.11.4).

    :param function: What to call.
    :param seconds: How long it may take; it is cancelled then.
    """
    errors: list[Exception] = []

    async def call() -> None:
        try:
            await function()
        except Exception as error:  # noqa: BLE001 - raised below, where no group wraps it
            errors.append(error)

    with anyio.move_on_after(seconds, shield=True):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
    if errors:
        raise errors[0]


async def unbroken(work: Awaitable[R], *, seconds: float) -> R:
    """
    Await something that changes what is elsewhere, and let it end before a cancellation goes on.

    What was sent cannot be taken back. Without this it might arrive after the removal with which the caller cleans up,
    or after the caller's next write.

    :param work: The request; it has a task of its own.
    :param seconds: How long a cancellation waits; then the request is cancelled as well.
    :returns: What came of it.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except CancelledError:
        # The shield keeps anyio's cancellations away; one by asyncio ends the waiting.
        with CancelScope(shield=True):
            await asyncio.wait([task], timeout=seconds)
            task.cancel()
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # seen, so that nobody warns of it
        raise
    finally:
        task.cancel()


async def see_through(function: Callable[[], Awaitable[R]], *, seconds: float) -> R | None:
    """
    Await `function()` to its end in a task of one's own, whoever cancels the task meanwhile.

    A cancellation by asyncio passes through every shield and stops what is awaited; it is begun anew then, so it has to
    be something that may be done twice.

    :param function: Called once more after each cancellation.
    :param seconds: How long all attempts may take together.
    :returns: What it returned, or None if time ran out.
    """
    deadline = anyio.current_time() + seconds
    while anyio.current_time() < deadline:
        try:
            with CancelScope(deadline=deadline, shield=True):
                return await function()
        except CancelledError:
            uncancel()
    return None


def uncancel() -> None:
    """Tell the running task, which is one's own, that its cancellation has been dealt with."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
