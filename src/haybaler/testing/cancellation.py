"""Cancel an operation at a chosen suspension point, in each of the ways in which programs cancel."""

import asyncio
import itertools
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, TypeVar

from anyio import CancelScope

T = TypeVar("T")

_TURNS = 10  # of the event loop; a timeout arrives after four, one inside task groups a few later
_FAR = 1_000_000.0  # seconds; a timeout that nobody else has

Operation = Callable[[], Coroutine[Any, Any, object]]


class Cancellation(Enum):
    """Who cancels."""

    TASK = "task"  # asyncio.Task.cancel
    WAIT_FOR = "wait_for"  # the timeout of asyncio.wait_for
    SCOPE = "scope"  # an anyio cancel scope around the operation


async def _nothing() -> None:
    pass


def cancel_at(operation: Operation, *, step: int, by: Cancellation, afterwards: Operation = _nothing) -> bool:
    """
    Run an operation in an event loop of its own and cancel it when it suspends for the `step`-th time.

    Suspensions of the tasks that the operation starts count as well. Nothing here waits for real time: where a timeout
    is to expire, its timer is called.

    :param operation: Starts the operation.
    :param step: Which suspension, counted from 1.
    :param by: Who cancels.
    :param afterwards: Starts what is to be done at the end in the same loop, undisturbed, such as closing a store.
    :returns: Whether the operation suspended that often; if not, it ran to its end undisturbed.
    """

    async def run() -> bool:
        try:
            return await cancel_at_async(operation, step=step, by=by)
        finally:
            await afterwards()

    return asyncio.run(run())


async def cancel_at_async(operation: Operation, *, step: int, by: Cancellation) -> bool:
    """
    Run an operation in the running event loop and cancel it when it suspends for the `step`-th time.

    For what costs much to open for each loop, and for what the same objects do after many cancellations.

    :param operation: Starts the operation.
    :param step: Which suspension, counted from 1.
    :param by: Who cancels.
    :returns: Whether the operation suspended that often; if not, it ran to its end undisturbed.
    """
    loop = asyncio.get_running_loop()
    trigger = _Trigger(loop, step)
    factory = loop.get_task_factory()
    run = loop.create_task(_run(operation, by, trigger))
    loop.set_task_factory(trigger.make_task)
    try:
        with suppress(asyncio.CancelledError, TimeoutError):
            await run
    finally:
        loop.set_task_factory(factory)
    return trigger.count >= step


def each_cancellation(
    operation: Operation, *, afterwards: Operation = _nothing, most: int = 200, every: int = 1
) -> Iterator[tuple[Cancellation, int, bool]]:
    """
    Run an operation again and again, cancelled at its first suspension, its second, and so on, until one run ends.

    :param operation: Starts the operation.
    :param afterwards: As in `cancel_at`.
    :param most: The last suspension to try for each way of cancelling.
    :param every: Try only every so many suspensions, from the first one on.
    :returns: After each run: who cancelled, at which suspension, and whether it came to that suspension.
    """
    for by in Cancellation:
        for step in itertools.count(1, every):
            reached = cancel_at(operation, step=step, by=by, afterwards=afterwards)
            yield by, step, reached
            if not reached or step >= most:
                break


async def each_cancellation_async(
    operation: Operation, *, most: int = 200
) -> AsyncIterator[tuple[Cancellation, int, bool]]:
    """
    Run an operation again and again as `each_cancellation` does, all in the running event loop.

    :param operation: Starts the operation.
    :param most: The most suspensions to try for each way of cancelling.
    :returns: After each run: who cancelled, at which suspension, and whether it came to that suspension.
    """
    for by in Cancellation:
        for step in itertools.count(1):
            reached = await cancel_at_async(operation, step=step, by=by)
            yield by, step, reached
            if not reached or step >= most:
                break


async def _run(operation: Operation, by: Cancellation, trigger: "_Trigger") -> None:
    if by is Cancellation.SCOPE:
        with CancelScope() as scope:
            trigger.cancel = scope.cancel
            await trigger.watch(operation())
    elif by is Cancellation.WAIT_FOR:
        with trigger.noticing_the_timer():
            await asyncio.wait_for(trigger.watch(operation()), _FAR)
    else:
        task = asyncio.current_task()
        assert task is not None
        trigger.cancel = task.cancel
        await trigger.watch(operation())


def _nobody() -> None:
    pass


class _Trigger:
    def __init__(self, loop: asyncio.AbstractEventLoop, step: int) -> None:
        self._loop = loop
        self._step = step
        self.count = 0
        self.cancel: Callable[[], object] = _nobody

    @contextmanager
    def noticing_the_timer(self) -> Iterator[None]:
        """Notice the timer of a timeout, to call it at the chosen moment."""
        call_at: Any = self._loop.call_at

        def noticed(when: float, callback: Any, *args: Any, **settings: Any) -> asyncio.TimerHandle:
            timer: asyncio.TimerHandle = call_at(when, callback, *args, **settings)

            def expire() -> None:
                if not timer.cancelled():
                    timer.cancel()
                    callback(*args)

            if self.cancel is _nobody:  # the first one; the operation may have others
                self.cancel = expire
            return timer

        vars(self._loop)["call_at"] = noticed
        try:
            yield
        finally:
            del vars(self._loop)["call_at"]

    def make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **settings: Any) -> "asyncio.Task[Any]":
        # `wait_for` makes, in some versions of Python, a task of what is watched already.
        watched = coroutine if getattr(coroutine, "cr_code", None) is _Trigger.watch.__code__ else self.watch(coroutine)
        task = asyncio.Task(watched, loop=loop, **settings)
        # A task that is cancelled before its first step never gets to what is watched in it.
        task.add_done_callback(lambda _: coroutine.close())
        return task

    async def watch(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return await self._steps(coroutine)

    @types.coroutine
    def _steps(self, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, None, T]:
        error: BaseException | None = None
        while True:
            try:
                awaited = coroutine.send(None) if error is None else coroutine.throw(error)
            except StopIteration as stop:
                result: T = stop.value
                return result
            self.count += 1
            error = None
            try:
                if self.count == self._step:
                    self._loop.call_soon(self.cancel)
                    yield from self._hold(awaited)
                yield awaited
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as thrown:  # noqa: BLE001 - it belongs to the coroutine inside
                error = thrown

    def _hold(self, awaited: Any) -> Generator[None, None, None]:
        # Nothing that the task waits for wakes it before the cancellation is here. Not for ever: an operation may well
        # wait for a task that it shields from the cancellation.
        try:
            for _ in range(_TURNS):
                yield
        except asyncio.CancelledError:
            if isinstance(awaited, asyncio.Future):
                awaited.cancel()  # as the task itself would have done
            raise
