"""The work of a compaction grows with the conversation, and no faster, whatever the conversation is like."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import ToolsType
from tests.compactors.conversations import answer
from tests.compactors.subjects import MAKERS, size_of

from haybaler import ApproximateTokenCounter, InMemoryToolResultStore
from haybaler.conversation import current_task, pair, repaired

TASK = ChatMessage.from_user("Find the answer.")
SMALL, LARGE = 100, 400
Shape = Callable[[int], list[ChatMessage]]


def call_of(number: int, call_id: str | None = None) -> ToolCall:
    return ToolCall("fetch", {"n": number}, id=call_id)


def ordinary(count: int) -> list[ChatMessage]:
    messages = [TASK]
    for number in range(count):
        call = call_of(number, f"call_{number}")
        messages += [ChatMessage.from_assistant(tool_calls=[call]), answer(call, "x" * 1000)]
    return messages


def without_ids(count: int) -> list[ChatMessage]:
    calls = [call_of(number) for number in range(count)]
    return [m for call in calls for m in (ChatMessage.from_assistant(tool_calls=[call]), answer(call, "x" * 1000))]


def crashes_and_orphans(count: int) -> list[ChatMessage]:
    crashed = [ChatMessage.from_assistant(tool_calls=[call_of(n, f"lost_{n}")]) for n in range(count)]
    return [*crashed, *(answer(call_of(n, f"orphan_{n}"), "x" * 1000) for n in range(count)), *ordinary(count)]


def all_calls_first(count: int) -> list[ChatMessage]:
    calls = [call_of(number, f"call_{number}") for number in range(count)]
    return [*(ChatMessage.from_assistant(tool_calls=[c]) for c in calls), *(answer(c, "x" * 1000) for c in calls)]


def one_large_step(count: int) -> list[ChatMessage]:
    calls = [call_of(number) for number in range(count)]
    return [ChatMessage.from_assistant(tool_calls=calls), *(answer(call, "x" * 1000) for call in calls), TASK]


def users_only(count: int) -> list[ChatMessage]:
    return [ChatMessage.from_user(f"Message {number}. " * 20) for number in range(count)]


SHAPES: list[Shape] = [ordinary, without_ids, crashes_and_orphans, all_calls_first, one_large_step, users_only]
each_shape = pytest.mark.parametrize("shape", SHAPES)


def operations(work: Callable[[], object]) -> int:
    """Return how many functions are called, and generators resumed, while something is done."""
    count = 0

    def observe(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(observe)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@each_shape
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("share", [0.1, 0.9])
def test_a_compaction_of_four_times_the_messages_takes_four_times_the_work(
    shape: Shape, name: str, share: float
) -> None:
    def compact(count: int) -> int:
        messages = shape(count)
        target = int(share * size_of(messages))
        compactor = MAKERS[name](InMemoryToolResultStore())
        return operations(lambda: compactor.compact(messages, target, ApproximateTokenCounter()))

    compact(SMALL)  # whatever is done once only
    assert compact(LARGE) < 4.4 * compact(SMALL)


@each_shape
@pytest.mark.parametrize("view", [pair, repaired, current_task])
def test_views_of_a_conversation_are_linear(shape: Shape, view: Callable[[Any], object]) -> None:
    small, large = shape(SMALL), shape(LARGE)
    assert operations(lambda: view(large)) < 4.4 * operations(lambda: view(small))


class CallCounter:
    """A counter that only notes how often it was asked."""

    counts_inline = True

    def __init__(self) -> None:
        self.calls = 0

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        self.calls += 1
        return ApproximateTokenCounter().count(messages)


@pytest.mark.parametrize("name", MAKERS)
def test_four_thousand_messages_are_counted_once_each(name: str) -> None:
    messages = ordinary(2000)
    counter: Any = CallCounter()
    compacted = MAKERS[name](InMemoryToolResultStore()).compact(messages, size_of(messages) // 2, counter)
    known = {id(message) for message in messages}
    new = sum(id(message) not in known for message in compacted or ())
    tried_notes = 5
    assert counter.calls <= len(messages) + new + tried_notes
