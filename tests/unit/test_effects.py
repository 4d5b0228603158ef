"""One body of logic in both colours."""

import asyncio
import threading
from typing import Any

import pytest
from tests.compactors.subjects import COLOURS

from haybaler.effects import Effect, Steps, await_effect, in_worker, is_asynchronous, perform, perform_async

each_colour = pytest.mark.parametrize("colour", COLOURS)


def carry_out(colour: str, steps: Steps[Any]) -> Any:
    return perform(steps) if colour == "sync" else asyncio.run(perform_async(steps))


def effect(value: object) -> Effect[Any]:
    def give() -> object:
        if isinstance(value, BaseException):
            raise value
        return value

    async def give_async() -> object:
        await asyncio.sleep(0)
        return give()

    return Effect(give, give_async)


@each_colour
def test_outcomes_of_effects_come_back_in_order(colour: str) -> None:
    def steps() -> Steps[list[int]]:
        first = yield from await_effect(effect(1))
        second = yield from await_effect(effect(2))
        return [first, second]

    assert carry_out(colour, steps()) == [1, 2]


@each_colour
def test_steps_without_effects_just_return(colour: str) -> None:
    def steps(effects: list[Effect[Any]]) -> Steps[str]:
        for each in effects:
            yield from await_effect(each)
        return "at once"

    assert carry_out(colour, steps([])) == "at once"


@each_colour
def test_an_error_of_an_effect_can_be_handled_with_further_effects(colour: str) -> None:
    def steps() -> Steps[str]:
        try:
            yield from await_effect(effect(OSError("gone")))
        except OSError:
            cleaned: str = yield from await_effect(effect("cleaned"))
            return cleaned
        return "unreached"

    assert carry_out(colour, steps()) == "cleaned"


@each_colour
def test_an_error_that_is_not_handled_arrives_as_it_is(colour: str) -> None:
    error = OSError("gone")

    def steps() -> Steps[None]:
        yield from await_effect(effect(error))

    with pytest.raises(OSError, match="gone") as caught:
        carry_out(colour, steps())
    assert caught.value is error


@each_colour
def test_an_error_of_the_logic_itself_is_raised(colour: str) -> None:
    def steps() -> Steps[None]:
        yield from await_effect(effect(1))
        raise LookupError("in the logic")

    with pytest.raises(LookupError, match="in the logic"):
        carry_out(colour, steps())


@pytest.mark.anyio
async def test_a_cancellation_is_raised_inside_the_logic_which_may_still_clean_up() -> None:
    seen: list[str] = []
    started = asyncio.Event()

    async def wait() -> None:
        started.set()
        await asyncio.Event().wait()

    def steps() -> Steps[None]:
        try:
            yield from await_effect(Effect(lambda: None, wait))
        except asyncio.CancelledError:
            seen.append((yield from await_effect(effect("cleaned"))))
            raise

    task = asyncio.create_task(perform_async(steps()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cleaned"]


@each_colour
def test_work_goes_to_a_worker_thread_for_asynchronous_callers_only(colour: str) -> None:
    def steps() -> Steps[threading.Thread]:
        return (yield from in_worker(threading.current_thread))

    assert (carry_out(colour, steps()) is threading.current_thread()) is (colour == "sync")


def test_steps_can_tell_by_which_driver_they_are_carried_out() -> None:
    assert perform(is_asynchronous()) is False
    assert asyncio.run(perform_async(is_asynchronous())) is True
