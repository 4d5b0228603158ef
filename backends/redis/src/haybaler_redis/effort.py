"""Where work on bytes is done: at once if it is short; off the event loop, beside other things, if it is long."""

from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from haybaler.effects import Effect, Steps, await_effect, in_worker, perform, perform_async
from haybaler.workers import map_bounded

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# Up to this size the work takes a millisecond or two, which a worker thread would rather add to than take away.
INLINE_BYTES = 2 * 1024 * 1024


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


def side_by_side(parts: Sequence[Callable[[], Steps[R]]], *, limit: int) -> Steps[list[R]]:
    """
    Carry out parts that do not depend on each other: one after another for synchronous callers.

    :param parts: Begin them; none raises.
    :param limit: The most parts at a time for asynchronous callers.
    :returns: What came of them; result i belongs to part i.
    """
    if len(parts) == 1:
        return [(yield from parts[0]())]

    async def both() -> list[R]:
        return await map_bounded(lambda part: perform_async(part()), parts, limit=limit)

    return (yield from await_effect(Effect(lambda: [perform(part()) for part in parts], both)))
