"""What an event loop and a process hold, to see that nothing is left."""

import asyncio
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio


async def settled() -> None:
    """Wait until no task is left but the running one, which cancelled clean-ups have to come to within seconds."""
    with anyio.fail_after(10):
        while asyncio.all_tasks() != {asyncio.current_task()}:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0)


def descriptors() -> dict[int, str]:
    """Return the open descriptors of this process and what they lead to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the one that lists is gone then
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue
    return found


@contextmanager
def nothing_left() -> Iterator[None]:
    """See that a block leaves no thread and no descriptor behind: connections, files, folders and loops."""
    gc.collect()
    threads, before = set(threading.enumerate()), descriptors()
    yield
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive(), thread.name
    gc.collect()
    after = descriptors()
    assert {number: to for number, to in after.items() if before.get(number) != to} == {}
