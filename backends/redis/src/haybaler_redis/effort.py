"""Where work on bytes is done: at once if it is short, off the event loop if it is long."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from haybaler.effects import Steps, in_worker

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# Up to this size the work takes less than the way to a worker thread and back.
INLINE_BYTES = 128 * 1024


def computed(size: int, function: Callable[[*Ts], R], *args: *Ts) -> Steps[R]:
    """
    Call a function that encodes, decodes or sums up bytes.

    :param size: How many bytes, roughly.
    :param function: What to call; it touches nothing that changes meanwhile.
    :param args: Its positional arguments.
    :returns: What the function returned.
    """
    if size <= INLINE_BYTES:
        return function(*args)
    return (yield from in_worker(function, *args))
