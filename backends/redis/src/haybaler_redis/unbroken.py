"""Finishing a write that is cancelled on its way."""

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable
from typing import TypeVar

from anyio import CancelScope

R = TypeVar("R")

# Seconds for which a cancellation waits; a round trip of a few megabytes takes some milliseconds.
GRACE = 1.0


async def unbroken(write: Awaitable[R]) -> R:
    """
    Await a round trip that writes, and let it end before a cancellation goes on.

    What was handed to a socket cannot be taken back. Without this it might arrive after the removal with which the
    caller cleans up, and stay; and the connection would be lost.

    :param write: The round trip.
    :returns: What came of it.
    """
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except CancelledError:
        # The shield keeps anyio's cancellations away.
        with CancelScope(shield=True):
            await asyncio.wait([task], timeout=GRACE)
        raise
    finally:
        if not task.done():
            task.cancel()
