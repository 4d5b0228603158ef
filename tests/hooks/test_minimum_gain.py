"""Nothing is rewritten, and nothing written to a store, for too little."""

from collections.abc import Callable
from typing import Any

import pytest
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage
from tests.hooks.agents import Colour, agent_state, answered, both_colours, call, calling, conversation, pages
from tests.hooks.parts import CountingCounter, DropOldest, size_of

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    CompactionHook,
    InMemoryToolResultStore,
    ToolResultOffloadCompactor,
    ToolResultPruningCompactor,
)
from haybaler.errors import StoreError
from haybaler.hooks.context import MINIMUM_GAIN_CONTEXT_KEY
from haybaler.references import OFFLOADED_META
from haybaler.testing import Fault, FaultyStore

pytestmark = both_colours

WINDOW = 10_000


def step(number: int, *, argument: int, result: int) -> list[ChatMessage]:
    """Return a step; sizes in tokens."""
    made = call("fetch", number, text="x" * 4 * argument)
    return [calling(made), answered(made, pages(4 * result)(step=number))]


def little_to_gain(*, fill: float = 0.75) -> list[ChatMessage]:
    """Return a conversation of large arguments, in which one early result of 500 tokens could go."""
    messages = [ChatMessage.from_user("task"), *step(1, argument=10, result=500)]
    number = 2
    while sum(map(size_of, messages)) < fill * WINDOW:
        messages += step(number, argument=500, result=10)
        number += 1
    return messages


def much_to_gain() -> list[ChatMessage]:
    """As above, but the result that could go has more than a quarter of what stands behind it."""
    few = [message for number in range(2, 5) for message in step(number, argument=400, result=10)]
    return [ChatMessage.from_user("x" * 4 * 4_500), *step(1, argument=10, result=1_500), *few]


def run(colour: Colour, compactor: Any, messages: list[ChatMessage]) -> State:
    state = agent_state(messages)
    hook = CompactionHook(compactor, context_window=WINDOW, token_counter=CountingCounter())
    colour.call(hook, "run", state)
    return state


def offloading(store: Any) -> ToolResultOffloadCompactor:
    return ToolResultOffloadCompactor(store, preview_chars=0)


MAKERS: dict[str, Callable[[Any], Any]] = {"pruning": lambda store: ToolResultPruningCompactor(), "offload": offloading}
each_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@each_maker
def test_too_little_is_left_alone_and_never_written(colour: Colour, make: Callable[[Any], Any]) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    messages = little_to_gain()
    assert conversation(run(colour, make(store), messages)) == messages
    assert store.calls.total() == 0


@each_maker
def test_near_the_end_of_the_window_any_gain_is_taken(colour: Colour, make: Callable[[Any], Any]) -> None:
    messages = little_to_gain(fill=0.85)
    now = conversation(run(colour, make(InMemoryToolResultStore()), messages))
    assert [i for i, (a, b) in enumerate(zip(messages, now, strict=True)) if a is not b] == [2]


@each_maker
def test_a_quarter_of_the_changed_prompt_is_enough(colour: Colour, make: Callable[[Any], Any]) -> None:
    messages = much_to_gain()
    assert 0.7 * WINDOW <= sum(map(size_of, messages)) < 0.85 * WINDOW
    now = conversation(run(colour, make(InMemoryToolResultStore()), messages))
    assert [i for i, (a, b) in enumerate(zip(messages, now, strict=True)) if a is not b] == [2]
    assert sum(map(size_of, now)) > 0.4 * WINDOW


@each_maker
def test_called_directly_a_compactor_comes_as_near_to_the_target_as_it_can(
    colour: Colour, make: Callable[[Any], Any]
) -> None:
    messages = little_to_gain()
    compactor = make(InMemoryToolResultStore())
    compacted = colour.call(compactor, "compact", messages, 100, CountingCounter())
    assert [i for i, (a, b) in enumerate(zip(messages, compacted, strict=True)) if a is not b] == [2]


