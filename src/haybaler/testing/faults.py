"""The script of a `FaultyStore`: which fault befalls which operation, and what is counted and waited at meanwhile."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import anyio

from haybaler.gates import Gate


@dataclass(frozen=True)
class Fault:
    """
    What befalls one operation, in the order of the parameters.

    :param before: Seconds to wait before the wrapped store is called.
    :param hang_before: Whether to hang then, until the store is released.
    :param error: What to raise instead of calling the wrapped store. In a batch a `StoreError` is the outcome of its
        entry; any other error is raised out of the batch, as by a store that breaks the contract.
    :param after: Seconds to wait after the wrapped store is done.
    :param hang_after: Whether to hang then, until the store is released.
    :param result: A function of the result that gives what is returned instead, for example a reference that is no
        string.
    """

    before: float = 0.0
    hang_before: bool = False
    error: Exception | None = None
    after: float = 0.0
    hang_after: bool = False
    result: Callable[[Any], Any] | None = None


class Script:
    """
    What a store and all its scopes share: the faults to come, and the counts so far.

    :param writes: The fault of the n-th write, counted from 1.
    :param reads: The fault of the n-th read, counted from 1.
    :param every_write: The fault of each write that `writes` does not name.
    :param every_read: The fault of each read that `reads` does not name.
    """

    def __init__(
        self, *, writes: Mapping[int, Fault], reads: Mapping[int, Fault], every_write: Fault, every_read: Fault
    ) -> None:
        self._faults = {"write": (writes, every_write), "read": (reads, every_read)}
        self._done: Counter[str] = Counter()
        self._lock = Lock()
        self.calls: Counter[str] = Counter()
        self.in_flight = 0
        self.most_in_flight = 0
        self.hanging = Gate()
        self.released = Gate()

    def count(self, method: str) -> None:
        """Count a call."""
        with self._lock:
            self.calls[method] += 1

    @contextmanager
    def operation(self, method: str) -> Iterator[Fault]:
        """
        Count a read or a write while it is in flight.

        :param method: The method's name.
        :returns: The fault that befalls it.
        """
        self.count(method)
        kind = method.removesuffix("_async")
        with self._lock:
            self._done[kind] += 1
            number = self._done[kind]
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        numbered, every = self._faults[kind]
        try:
            yield numbered.get(number, every)
        finally:
            with self._lock:
                self.in_flight -= 1

    async def pause(self, seconds: float, hang: bool) -> None:
        """Wait, blocking the thread. It never suspends."""
        time.sleep(seconds)  # noqa: ASYNC251 - for synchronous callers
        if hang:
            self.hanging.open()
            self.released.wait()

    async def pause_async(self, seconds: float, hang: bool) -> None:
        """Wait, without blocking the event loop."""
        await anyio.sleep(seconds)
        if hang:
            self.hanging.open()
            await self.released.wait_async()
