"""What a request does after it has been cancelled: it cleans up to the end."""

import asyncio
from asyncio import CancelledError
from collections.abc import Coroutine
from typing import Any

import anyio


def forgive_cancellation() -> None:
    """Take a cancellation that was caught for done; the task goes on as if there had been none."""
    if (task := asyncio.current_task()) is not None:
        task.uncancel()


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """
    Await something to its end, whoever wants to cancel it.

    A scope of anyio that is shielded keeps away what a client that is gone has cancelled. What a server cancels that
    shuts down is a task of asyncio, and goes through a shield; so the work has a task of its own.

    :param work: What has to be done. It bounds its own time.
    """
    task = asyncio.create_task(work)
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except CancelledError:
                forgive_cancellation()
    task.result()
