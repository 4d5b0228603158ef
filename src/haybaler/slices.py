"""Long computations in slices, so that other threads are not kept waiting for the interpreter lock."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from threading import active_count
from time import perf_counter, sleep
from typing import TypeVar

T = TypeVar("T")

# Seconds for which a computation keeps the interpreter lock before it gives others a chance. The interpreter itself
# takes the lock away only after 5 ms, and an event loop waits for that each time it has something to do.
SLICE = 0.001
# The shortest sleep there is: as long as the system takes to wake another thread, less than a tenth of a slice.
_MOMENT = 1e-6


def in_slices(items: Iterable[T]) -> Iterator[T]:
    """
    Pass items on, and let other threads run whenever `SLICE` is over.

    That does nothing in the thread of a running event loop, which must not sleep, and nothing where there is no other.

    :param items: What is worked on, one after another.
    :returns: The same items.
    """
    if _on_loop() or active_count() == 1:
        yield from items
        return
    begun = perf_counter()
    for item in items:
        yield item
        if perf_counter() - begun > SLICE:
            give_way()
            begun = perf_counter()


def give_way() -> None:
    """
    Let another thread that waits for the interpreter lock have it, for less than the tenth part of a millisecond.

    An event loop lets go of the lock in each of its passes, but has it back before another thread is awake; and that
    thread's 5 ms, after which it would be given the lock, begin anew each time. So a loop that is busy with short
    computations keeps all threads waiting until it is done, unless it sleeps for a moment now and then.
    """
    if active_count() > 1:
        with suppress(Exception):  # guards against blocking calls, which know no moments
            sleep(_MOMENT)


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
