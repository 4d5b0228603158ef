"""How full the window is, from the provider's figure and local counts."""

import pytest
from haystack.dataclasses import ChatMessage
from hypothesis import given
from hypothesis import strategies as st

from haybaler.calibration import FLOOR_SHARE, OVERHEAD_SHARE, SCALE_RANGE, Anchor, Calibration, anchor_at, calibrate

MESSAGES = [ChatMessage.from_user("task"), ChatMessage.from_assistant("reply")]


def test_a_small_difference_is_overhead() -> None:
    assert calibrate(1_100, 1_000, context_window=10_000) == Calibration(scale=1.0, overhead=100)


def test_a_large_difference_is_the_counters_error() -> None:
    found = calibrate(4_200, 2_000, context_window=10_000)
    assert found is not None
    assert found.overhead == OVERHEAD_SHARE * 10_000
    assert found.scale == pytest.approx(2.0)


def test_an_estimate_that_is_too_high_scales_down() -> None:
    assert calibrate(500, 1_000, context_window=10_000) == Calibration(scale=0.5, overhead=0)


@pytest.mark.parametrize(("provider", "overhead"), [(1, 0), (150, 0), (5_000, 4_850)])
def test_a_few_words_tell_nothing_about_the_scale(provider: int, overhead: int) -> None:
    """Some chat models leave tool calls out of what they report at first."""
    assert calibrate(provider, 150, context_window=10_000) == Calibration(scale=1.0, overhead=overhead)


@pytest.mark.parametrize("provider", [1, 200_000])
def test_a_figure_of_something_else_is_not_used(provider: int) -> None:
    assert calibrate(provider, 1_000, context_window=10_000) is None
    assert anchor_at(provider, MESSAGES, 1_000, last=None, context_window=10_000).tokens == 1_000


@given(
    provider=st.integers(1, 1_000_000),
    counted=st.integers(0, 1_000_000),
    context_window=st.integers(1, 2_000_000),
)
def test_the_figure_itself_comes_back_or_is_not_used(provider: int, counted: int, context_window: int) -> None:
    found = calibrate(provider, counted, context_window=context_window)
    if found is not None:
        assert SCALE_RANGE[0] <= found.scale <= SCALE_RANGE[1]
        if counted >= OVERHEAD_SHARE * context_window:
            assert 0 <= found.overhead <= OVERHEAD_SHARE * context_window
            assert abs(found.provider_tokens(counted) - provider) <= 1


@given(
    scale=st.floats(*SCALE_RANGE),
    overhead=st.integers(0, 1_000),
    goal=st.integers(1, 1_000_000),
    tools=st.integers(0, 100_000),
)
def test_a_goal_never_falls_below_the_floor_and_is_met_where_it_can_be(
    scale: float, overhead: int, goal: int, tools: int
) -> None:
    calibration = Calibration(scale, overhead)
    target = calibration.counter_tokens(goal, tools)
    floor = FLOOR_SHARE * goal / scale
    assert target >= int(floor)
    if target > floor:
        assert calibration.provider_tokens(target + tools) <= goal + 1


def test_a_figure_that_did_not_change_with_the_messages_is_not_trusted() -> None:
    last = Anchor(4_000, MESSAGES, 4_000, Calibration(2.0, 0))
    cut = anchor_at(4_000, MESSAGES[:1], 300, last=last, context_window=10_000)
    assert cut.tokens == 600
    assert cut.calibration == last.calibration


def test_a_figure_of_the_same_messages_stands() -> None:
    last = Anchor(4_000, MESSAGES, 3_900, Calibration(2.0, 0))
    assert anchor_at(4_000, list(MESSAGES), 2_000, last=last, context_window=10_000) is last


def test_equal_messages_that_are_other_objects_are_counted_again() -> None:
    last = Anchor(4_000, MESSAGES, 4_000, Calibration(2.0, 0))
    copies = [ChatMessage.from_dict(message.to_dict()) for message in MESSAGES]
    assert anchor_at(4_000, copies, 1_500, last=last, context_window=10_000).tokens == 3_000


def test_without_a_figure_everything_is_counted() -> None:
    assert anchor_at(0, MESSAGES, 700, last=None, context_window=10_000) == Anchor(0, MESSAGES, 700, Calibration())


def test_a_new_figure_for_messages_that_are_gone_since_is_not_trusted() -> None:
    last = Anchor(2_000, MESSAGES, 2_000, Calibration(2.0, 0))
    cut = anchor_at(8_000, MESSAGES, 300, last=last, context_window=1_000, sent=4_000)
    assert cut.calibration.scale == pytest.approx(2.0, rel=0.01)
    assert cut.tokens == pytest.approx(600, rel=0.05)


def test_a_new_figure_for_what_is_still_there_is_trusted_although_other_messages_went_before() -> None:
    last = Anchor(2_000, MESSAGES, 2_000, Calibration(2.0, 0))
    assert anchor_at(620, MESSAGES, 300, last=last, context_window=1_000, sent=4_000).tokens == 620
