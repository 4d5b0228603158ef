"""Swaps that are made before they are confirmed, and undone, without a store and without an Agent."""

import copy
from dataclasses import replace

import pytest
from haystack.dataclasses import ChatMessage
from tests.unit.test_planning import MESSAGES, plan

from haybaler.errors import StoreError, StoreTimeoutError
from haybaler.prepared import Judged
from haybaler.references import OFFLOADED_META
from haybaler.swaps import Swap, standing, undone


def assumed(surplus: int | None = None, *, parts: int = 1) -> tuple[list[Swap], list[ChatMessage]]:
    chosen = plan(surplus, parts=parts)
    swaps = chosen.assume()
    return swaps, chosen.messages


def test_assuming_a_batch_swaps_what_a_confirmed_one_would_have() -> None:
    for surplus in (1, 1_000, None):
        swaps, messages = assumed(surplus)
        confirmed = plan(surplus)
        confirmed.settle([f"at/{part.key}" for part in confirmed.next_batch()])
        assert messages == confirmed.messages
        assert [swap.slot.place for swap in swaps] == [n for n, m in enumerate(messages) if OFFLOADED_META in m.meta]
        assert [swap.references for swap in swaps] == [messages[swap.slot.place].meta[OFFLOADED_META] for swap in swaps]


def test_undoing_all_swaps_gives_the_conversation_as_it_was() -> None:
    swaps, messages = assumed()
    assert all(new is old for new, old in zip(undone(swaps, messages), MESSAGES, strict=True))
    assert undone(swaps[:1], messages)[1] is MESSAGES[1]
    assert undone(swaps[:1], messages)[3:] == messages[3:]
    assert undone([], messages) == messages
    assert messages != MESSAGES


def test_copies_of_pointers_are_found_as_well_as_the_pointers() -> None:
    swaps, messages = assumed()
    copied = [copy.deepcopy(messages[0]), copy.deepcopy(messages[1]), *messages[2:]]
    assert undone(swaps, copied) == MESSAGES
    assert standing(swaps, copied) == swaps
    marked = replace(copied[1], _meta={**copied[1].meta, "seen": True})
    assert undone(swaps, [marked]) == [MESSAGES[1]]


def test_what_is_no_pointer_any_more_stays() -> None:
    swaps, messages = assumed()
    (result,) = messages[1].tool_call_results
    gone = ChatMessage.from_tool("[gone]", origin=result.origin, meta=messages[1].meta)
    assert undone(swaps, [gone, *messages[2:]])[0] is gone
    assert undone(swaps, messages[4:]) == MESSAGES[4:]
    assert standing(swaps, messages[4:]) == swaps[2:]
    assert standing(swaps, []) == []


LATE = StoreTimeoutError("late")
REFUSED = StoreError("refused")


@pytest.mark.parametrize(
    ("outcomes", "confirmed", "failed", "orphans"),
    [
        (["at/key1_0", "at/key1_1"], ["at/key1_0", "at/key1_1"], [], []),
        (["at/key1_0", REFUSED], [], [REFUSED], ["at/key1_0"]),
        ([REFUSED, REFUSED], [], [REFUSED], []),
        ([LATE, "at/key1_1"], [], [LATE], ["at/key1_1", "at/key1_0"]),
        (["at/key1_0", "at/other"], [], [None], ["at/key1_0", "at/other"]),
    ],
    ids=["all", "one refused", "both refused", "one late", "another reference"],
)
def test_a_result_is_confirmed_as_a_whole_or_has_failed(
    outcomes: list[str | StoreError], confirmed: list[str], failed: list[StoreError | None], orphans: list[str]
) -> None:
    swaps, _ = assumed(1, parts=2)
    judged = Judged.of(swaps, outcomes)
    assert judged.confirmed == confirmed
    assert [swap for swap, _ in judged.failures] == swaps[: len(failed)]
    assert all(error in (None, found) for error, (_, found) in zip(failed, judged.failures, strict=True))
    assert judged.orphans == orphans
