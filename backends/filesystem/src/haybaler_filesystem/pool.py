"""The store's own threads."""

import asyncio
import os
from asyncio import CancelledError
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Event
from typing import ParamSpec, TypeVar

from anyio import CancelScope

P = ParamSpec("P")
R = TypeVar("R")


class WorkerPool(Executor):
    """
    A bounded number of threads for any number of event loops, started when they are first needed.

    A child process after a fork gets threads of its own, and so does whoever comes after `shutdown`.

    :param max_workers: The most threads.
    """

    def __init__(self, max_workers: int) -> None:
        self._max_workers = max_workers
        self._of_process: dict[int, ThreadPoolExecutor] = {}

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """As `concurrent.futures.Executor.submit`."""
        while True:
            threads = self._threads()
            try:
                return threads.submit(fn, *args, **kwargs)
            except RuntimeError:
                if self._of_process.get(os.getpid()) is threads:
                    raise  # the interpreter is shutting down

    def _threads(self) -> ThreadPoolExecutor:
        process = os.getpid()
        threads = self._of_process.get(process)
        if threads is None:
            new = ThreadPoolExecutor(self._max_workers, thread_name_prefix="haybaler-filesystem")
            threads = self._of_process.setdefault(process, new)
        return threads

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """As `concurrent.futures.Executor.shutdown`, but the next use starts new threads."""
        threads = self._of_process.pop(os.getpid(), None)
        if threads is not None:
            threads.shutdown(wait, cancel_futures=cancel_futures)

    async def run(self, function: Callable[..., R], *args: object, stop: Event) -> R:
        """
        Call a function in one of the threads, and never return or raise before it has ended.

        :param function: What to call.
        :param args: Its positional arguments.
        :param stop: Set when the awaiting task is cancelled, for the function to look at.
        :returns: What the function returned.
        """
        job = self.submit(function, *args)
        try:
            return await asyncio.wrap_future(job)
        except CancelledError:
            stop.set()
            if not job.cancel():
                await _ended(job)
            raise

    async def finish(self, function: Callable[[], object]) -> None:
        """
        Call a function that cleans up in one of the threads. It is called, and comes to its end, whoever cancels.

        :param function: What to call.
        """
        job = self.submit(function)
        try:
            await asyncio.shield(asyncio.wrap_future(job))
        except CancelledError:
            await _ended(job)
            raise


async def _ended(job: Future[R]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    job.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set))
    # The shield keeps anyio's cancellations away; those of asyncio pass through it.
    with CancelScope(shield=True):
        while not ended.is_set():
            try:
                await ended.wait()
            except CancelledError:
                continue
