"""
Short computations on the event loop, a little in each of its passes, whatever the number of runs that want some.

A worker thread would take longer than they do, and wait for the interpreter lock besides. But where a thousand runs
come in the same moment, a thousand short computations are a long one, and everybody else on the loop waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TypeVar, TypeVarTuple

from haybaler.per_loop import PerLoop
from haybaler.slices import give_way

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

# Seconds of one pass of an event loop, in which it calls everything that is ready. One computation may take longer.
SHARE = 0.001
# How much the newest computation counts in the average.
_NEWEST = 0.1


async def run_in_turn(function: Callable[[*Ts], R], *args: *Ts) -> R:
    """
    Call a function that computes for a millisecond at most: at once, or in a later pass where others have had theirs.

    :param function: What to call, in the thread of the event loop.
    :param args: Its positional arguments.
    :returns: What the function returned.
    """
    turns = _turns.get()
    if not turns.is_free:
        await turns.mine()
    begun = perf_counter()
    try:
        return function(*args)
    finally:
        turns.took(perf_counter() - begun)


class _Turns:
    """Those of one event loop: first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._spent = self._average = 0.0
        self._pass_is_known = False

    @property
    def is_free(self) -> bool:
        """Whether nobody waits, and something is left of the share."""
        return not self._waiting and self._spent < SHARE

    async def mine(self) -> None:
        """Wait until those who came before have had their turns."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def took(self, seconds: float) -> None:
        """Count a computation."""
        self._spent += seconds
        self._average += (seconds - self._average) * (_NEWEST if self._average else 1.0)
        if not self._pass_is_known:
            self._pass_is_known = True
            asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        if self._waiting or self._spent >= SHARE:
            give_way()
        self._spent = 0.0
        self._pass_is_known = bool(self._waiting)
        if self._waiting:
            # Before those who go on now, so that their share is a new one.
            asyncio.get_running_loop().call_soon(self._next_pass)
        number = max(1, int(SHARE / self._average)) if self._average else 1
        while self._waiting and number:
            turn = self._waiting.popleft()
            if not turn.done():  # otherwise its task was cancelled
                turn.set_result(None)
                number -= 1


_turns = PerLoop(_Turns)
