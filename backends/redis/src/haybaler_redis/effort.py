"""Where work on bytes is done: at once if it is short; off the event loop, beside other things, if it is long."""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio

from haybaler.effects import Effect, Steps, await_effect, in_worker, perform, perform_async
from haybaler.workers import run_in_worker

R = TypeVar("R")
S = TypeVar("S")
Ts = TypeVarTuple("Ts")

# Up to this size the work takes a millisecond or two, which a worker thread would rather add to than take away.
INLINE_BYTES = 512 * 1024


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


def alongside(steps: Steps[R], size: int, function: Callable[[*Ts], S], *args: *Ts) -> Steps[tuple[R, S]]:
    """
    Call such a function while something else is going on: in a worker thread for asynchronous callers.

    :param steps: What else is going on; it does not raise.
    :param size: How many bytes, roughly.
    :param function: What to call; it touches nothing that changes, and does not raise.
    :param args: Its positional arguments.
    :returns: What came of the steps, and what the function returned.
    """
    if size <= INLINE_BYTES:
        return (yield from steps), function(*args)

    async def both() -> tuple[R, S]:
        results: list[S] = []

        async def call() -> None:
            results.append(await run_in_worker(function, *args))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            outcome = await perform_async(steps)
        return outcome, results[0]

    return (yield from await_effect(Effect(lambda: (perform(steps), function(*args)), both)))