def test_a_small_gain_that_reaches_the_target_is_taken(colour: Colour) -> None:
    """The trigger lies directly above the target."""
    messages = little_to_gain()
    state = agent_state(messages)
    total = sum(map(size_of, messages))
    hook = CompactionHook(
        ToolResultPruningCompactor(),
        context_window=WINDOW,
        compact_at=total / WINDOW,
        compact_to=(total - 300) / WINDOW,
        token_counter=CountingCounter(),
    )
    colour.call(hook, "run", state)
    assert conversation(state) != messages


def test_somebodys_rewrite_for_too_little_is_discarded(colour: Colour) -> None:
    class DropSecond(DropOldest):
        def compact(
            self, messages: list[ChatMessage], target_tokens: int, token_counter: Any
        ) -> list[ChatMessage] | None:
            super().compact(messages, target_tokens, token_counter)
            return [messages[0], *messages[3:]]

    compactor, messages = DropSecond(), little_to_gain()
    assert conversation(run(colour, compactor, messages)) == messages
    assert len(compactor.targets) == 1


class Growing(DropOldest):
    """Breaks the contract: gives back more than it got."""

    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        return [*messages, ChatMessage.from_user("more")]


@pytest.mark.parametrize("fill", [0.75, 0.9])
def test_a_rewrite_that_is_larger_is_never_taken(colour: Colour, fill: float) -> None:
    messages = little_to_gain(fill=fill)
    assert conversation(run(colour, Growing(), messages)) == messages


class Storing(DropOldest):
    """Stores a result as a compactor does that knows nothing of a minimum."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        origin = messages[self.index].tool_call_results[0].origin
        pointer = answered(origin, "stored somewhere", tool_result_offloaded=["somewhere"])
        return [*messages[: self.index], pointer, *messages[self.index + 1 :]]


def test_what_somebodys_compactor_has_stored_by_then_is_not_stored_in_vain(colour: Colour) -> None:
    messages = little_to_gain()
    now = conversation(run(colour, Storing(2), messages))
    assert now[2].meta[OFFLOADED_META] == ["somewhere"]


def test_a_compactor_bound_to_a_minimum_keeps_it_beside_the_runs_store(colour: Colour) -> None:
    own = InMemoryToolResultStore()
    bound = offloading(InMemoryToolResultStore()).for_run(
        {RESULT_STORE_CONTEXT_KEY: own, MINIMUM_GAIN_CONTEXT_KEY: 0.25}
    )
    assert colour.call(bound, "compact", little_to_gain(), 100, CountingCounter()) is None
    assert colour.call(bound, "compact", much_to_gain(), 100, CountingCounter()) is not None
    assert len(own) == 1
    assert bound.to_dict() == offloading(own).to_dict()


def test_what_was_stored_for_something_larger_is_not_taken_either(colour: Colour) -> None:
    messages = [*little_to_gain(), *step(99, argument=1, result=1)]
    assert conversation(run(colour, Storing(len(messages) - 1), messages)) == messages


def test_what_is_confirmed_of_a_batch_is_kept_however_little_it_is(colour: Colour) -> None:
    """Two results are enough together; the write of the larger one fails."""
    messages = [
        ChatMessage.from_user("x" * 4 * 4_500),
        *step(1, argument=10, result=300),
        *step(2, argument=10, result=1_500),
        *step(3, argument=1_000, result=10),
        *step(4, argument=10, result=10),
    ]
    store = FaultyStore(InMemoryToolResultStore(), writes={2: Fault(error=StoreError("refused"))})
    now = conversation(run(colour, offloading(store), messages))
    assert [i for i, (a, b) in enumerate(zip(messages, now, strict=True)) if a is not b] == [2]
    reference = now[2].meta[OFFLOADED_META][0]
    assert store.read(reference) == messages[2].tool_call_results[0].result
