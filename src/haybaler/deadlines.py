"""Calls for which synchronous callers wait no longer than they want to."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from functools import partial
from threading import BoundedSemaphore, Thread
from time import monotonic
from typing import TypeVar

R = TypeVar("R")


class WaitedTooLong(Exception):  # noqa: N818 - caught where it is told from the function's own errors
    """A call has not returned in time."""


def run_within(
    function: Callable[[], R], seconds: float, *, room: BoundedSemaphore, undo: Callable[[R], object] | None = None
) -> R:
    """
    Call a blocking function for a synchronous caller who stops waiting after a while.

    It runs in a thread of its own, since nothing else can leave a call that hangs. Such a call runs to its end,
    unobserved, and keeps its place in the room until then.

    :param function: What to call.
    :param seconds: How long to wait, for a place and for the function.
    :param room: How many calls there may be at once, the abandoned ones included.
    :param undo: Takes what comes too late.
    :returns: What the function returned.
    :raises WaitedTooLong: If it has not returned in time.
    """
    deadline = monotonic() + seconds
    if not room.acquire(timeout=seconds):
        raise WaitedTooLong
    call: Future[R] = Future()
    context = copy_context()

    def run() -> None:
        try:
            call.set_result(context.run(function))
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            call.set_exception(error)
        finally:
            room.release()

    try:
        Thread(target=run, name="haybaler-within", daemon=True).start()
    except RuntimeError:
        room.release()
        raise
    if not wait([call], timeout=max(deadline - monotonic(), 0)).done:
        if undo is not None:
            call.add_done_callback(partial(_undo, undo))
        raise WaitedTooLong
    return call.result()


def _undo(undo: Callable[[R], object], call: "Future[R]") -> None:
    if call.exception() is None:
        undo(call.result())
