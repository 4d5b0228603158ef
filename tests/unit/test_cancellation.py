"""The harness that cancels at every suspension point."""

import asyncio

import anyio
import pytest

from haybaler.testing import Cancellation, cancel_at, each_cancellation


class Steps:
    """An operation of three suspensions, of which one is in a task of its own."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def run(self) -> None:
        await self._step("first")
        async with anyio.create_task_group() as group:
            group.start_soon(self._step, "child")
        await self._step("last")

    async def _step(self, name: str) -> None:
        await asyncio.sleep(0)
        self.done.append(name)


@pytest.mark.parametrize("by", Cancellation)
def test_each_suspension_is_reached_in_turn(by: Cancellation) -> None:
    done: list[list[str]] = []
    step = 0
    while True:
        step += 1
        steps = Steps()
        reached = cancel_at(steps.run, step=step, by=by)
        done.append(steps.done)
        if not reached:
            break
    assert done[0] == []
    assert done[-1] == ["first", "child", "last"]
    assert ["first"] in done
    assert ["first", "child"] in done


@pytest.mark.parametrize("by", Cancellation)
def test_an_operation_that_waits_for_ever_is_cancelled(by: Cancellation) -> None:
    assert cancel_at(anyio.sleep_forever, step=1, by=by)


@pytest.mark.parametrize("by", Cancellation)
def test_the_operation_sees_a_cancellation(by: Cancellation) -> None:
    caught: list[type[BaseException]] = []

    async def operation() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            caught.append(type(error))
            raise

    assert cancel_at(operation, step=1, by=by)
    assert caught == [asyncio.CancelledError]


def test_an_error_of_the_operation_is_raised() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cancel_at(fail, step=5, by=Cancellation.TASK)


def test_an_operation_without_suspensions_is_never_cancelled() -> None:
    async def nothing() -> None:
        pass

    runs = list(each_cancellation(nothing))
    assert runs[0] == (Cancellation.TASK, 1, False)
    assert not any(cancelled for by, _, cancelled in runs if by is Cancellation.SCOPE)


@pytest.mark.parametrize("by", Cancellation)
def test_what_comes_afterwards_is_undisturbed(by: Cancellation) -> None:
    finished: list[bool] = []

    async def afterwards() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        finished.append(True)

    assert cancel_at(anyio.sleep_forever, step=1, by=by, afterwards=afterwards)
    assert finished == [True]


def test_the_number_of_attempts_is_bounded() -> None:
    async def operation() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    assert len(list(each_cancellation(operation, most=4))) == 4 * len(Cancellation)
