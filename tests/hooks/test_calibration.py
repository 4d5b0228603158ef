"""How the provider's own figure and local counts go together."""

import pytest
from haystack.dataclasses import ChatMessage
from hypothesis import given
from hypothesis import strategies as st

from haybaler.calibration import EXPLAINABLE, FLOOR_SHARE, OVERHEAD_SHARE, Anchor, Fill, overhead_of

MESSAGES = [ChatMessage.from_user("task"), ChatMessage.from_assistant("reply")]


def test_a_small_difference_is_overhead() -> None:
    assert overhead_of(1_100, 1_000, context_window=10_000) == 100


def test_of_a_large_difference_only_a_small_part_of_the_window_is_overhead() -> None:
    assert overhead_of(4_200, 2_000, context_window=10_000) == OVERHEAD_SHARE * 10_000


def test_an_estimate_that_is_too_high_leaves_no_overhead() -> None:
    assert overhead_of(500, 1_000, context_window=10_000) == 0


@pytest.mark.parametrize(("reported", "overhead"), [(1, 0), (150, 0), (900, 750)])
def test_next_to_a_few_words_everything_else_is_overhead(reported: int, overhead: int) -> None:
    assert overhead_of(reported, 150, context_window=10_000) == overhead


def test_what_no_text_explains_is_overhead() -> None:
    assert overhead_of(int(EXPLAINABLE * 1_000) + 1, 1_000, context_window=10_000) == 5_001


@given(reported=st.integers(1, 10**6), judged=st.floats(0, 10**6), window=st.integers(1, 2 * 10**6))
def test_overhead_is_never_negative_nor_more_than_the_figure(reported: int, judged: float, window: int) -> None:
    assert 0 <= overhead_of(reported, judged, context_window=window) <= reported


@given(goal=st.integers(1, 10**6), fixed=st.integers(0, 10**6))
def test_a_target_meets_the_goal_and_never_falls_below_the_floor(goal: int, fixed: int) -> None:
    target = Fill(tokens=goal, fixed=fixed).target(goal)
    assert target >= int(FLOOR_SHARE * goal)
    assert target + fixed <= goal or target <= FLOOR_SHARE * goal


def test_an_anchor_covers_the_same_objects_only() -> None:
    anchor = Anchor(reported=10, messages=MESSAGES, tokens=10, overhead=0)
    assert anchor.covers(list(MESSAGES))
    assert not anchor.covers(MESSAGES[:1])
    assert not anchor.covers([ChatMessage.from_dict(message.to_dict()) for message in MESSAGES])
