"""How much work on bytes is done at once, and how round trips go on beside each other."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from haybaler.effects import Effect, Steps, await_effect, perform, perform_async
from haybaler.workers import map_bounded

R = TypeVar("R")

# Up to this size the work takes a millisecond or two, which a worker thread would rather add to than take away.
INLINE_BYTES = 2 * 1024 * 1024


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
