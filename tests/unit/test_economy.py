"""When a rewrite is worth what it costs."""

import pytest
from haystack.dataclasses import ChatMessage
from hypothesis import given
from hypothesis import strategies as st

from haybaler.economy import MINIMUM_GAIN, Limits, Pause, first_change, invalidated

LIMITS = Limits(100_000, trigger=70_000, goal=40_000)


def test_from_half_of_what_the_trigger_leaves_free_on_any_gain_is_taken() -> None:
    assert LIMITS.urgent == 85_000
    assert LIMITS.minimum_gain(84_999) == MINIMUM_GAIN
    assert LIMITS.minimum_gain(85_000) == 0.0


def test_a_trigger_at_the_end_of_the_window_leaves_nothing_to_wait_for() -> None:
    assert Limits(100, trigger=100.0, goal=40.0).minimum_gain(100) == 0.0


def test_after_success_a_hook_does_not_wait() -> None:
    pause = Pause()
    pause.after(90_000, LIMITS)
    assert pause.until == 91_000
    pause.after(60_000, LIMITS)
    assert pause == Pause()


@pytest.mark.parametrize("fill", [69_500, 70_000])
def test_each_attempt_in_vain_doubles_the_wait(fill: int) -> None:
    pause = Pause()
    waits = []
    for _ in range(4):
        pause.after(fill, LIMITS)
        waits.append(pause.until - fill)
    assert waits == [1_000, 2_000, 4_000, 8_000]


@given(st.lists(st.integers(69_500, 300_000), min_size=1, max_size=40))
def test_a_hook_always_waits_for_some_growth_but_not_for_much_beyond_the_middle(fills: list[int]) -> None:
    pause = Pause()
    for fill in fills:
        pause.after(fill, LIMITS)
        assert fill + 1_000 <= pause.until <= max(85_000, fill + 1_000)


@given(st.lists(st.integers(0, 30), min_size=1), st.integers(1, 20))
def test_a_window_of_a_few_tokens_makes_no_exception(fills: list[int], window: int) -> None:
    pause = Pause()
    for fill in fills:
        pause.after(fill, Limits(window, trigger=0.7 * window, goal=0.4 * window))
        assert pause == Pause() or pause.until > fill


MESSAGES = [
    ChatMessage.from_user("task"),
    ChatMessage.from_assistant("first reply"),
    ChatMessage.from_user("go on"),
    ChatMessage.from_assistant("second reply"),
    ChatMessage.from_user("and on"),
]
SIZES = [1, 10, 100, 1_000, 10_000]


@pytest.mark.parametrize(("first", "tokens"), [(0, 111), (1, 110), (2, 100), (3, 0), (4, 0)])
def test_what_the_last_request_had_from_the_first_change_on_is_invalidated(first: int, tokens: int) -> None:
    assert invalidated(MESSAGES, SIZES, first) == tokens


def test_where_no_request_was_made_nothing_is_invalidated() -> None:
    assert invalidated(MESSAGES[:1], SIZES[:1], 0) == 0
    assert invalidated([], [], 0) == 0


@pytest.mark.parametrize(
    ("kept", "first"), [((0, 1, 2), 3), ((0, 2, 3, 4), 1), ((), 0), ((0, 1, 2, 3, 4), 5), ((0, 1, 4), 2)]
)
def test_a_conversation_changes_where_a_message_is_another_one(kept: tuple[int, ...], first: int) -> None:
    assert first_change(MESSAGES, [MESSAGES[index] for index in kept]) == first


def test_an_equal_copy_is_no_change() -> None:
    copies = [ChatMessage.from_dict(message.to_dict()) for message in MESSAGES]
    assert first_change(MESSAGES, copies) == len(MESSAGES)
    assert first_change(MESSAGES, [*copies[:2], ChatMessage.from_user("another")]) == 2
