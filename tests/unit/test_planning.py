"""Which results are replaced, decided and applied without a store."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from haystack.dataclasses import ChatMessage, TextContent, ToolCall
from tests.compactors.conversations import answer, several

from haybaler.errors import StoreError, StoreTimeoutError, StoreUnavailableError
from haybaler.parts import parts_of
from haybaler.planning import OffloadPlan, unprotected_results
from haybaler.references import OFFLOADED_META, offloaded_references
from haybaler.swaps import Slot, with_results

TEXT = "x" * 1000


def step(number: int, text: str = TEXT) -> list[ChatMessage]:
    call = ToolCall("fetch", {}, id=str(number))
    return [ChatMessage.from_assistant(tool_calls=[call]), answer(call, text)]


def slot(index: int, message: ChatMessage, *, parts: int = 1) -> Slot:
    [result] = message.tool_call_results
    described = parts_of(result, 0, prefix="", preview_chars=0)
    assert described is not None
    own = [described[0]._replace(key=f"key{index}_{part}") for part in range(parts)]
    return Slot(index, message, {0: result}, own)


class Said(NamedTuple):
    """Bounds that are the same for every message."""

    least: int | None
    most: int | None

    def most_tokens(self, size: int) -> int | None:
        return self.most

    def least_tokens(self, characters: int) -> int | None:
        return self.least


class OneEach:
    """Bounds of a counter whose tokens are characters, or bytes."""

    def most_tokens(self, size: int) -> int:
        return size

    def least_tokens(self, characters: int) -> int:
        return characters


def size(message: ChatMessage) -> int:
    """Size a message by the length of its results."""
    return sum(len(str(result.result)) for result in message.tool_call_results)


MESSAGES = [message for number in range(4) for message in step(number)]
RESULTS = (1, 3, 5)


def plan(surplus: int | None = None, *, predictable: bool = True, parts: int = 1) -> OffloadPlan:
    slots = (slot(index, MESSAGES[index], parts=parts) for index in RESULTS)
    predict = (lambda key: f"at/{key}") if predictable else None
    return OffloadPlan(MESSAGES, slots, surplus=surplus, size=size, predict=predict)


def test_slots_are_taken_until_the_surplus_is_covered_and_no_further() -> None:
    one = plan(1)
    assert [part.key for part in one.next_batch()] == ["key1_0"]
    saving = 1000 - len("Tool result offloaded to text (1000 characters) at 'at/key1_0'")
    assert len(plan(saving).next_batch()) == 1
    assert len(plan(saving + 1).next_batch()) == 2
    assert len(plan(None).next_batch()) == 3


def test_candidates_are_not_even_prepared_before_they_are_needed() -> None:
    prepared: list[int] = []

    def slots() -> object:
        for index in RESULTS:
            prepared.append(index)
            yield slot(index, MESSAGES[index])

    lazy = OffloadPlan(MESSAGES, slots(), surplus=1, size=size, predict=str)  # type: ignore[arg-type]
    lazy.next_batch()
    assert prepared == [1]


def test_nothing_is_replaced_before_the_outcomes_are_there() -> None:
    chosen = plan(1)
    chosen.next_batch()
    assert chosen.messages == MESSAGES
    assert chosen.references_in_flight() == ["at/key1_0"]
    chosen.settle(["at/key1_0"])
    assert chosen.changed
    assert chosen.is_complete
    assert chosen.messages[1].meta[OFFLOADED_META] == ["at/key1_0"]
    assert MESSAGES[1].meta == {}


@pytest.mark.parametrize(("most", "sized"), [(900, 0), (999, 0), (1000, 3), (5000, 3), (None, 3)])
def test_a_pointer_is_sized_beforehand_unless_it_is_smaller_in_any_case(most: int | None, sized: int) -> None:
    pointers: list[ChatMessage] = []

    def noted(message: ChatMessage) -> int:
        pointers.extend([message] if offloaded_references(message) else [])
        return size(message)

    slots = [slot(index, MESSAGES[index]) for index in RESULTS]
    chosen = OffloadPlan(MESSAGES, slots, surplus=None, size=noted, predict=str, bounds=Said(1000, most))
    keys = [part.key for part in chosen.next_batch()]
    assert len(keys) == 3
    assert len(pointers) == sized
    assert chosen.references_in_flight() == keys
    chosen.settle(list(keys))
    assert [chosen.messages[index].meta[OFFLOADED_META] for index in RESULTS] == [[key] for key in keys]
    assert all(size(chosen.messages[index]) < 1000 for index in RESULTS)


@pytest.mark.parametrize("least", [0, 100, 501, 1000, None])
@pytest.mark.parametrize("most", [500, 5000, None])
def test_bounds_never_decide_against_a_pointer(least: int | None, most: int | None) -> None:
    slots = [slot(index, MESSAGES[index]) for index in RESULTS]
    chosen = OffloadPlan(MESSAGES, slots, surplus=None, size=size, predict=str, bounds=Said(least, most))
    assert len(chosen.next_batch()) == 3


def test_bounds_that_meet_never_decide_for_a_pointer_that_is_larger() -> None:
    chosen = OffloadPlan(
        MESSAGES,
        [slot(1, MESSAGES[1])],
        surplus=None,
        size=lambda message: 10 if message is MESSAGES[1] else 11,
        predict=str,
        bounds=Said(20, 20),
    )
    assert chosen.next_batch() == []


def test_of_several_pointers_the_largest_has_to_be_smaller() -> None:
    texts = ["x" * 5_000, "y" * 125]
    messages = [message for number, text in enumerate(texts) for message in step(number, text)]
    slots = [slot(index, messages[index], parts=parts) for index, parts in ((1, 1), (3, 40))]
    chosen = OffloadPlan(messages, slots, surplus=None, size=size, predict=str, bounds=OneEach())
    assert [part.key for part in chosen.next_batch()] == ["key1_0"]


@pytest.mark.parametrize("surplus", [None, 10])
@pytest.mark.parametrize("bounds", [None, Said(10, 10), Said(None, 10)])
def test_a_pointer_that_is_as_large_as_its_result_is_not_written(surplus: int | None, bounds: Said | None) -> None:
    chosen = OffloadPlan(
        MESSAGES, [slot(1, MESSAGES[1])], surplus=surplus, size=lambda message: 10, predict=str, bounds=bounds
    )
    assert chosen.next_batch() == []


def test_a_counter_without_a_bound_from_below_counts_the_results_and_no_pointers() -> None:
    counted: list[ChatMessage] = []

    def noted(message: ChatMessage) -> int:
        counted.append(message)
        return size(message)

    slots = [slot(index, MESSAGES[index]) for index in RESULTS]
    chosen = OffloadPlan(MESSAGES, slots, surplus=None, size=noted, predict=str, bounds=Said(None, 999))
    assert len(chosen.next_batch()) == 3
    assert [id(message) for message in counted] == [id(MESSAGES[index]) for index in RESULTS]


def test_one_small_result_has_the_bounds_decide_on_each_of_its_neighbours_alone() -> None:
    texts = ["x" * 5_000, "short", "y" * 5_000]
    messages = [message for number, text in enumerate(texts) for message in step(number, text)]
    slots = [slot(index, messages[index]) for index in RESULTS]
    counted: list[ChatMessage] = []

    def noted(message: ChatMessage) -> int:
        counted.append(message)
        return size(message)

    chosen = OffloadPlan(messages, slots, surplus=None, size=noted, predict=str, bounds=OneEach())
    assert [part.key for part in chosen.next_batch()] == ["key1_0", "key5_0"]
    assert [len(str(message.tool_call_results[0].result)) < 100 for message in counted] == [True, True]


def test_what_stands_beside_a_result_is_counted_whatever_the_bounds_of_its_neighbours() -> None:
    beside = replace(MESSAGES[3], _content=[*MESSAGES[3]._content, TextContent("said")])
    slots = [slot(1, MESSAGES[1]), slot(3, beside)]
    counted: list[ChatMessage] = []

    def noted(message: ChatMessage) -> int:
        counted.append(message)
        return size(message)

    chosen = OffloadPlan(MESSAGES, slots, surplus=None, size=noted, predict=str, bounds=Said(1000, 1))
    assert len(chosen.next_batch()) == 2
    assert counted[0] is beside
    assert len(counted) == 2


def test_a_pointer_with_another_reference_than_expected_is_sized_although_the_expected_one_was_smaller() -> None:
    chosen = OffloadPlan(
        MESSAGES, [slot(1, MESSAGES[1])], surplus=None, size=size, predict=None, bounds=Said(1000, 500)
    )
    [part] = chosen.next_batch()
    long = f"{part.key}{'/' * 1000}"
    chosen.settle([long])
    assert not chosen.changed
    assert chosen.orphans == [long]


def test_the_next_candidate_takes_the_place_of_a_failed_write() -> None:
    chosen = plan(1)
    chosen.next_batch()
    chosen.settle([StoreError("refused")])
    assert not chosen.is_complete
    assert [part.key for part in chosen.next_batch()] == ["key3_0"]
    chosen.settle(["at/key3_0"])
    assert [index for index, message in enumerate(chosen.messages) if message is not MESSAGES[index]] == [3]
    assert [(failed.place, str(error)) for failed, error in chosen.failures] == [(1, "refused")]


def test_a_store_that_is_away_is_not_asked_again() -> None:
    chosen = plan(1)
    chosen.next_batch()
    chosen.settle([StoreUnavailableError("away")])
    assert chosen.is_complete


def test_a_store_that_refuses_only_some_is_asked_again() -> None:
    chosen = plan(1000)
    chosen.next_batch()
    chosen.settle([StoreUnavailableError("busy"), "at/key3_0"])
    assert not chosen.is_complete


@pytest.mark.parametrize("predictable", [True, False])
def test_of_a_result_that_failed_in_part_the_rest_is_an_orphan(predictable: bool) -> None:
    chosen = plan(1, predictable=predictable, parts=2)
    chosen.next_batch()
    chosen.settle(["at/key1_0", StoreError("refused")])
    assert chosen.orphans == ["at/key1_0"]
    assert not chosen.changed


def test_what_was_not_confirmed_in_time_may_be_there_and_is_an_orphan() -> None:
    late: list[str | StoreError] = [StoreTimeoutError("late"), "at/key1_1"]
    known = plan(1, parts=2)
    known.next_batch()
    known.settle(late)
    assert sorted(known.orphans) == ["at/key1_0", "at/key1_1"]
    guessed = plan(1, parts=2, predictable=False)
    guessed.next_batch()
    guessed.settle(late)
    assert guessed.orphans == ["at/key1_1"]


def test_a_reference_that_is_longer_than_the_result_is_not_used() -> None:
    chosen = plan(1, predictable=False)
    chosen.next_batch()
    chosen.settle(["deep/" * 400])
    assert not chosen.changed
    assert chosen.orphans == ["deep/" * 400]


def test_after_settling_only_what_was_written_is_in_flight() -> None:
    chosen = plan(1000)
    chosen.next_batch()
    chosen.settle([StoreError("refused"), "at/key3_0"])
    assert chosen.references_in_flight() == ["at/key3_0"]


def test_replacing_one_of_several_results_leaves_the_others() -> None:
    calls = [ToolCall("fetch", {}, id=name) for name in "ab"]
    both = several([answer(call, TEXT, error=True) for call in calls])
    message = with_results(both, {1: "short"}, {"mark": 1})
    assert [result.result for result in message.tool_call_results] == [TEXT, "short"]
    assert [(r.origin, r.error) for r in message.tool_call_results] == [(call, True) for call in calls]
    assert message.meta == {"mark": 1}
    assert both.meta == {}


def test_results_of_the_newest_steps_are_protected() -> None:
    assert unprotected_results(MESSAGES, 1) == [1, 3, 5]
    assert unprotected_results(MESSAGES, 3) == [1]
    assert unprotected_results(MESSAGES, 9) == []
    assert unprotected_results([], 1) == []


def frugal(surplus: int, minimum: int) -> tuple[OffloadPlan, list[int]]:
    """Return a plan of three slots, of which the last saves 500 less, and the indices that its minimum is asked for."""
    asked: list[int] = []

    def minimum_gain(first: int) -> int:
        asked.append(first)
        return minimum

    def sized(message: ChatMessage) -> int:
        return size(message) - (500 if message is MESSAGES[RESULTS[-1]] else 0)

    slots = [slot(index, MESSAGES[index]) for index in RESULTS]
    plan = OffloadPlan(MESSAGES, slots, surplus=surplus, size=sized, predict=str, minimum_gain=minimum_gain)
    return plan, asked


SAVING = 1000 - len("Tool result offloaded to text (1000 characters) at 'key1_0'")


def test_where_all_slots_together_save_too_little_nothing_is_written() -> None:
    plan, asked = frugal(10_000, 3 * SAVING - 499)
    assert plan.next_batch() == []
    assert plan.is_complete
    assert plan.references_in_flight() == []
    assert asked == [RESULTS[0]]


def test_where_they_save_enough_all_are_written() -> None:
    plan, _ = frugal(10_000, 3 * SAVING - 500)
    assert len(plan.next_batch()) == 3


def test_what_covers_the_surplus_needs_no_minimum() -> None:
    plan, asked = frugal(2 * SAVING, 10_000)
    assert len(plan.next_batch()) == 2
    assert asked == []


def test_what_replaces_failed_writes_has_to_save_enough_only_if_nothing_was_written() -> None:
    plan, _ = frugal(2 * SAVING, SAVING + 1)
    plan.next_batch()
    plan.settle([StoreError("refused"), "key3_0"])
    assert [part.key for part in plan.next_batch()] == ["key5_0"]
    plan, asked = frugal(2 * SAVING, SAVING + 1)
    plan.next_batch()
    plan.settle([StoreError("refused")] * 2)
    assert plan.next_batch() == []
    assert asked == [RESULTS[2]]
