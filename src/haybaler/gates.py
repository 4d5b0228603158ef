"""Waiting for something that happens once, in threads and event loops alike."""

import asyncio
from contextlib import suppress
from threading import Event, Lock

import anyio


class Gate:
    """What threads, and tasks of any event loop, wait at until somebody opens it, once for all."""

    def __init__(self) -> None:
        self._opened = Event()
        self._lock = Lock()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Let everybody pass, now and later."""
        with self._lock:
            self._opened.set()
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            with suppress(RuntimeError):  # the loop is closed, and nobody waits there any more
                loop.call_soon_threadsafe(event.set)

    def wait(self, timeout: float | None = None) -> bool:
        """
        Block the thread until the gate is open.

        :param timeout: The most seconds to wait; None for ever.
        :returns: Whether it is open.
        """
        return self._opened.wait(timeout)

    async def wait_async(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as in the other colour
        """
        Wait until the gate is open.

        :param timeout: The most seconds to wait; None for ever.
        :returns: Whether it is open.
        """
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._opened.is_set():
                return True
            self._waiters.append(waiter)
        with anyio.move_on_after(timeout):
            await waiter[1].wait()
        return self._opened.is_set()
