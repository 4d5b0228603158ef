"""
How one body of logic serves both colours: it yields effects, and a thin driver carries them out.

A function that decides is a generator of effects ("steps"). `perform` runs it for synchronous callers, `perform_async`
for asynchronous ones; the two differ in one awaited line. An error of an effect, also a cancellation, is raised inside
the generator at its `yield`, where it can clean up with further effects.
"""

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple

from haybaler.turns import run_in_turn
from haybaler.workers import run_in_worker

R = TypeVar("R")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Effect(NamedTuple, Generic[R]):
    """
    One thing to be done between two decisions.

    :param run: Does it and returns the result.
    :param run_async: Does the same without blocking the event loop.
    """

    run: Callable[[], R]
    run_async: Callable[[], Awaitable[R]]


Steps = Generator[Effect[Any], Any, R]


def await_effect(effect: Effect[R]) -> Steps[R]:
    """
    Have one effect carried out, in a way that keeps the type of its result (`yield` alone loses it).

    :param effect: What to do.
    :returns: Its result.
    """
    result: R = yield effect
    return result


def in_worker(function: Callable[[*Ts], R], *args: *Ts) -> Steps[R]:
    """
    Call a function that takes its time: directly for synchronous callers, in a worker thread for asynchronous ones.

    :param function: What to call; it touches nothing that changes meanwhile.
    :param args: Its positional arguments.
    :returns: What the function returned.
    """
    return (yield from await_effect(Effect(partial(function, *args), partial(run_in_worker, function, *args))))


def computed(function: Callable[[*Ts], R], *args: *Ts, size: int, inline: int) -> Steps[R]:
    """
    Call a function that works on contents: at once if there is little of it, as `in_worker` does if there is much.

    :param function: What to call; it touches nothing that changes meanwhile.
    :param args: Its positional arguments.
    :param size: How much it works on, roughly, in characters or bytes.
    :param inline: Up to how much it takes no more than a millisecond or two.
    :returns: What the function returned.
    """
    return function(*args) if size <= inline else (yield from in_worker(function, *args))


def is_asynchronous() -> Steps[bool]:
    """
    Tell which driver carries out the steps.

    :returns: True for `perform_async`.
    """

    async def asynchronous() -> bool:
        return True

    return (yield from await_effect(Effect(lambda: False, asynchronous)))


def in_turn(function: Callable[[*Ts], R], *args: *Ts) -> Steps[R]:
    """
    Call a function that computes for a millisecond at most: directly for synchronous callers, and on the event loop,
    when its turn has come, for asynchronous ones.

    :param function: What to call.
    :param args: Its positional arguments.
    :returns: What the function returned.
    """
    return (yield from await_effect(Effect(partial(function, *args), partial(run_in_turn, function, *args))))


def perform(steps: Steps[R]) -> R:
    """
    Carry out the effects of `steps` one after another.

    :param steps: The logic.
    :returns: What it returned.
    """
    progress = _Progress(steps)
    while progress.effect is not None:
        with progress:
            progress.outcome = progress.effect.run()
    return progress.result


async def perform_async(steps: Steps[R]) -> R:
    """
    Carry out the effects of `steps` one after another, as `perform` does.

    :param steps: The logic.
    :returns: What it returned.
    """
    progress = _Progress(steps)
    while progress.effect is not None:
        with progress:
            progress.outcome = await progress.effect.run_async()
    return progress.result


class _Progress(Generic[R]):
    """Where the logic stands: its next effect, or its result. As a context manager, it takes the effect's outcome."""

    result: R

    def __init__(self, steps: Steps[R]) -> None:
        self._steps = steps
        self.outcome: Any = None
        self.effect: Effect[Any] | None = None
        self._resume(None)

    def _resume(self, error: BaseException | None) -> None:
        try:
            self.effect = self._steps.send(self.outcome) if error is None else self._steps.throw(error)
        except StopIteration as stop:
            self.effect, self.result = None, stop.value

    def __enter__(self) -> None:
        self.outcome = None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self._resume(error)
        return True
