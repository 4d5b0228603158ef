"""One attempt at something slow, shared by all who ask for it meanwhile: nobody queues up for one of their own."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future, wait
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from haybaler.effects import Effect, Steps, await_effect, perform, perform_async
from haybaler.per_loop import PerLoop

R = TypeVar("R")


class AsyncShared(Generic[R]):
    """What the tasks of one event loop share."""

    def __init__(self) -> None:
        self._running: asyncio.Future[R] | None = None

    async def run(self, action: Callable[[], Awaitable[R]]) -> R:
        """
        Do something, or wait for what comes of it where somebody is about it already.

        :param action: Does it. If its caller is cancelled, another one begins anew.
        :returns: What came of the attempt.
        """
        while (theirs := self._running) is not None:
            await asyncio.wait([theirs])
            if not theirs.cancelled():
                return theirs.result()
        mine = self._running = asyncio.get_running_loop().create_future()
        try:
            result = await action()
            mine.set_result(result)
        except Exception as error:
            mine.set_exception(error)
            mine.exception()  # seen, although perhaps nobody else waits for it
            raise
        finally:
            self._running = None
            mine.cancel()  # has no effect once there is an outcome
        return result


class SyncShared(Generic[R]):
    """What threads share."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._running: Future[R] | None = None

    def run(self, action: Callable[[], R]) -> R:
        """
        Do something, or wait for what comes of it where somebody is about it already.

        :param action: Does it. If it is interrupted, another caller begins anew.
        :returns: What came of the attempt.
        """
        mine: Future[R] = Future()
        while (theirs := self._begin(mine)) is not None:
            try:
                return theirs.result()
            except CancelledError:
                continue
        try:
            result = action()
            mine.set_result(result)
        except Exception as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                self._running = None
            mine.cancel()  # has no effect once there is an outcome
        return result

    def settle(self) -> None:
        """Wait until nobody is about it any more."""
        with self._lock:
            running = self._running
        if running is not None:
            wait([running])

    def _begin(self, mine: "Future[R]") -> "Future[R] | None":
        with self._lock:
            theirs = self._running
            if theirs is None:
                self._running = mine
            return theirs


class SharedSteps(Generic[R]):
    """
    Attempts under names, of either colour.

    Tasks share with the other tasks of their event loop, and threads with threads. Neither waits for the other: a task
    could not go on while the thread of its loop waits for it.
    """

    def __init__(self) -> None:
        self._of_tasks: PerLoop[WeakValueDictionary[str, AsyncShared[R]]] = PerLoop(WeakValueDictionary)
        self._of_threads: WeakValueDictionary[str, SyncShared[R]] = WeakValueDictionary()
        self._lock = Lock()

    def run(self, name: str, steps: Callable[[], Steps[R]]) -> Steps[R]:
        """
        Carry steps out, or wait for what comes of them where somebody does so already.

        :param name: What tells the attempts apart.
        :param steps: Gives the steps.
        :returns: Steps that end in what came of the attempt.
        """

        def run() -> R:
            with self._lock:
                shared = self._of_threads.setdefault(name, SyncShared())
            return shared.run(lambda: perform(steps()))

        async def run_async() -> R:
            shared = self._of_tasks.get().setdefault(name, AsyncShared())
            return await shared.run(lambda: perform_async(steps()))

        return (yield from await_effect(Effect(run, run_async)))
