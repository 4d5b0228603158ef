"""Short computations on the event loop: at once where there are few, a little in each pass where there are many."""

import asyncio
from collections import Counter
from itertools import pairwise

import anyio
import pytest

from haybaler import turns
from haybaler.turns import SHARE, run_in_turn


class Clock:
    """A clock that only computations move on."""

    def __init__(self) -> None:
        self.now = 0.0

    def compute(self, seconds: float) -> float:
        self.now += seconds
        return seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(turns, "perf_counter", lambda: clock.now)
    return clock


class Passes:
    """Counts the passes of the running loop."""

    def __init__(self) -> None:
        self.number = 0
        self._counting = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.number += 1
        self._counting = asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        self._counting.cancel()


@pytest.mark.anyio
async def test_a_single_computation_is_done_at_once(clock: Clock) -> None:
    passes = Passes()
    assert await run_in_turn(clock.compute, SHARE) == SHARE
    assert passes.number == 0
    passes.stop()


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [SHARE / 10, SHARE / 3, SHARE, SHARE * 3])
async def test_however_many_come_at_once_one_pass_takes_the_share_and_one_more(clock: Clock, seconds: float) -> None:
    passes = Passes()
    taken: Counter[int] = Counter()

    async def one() -> None:
        await run_in_turn(clock.compute, seconds)
        taken[passes.number] += 1

    await asyncio.gather(*(one() for _ in range(300)))
    passes.stop()
    assert taken.total() == 300
    assert max(taken.values()) * seconds <= SHARE + seconds
    # And the share is used, for otherwise all would take the longer.
    assert len(taken) <= 300 / max(1, int(SHARE / seconds) - 1) + 20


@pytest.mark.anyio
async def test_first_come_first_served(clock: Clock) -> None:
    order: list[int] = []

    async def one(number: int) -> None:
        await run_in_turn(clock.compute, SHARE if number < 5 else 0.0)
        order.append(number)

    first = asyncio.gather(*map(one, range(50)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert 5 < len(order) < 45
    await one(50)  # at a moment when something is left of the share
    assert order == list(range(51))
    await first


@pytest.mark.anyio
async def test_who_is_cancelled_while_waiting_holds_up_nobody(clock: Clock) -> None:
    done: list[int] = []

    async def one(number: int) -> None:
        await run_in_turn(clock.compute, SHARE)
        done.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(60)]
    await asyncio.sleep(0)
    for task in tasks[1::2]:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 10)
    assert done == list(range(0, 60, 2))


@pytest.mark.anyio
async def test_an_error_is_raised_and_the_next_ones_have_their_turn(clock: Clock) -> None:
    def fail() -> None:
        clock.compute(SHARE)
        raise ValueError("mine")

    failing = [run_in_turn(fail) for _ in range(5)]
    outcomes = await asyncio.gather(*failing, run_in_turn(clock.compute, 0.0), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ValueError] * 5 + [float]


def test_each_loop_has_turns_of_its_own(clock: Clock) -> None:
    async def many() -> list[float]:
        return await asyncio.gather(*(run_in_turn(clock.compute, SHARE) for _ in range(5)))

    for _ in range(3):
        assert asyncio.run(many()) == [SHARE] * 5


@pytest.mark.anyio
async def test_afterwards_nothing_is_left_on_the_loop(clock: Clock) -> None:
    await asyncio.gather(*(run_in_turn(clock.compute, SHARE) for _ in range(5)))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not asyncio.get_running_loop()._ready  # type: ignore[attr-defined]


@pytest.mark.anyio
@pytest.mark.parametrize("seconds", [SHARE, 0.45 * SHARE])
async def test_a_loop_busy_with_computations_gives_way_to_threads_in_each_pass(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, seconds: float
) -> None:
    given: list[float] = []

    monkeypatch.setattr(turns, "give_way", lambda: given.append(clock.now))
    async with anyio.create_task_group() as group:
        for _ in range(40):
            group.start_soon(run_in_turn, clock.compute, seconds)
    assert all(later - earlier <= SHARE + seconds for earlier, later in pairwise([0.0, *given, clock.now]))
