"""Where a wrapper's own work on contents is done: at once if it is short, off the event loop if it is long."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from haybaler.effects import Steps, in_worker

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# Up to this many characters or bytes in all, compressing, encrypting or summing up takes less than two milliseconds,
# also for the slowest of them.
INLINE = 32 * 1024


def computed(size: int, function: Callable[[*Ts], R], *args: *Ts) -> Steps[R]:
    """
    Call a function that works on contents.

    :param size: How much it works on, in characters or bytes.
    :param function: What to call; it touches nothing that changes meanwhile.
    :param args: Its positional arguments.
    :returns: What the function returned.
    """
    if size <= INLINE:
        return function(*args)
    return (yield from in_worker(function, *args))
