"""When `CompactionHook` compacts, what it asks a compactor for, and what it leaves in the State."""

import logging
import weakref
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from tests.freed import until_freed
from tests.hooks.agents import (
    Colour,
    ScriptedModel,
    agent_state,
    answered,
    both_colours,
    call,
    calling,
    conversation,
    pages,
    tool,
    work,
)
from tests.hooks.parts import CountingCounter, DropOldest, size_of

from haybaler import ApproximateTokenCounter, CompactionHook, SlidingWindowCompactor
from haybaler.errors import ConfigurationError
from haybaler.hooks.record import RunRecord

pytestmark = both_colours

WINDOW = 1_000


def steps(number: int, characters: int = 400) -> list[ChatMessage]:
    """Return a task and a number of steps; each result has a quarter of its characters in tokens."""
    messages = [ChatMessage.from_user("task")]
    for step in range(1, number + 1):
        made = call("fetch", step)
        messages += [calling(made), answered(made, pages(characters)(step=step))]
    return messages


def hook(compactor: Any, counter: Any = None, **settings: Any) -> CompactionHook:
    settings = {"context_window": WINDOW, "token_counter": counter or CountingCounter(), **settings}
    return CompactionHook(compactor, **settings)


def total(messages: list[ChatMessage]) -> int:
    return sum(map(size_of, messages))


def test_below_the_trigger_nothing_happens(colour: Colour) -> None:
    compactor = DropOldest()
    state = agent_state(steps(6))
    before = conversation(state)
    colour.call(hook(compactor), "run", state)
    assert total(before) < 0.7 * WINDOW
    assert compactor.targets == []
    assert conversation(state) is before


@pytest.mark.parametrize(("filling", "triggered"), [(-1, False), (0, True), (1, True)])
def test_compaction_begins_at_exactly_the_trigger(colour: Colour, filling: int, triggered: bool) -> None:
    compactor = DropOldest()
    messages = steps(6)
    missing = int(0.7 * WINDOW) - total(messages) + filling
    messages.append(ChatMessage.from_user("x" * 4 * missing))
    colour.call(hook(compactor), "run", agent_state(messages))
    assert bool(compactor.targets) is triggered


def test_without_a_figure_the_target_leaves_room_for_the_tools(colour: Colour) -> None:
    compactor = DropOldest()
    tools = [tool("fetch", pages(1)), tool("list", pages(1))]
    colour.call(hook(compactor, CountingCounter(tokens_per_tool=50)), "run", agent_state(steps(8), tools=tools))
    assert compactor.targets == [int(0.4 * WINDOW) - 2 * 50]


def test_tools_count_towards_the_trigger_once(colour: Colour) -> None:
    compactor = DropOldest()
    messages = steps(5)
    missing = int(0.7 * WINDOW) - total(messages)
    fitting = [tool("fetch", pages(1))]
    colour.call(
        hook(compactor, CountingCounter(tokens_per_tool=missing - 1)), "run", agent_state(messages, tools=fitting)
    )
    assert compactor.targets == []
    colour.call(hook(compactor, CountingCounter(tokens_per_tool=missing)), "run", agent_state(messages, tools=fitting))
    assert len(compactor.targets) == 1


def test_the_figure_counts_for_all_up_to_the_last_reply_and_tools_are_in_it(colour: Colour) -> None:
    compactor = DropOldest()
    messages = steps(3)
    fresh = size_of(messages[-1])
    tools = [tool("fetch", pages(1))]
    counter = CountingCounter(tokens_per_tool=20)
    accounted = total(messages[:-1]) + 20
    triggering = int(0.7 * WINDOW)
    # The provider sees twice what the counter sees, so the fresh result will be twice as large, too.
    scaled = round(fresh * (triggering / accounted))
    colour.call(
        hook(compactor, counter), "run", agent_state(messages, context_tokens=triggering - scaled - 60, tools=tools)
    )
    assert compactor.targets == []
    colour.call(hook(compactor, counter), "run", agent_state(messages, context_tokens=triggering, tools=tools))
    assert len(compactor.targets) == 1


def test_the_target_and_the_sizes_are_in_the_providers_tokens(colour: Colour) -> None:
    sizes = []

    class Sizing(DropOldest):
        def compact(
            self, messages: list[ChatMessage], target_tokens: int, token_counter: Any
        ) -> list[ChatMessage] | None:
            sizes.append(token_counter.count(messages[:-1]))
            return super().compact(messages, target_tokens, token_counter)

    compactor = Sizing()
    messages = steps(4)
    accounted = total(messages[:-1])
    colour.call(hook(compactor), "run", agent_state(messages, context_tokens=2 * accounted + 20))
    assert compactor.targets == [round(0.4 * WINDOW) - 20]  # 2 % of the window is overhead
    assert sizes == [2 * accounted]


def test_a_counter_that_sees_far_too_little_does_not_empty_the_conversation(colour: Colour) -> None:
    counter = CountingCounter()
    messages = steps(60, characters=30)  # a tenth of the window, as the counter sees it
    state = agent_state(messages, context_tokens=800)
    colour.call(hook(SlidingWindowCompactor(), counter), "run", state)
    share = total(conversation(state)) / total(messages)
    assert 0.35 <= share <= 0.5
    assert 300 <= state.data["context_tokens"] <= 400


def test_a_compacted_conversation_updates_the_figure(colour: Colour) -> None:
    messages = steps(8)
    state = agent_state(messages, context_tokens=total(messages[:-1]))
    colour.call(hook(DropOldest(keep=2)), "run", state)
    kept = conversation(state)
    assert len(kept) == 3
    assert state.data["context_tokens"] == total(kept[:-1])


def test_without_a_figure_none_is_made_up(colour: Colour) -> None:
    state = agent_state(steps(8))
    colour.call(hook(DropOldest(keep=2)), "run", state)
    assert len(conversation(state)) == 3
    assert state.data["context_tokens"] == 0


def test_hooks_in_a_list_each_measure_what_the_one_before_left(colour: Colour) -> None:
    for reported in (0, total(steps(8)[:-1])):
        second = DropOldest(keep=2)
        state = agent_state(steps(8), context_tokens=reported)
        shared = CountingCounter()
        hooks = [hook(DropOldest(keep=12), shared), hook(second, shared), hook(DropOldest(keep=1), CountingCounter())]
        for part in hooks:
            colour.call(part, "run", state)
        # The first leaves 6 whole steps, which is below the trigger, so the others have nothing to do.
        assert second.targets == []
        assert len(conversation(state)) == 13


def test_the_second_hook_takes_over_where_the_first_is_not_enough(colour: Colour) -> None:
    for counter in (CountingCounter(), None):
        state = agent_state(steps(10), context_tokens=total(steps(10)[:-1]))
        shared = CountingCounter()
        colour.call(hook(DropOldest(keep=16), shared), "run", state)
        left = state.data["context_tokens"]
        last = DropOldest(keep=2)
        colour.call(hook(last, counter or shared), "run", state)
        assert left == total(steps(10)[5:-1]) + size_of(steps(0)[0])
        assert last.targets == [int(0.4 * WINDOW)]
        assert len(conversation(state)) == 3


def test_a_figure_that_somebody_left_behind_is_counted_again(colour: Colour) -> None:
    compactor = DropOldest()
    state = agent_state(steps(6), context_tokens=total(steps(6)[:-1]))
    watching = hook(compactor)
    colour.call(watching, "run", state)
    state.data["messages"] = [*conversation(state)[:1], *conversation(state)[-2:]]
    state.data["messages"].append(ChatMessage.from_user("x" * 4 * 300))
    colour.call(watching, "run", state)
    assert compactor.targets == []  # 100 + 300 tokens, although the figure alone says 500


def test_a_reply_without_a_figure_is_counted(colour: Colour) -> None:
    compactor = DropOldest()
    messages = steps(4)
    state = agent_state(messages, context_tokens=total(messages[:-1]))
    watching = hook(compactor)
    colour.call(watching, "run", state)
    state.data["messages"] = [*messages, *steps(8)[9:]]
    colour.call(watching, "run", state)
    assert len(compactor.targets) == 1


def test_no_message_is_counted_twice(colour: Colour) -> None:
    counter = CountingCounter()
    state = agent_state(steps(20))
    watching = hook(SlidingWindowCompactor(), counter)
    for step in range(21, 30):
        colour.call(watching, "run", state)
        made = call("fetch", step)
        state.data["messages"] = [*conversation(state), calling(made), answered(made, pages(400)(step=step))]
    assert max(counter.asked.values()) == 1


def test_tools_are_sized_once_as_long_as_they_are_the_same(colour: Colour) -> None:
    counter = CountingCounter()
    tools = [tool("fetch", pages(1))]
    state = agent_state(steps(2), tools=tools)
    watching = hook(DropOldest(), counter)
    for _ in range(3):
        colour.call(watching, "run", state)
        state.data["tools"] = list(tools)
    assert counter.tools_asked == 1
    state.data["tools"] = [*tools, tool("list", pages(1))]
    colour.call(watching, "run", state)
    assert counter.tools_asked == 2


def test_a_first_figure_after_a_compaction_is_compared_with_what_is_left(colour: Colour) -> None:
    """The figure happens to be as large as the count of what was there before."""
    counter = CountingCounter()
    state = agent_state(steps(8))
    watching = hook(DropOldest(keep=2), counter)
    colour.call(watching, "run", state)
    made = call("fetch", 9)
    reported = total(steps(8)) + size_of(calling(made))
    state.set("messages", [calling(made), answered(made, "short")])
    state.set("context_tokens", reported)
    colour.call(watching, "run", state)
    anchor = RunRecord.of(state).anchor(counter)
    assert anchor is not None
    assert anchor.overhead > reported / 2  # no text of three messages explains it


def test_what_was_removed_is_not_held_on_to(colour: Colour) -> None:
    state = agent_state(steps(8))
    removed = weakref.ref(conversation(state)[1])
    watching = hook(DropOldest(keep=2), ApproximateTokenCounter())
    colour.call(watching, "run", state)
    colour.call(watching, "run", state)
    until_freed([removed])


def test_a_function_that_returns_a_coroutine_is_awaited_where_that_is_possible(
    colour: Colour, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrapped:
        def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> Any:
            async def compacted() -> list[ChatMessage]:
                return messages[:1]

            return compacted()

    state = agent_state(steps(8))
    with caplog.at_level(logging.WARNING):
        colour.call(hook(Wrapped()), "run", state)
    assert len(conversation(state)) == (1 if colour is Colour.ASYNC else 17)
    assert len(caplog.records) == (0 if colour is Colour.ASYNC else 1)


class Failing(DropOldest):
    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        raise RuntimeError("secret content")


class Nonsense(DropOldest):
    """Returns something that is no conversation."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> Any:
        return self.value


class Unbindable(DropOldest):
    def for_run(self, hook_context: Any) -> "Unbindable":
        raise KeyError("secret content")


@pytest.mark.parametrize(
    "compactor",
    [
        Failing(),
        Unbindable(),
        Nonsense(7),
        Nonsense("text"),
        Nonsense([{"role": "user"}]),
        Nonsense(object()),
        Nonsense([]),
    ],
    ids=["raises", "cannot be bound", "number", "text", "dicts", "object", "nothing"],
)
def test_a_compactor_that_fails_leaves_the_conversation_and_one_warning(
    colour: Colour, compactor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    state = agent_state(steps(8))
    before = list(conversation(state))
    with caplog.at_level(logging.WARNING):
        colour.call(hook(compactor), "run", state)
    assert conversation(state) == before
    assert len(caplog.records) == 1
    assert "secret content" not in str(caplog.records[0].__dict__)


class Clearing(DropOldest):
    """Breaks the contract: takes messages out of the list that it was given."""

    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        messages.clear()
        return None


def test_a_compactor_that_empties_its_list_does_not_empty_the_conversation(colour: Colour) -> None:
    state = agent_state(steps(8))
    colour.call(hook(Clearing()), "run", state)
    assert len(conversation(state)) == 17


class Splitting(DropOldest):
    """Breaks the contract: leaves a result without its call."""

    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        return [messages[0], *messages[-3:]]


def test_a_result_without_its_call_never_reaches_the_model(colour: Colour) -> None:
    state = agent_state(steps(8))
    colour.call(hook(Splitting()), "run", state)
    assert conversation(state) == [steps(0)[0], *steps(8)[-2:]]


def test_the_compactor_gets_the_runs_context_and_its_task(colour: Colour) -> None:
    seen: list[dict[str, Any]] = []

    class Bound(DropOldest):
        def for_run(self, hook_context: Any) -> DropOldest:
            seen.append(dict(hook_context))
            return DropOldest(keep=2)

    state = agent_state(steps(8), hook_context={"tenant": 7})
    colour.call(hook(Bound()), "run", state)
    assert seen[0]["tenant"] == 7
    assert len(conversation(state)) == 3
    assert "haybaler_run_task" not in state.data["hook_context"]


def test_an_empty_conversation_is_left_alone(colour: Colour) -> None:
    compactor = DropOldest()
    state = agent_state([])
    colour.call(hook(compactor), "run", state)
    del state.data["messages"]
    colour.call(hook(compactor), "run", state)
    assert compactor.targets == []


@pytest.mark.parametrize("context_window", [0, -1])
def test_a_window_that_is_not_positive_is_refused(colour: Colour, context_window: int) -> None:
    with pytest.raises(ConfigurationError, match="context_window"):
        CompactionHook(DropOldest(), context_window=context_window)


@pytest.mark.parametrize(("compact_at", "compact_to"), [(0.4, 0.4), (0.4, 0.7), (1.1, 0.4), (0.7, 0.0), (0.7, -0.1)])
def test_fractions_out_of_order_are_refused(colour: Colour, compact_at: float, compact_to: float) -> None:
    with pytest.raises(ConfigurationError, match="compact_at"):
        CompactionHook(DropOldest(), context_window=10, compact_at=compact_at, compact_to=compact_to)


@pytest.mark.parametrize("point", ["before_run", "before_tool", "after_tool", "on_exit", "after_run"])
def test_an_agent_takes_the_hook_before_the_model_only(colour: Colour, point: Any) -> None:
    model = ScriptedModel(work(0))
    with pytest.raises(ValueError, match="before_llm"):
        Agent(chat_generator=model, hooks={point: [hook(DropOldest())]})
    colour.run(Agent(chat_generator=model, hooks={"before_llm": [hook(DropOldest())]}), "task")


def test_a_second_look_at_4002_messages_counts_nothing_but_what_is_new(colour: Colour) -> None:
    counter = CountingCounter()
    messages = [*steps(2_000), ChatMessage.from_user("go on")]
    state = agent_state(messages, tools=[tool("fetch", pages(1))])
    watching = hook(DropOldest(), counter, context_window=10_000_000)
    colour.call(watching, "run", state)
    assert counter.calls == len(messages) + 1 == 4_003
    colour.call(watching, "run", state)
    assert counter.calls == 4_003
    made = call("fetch", 5_000)
    state.set("messages", [calling(made), answered(made, "fresh")])
    colour.call(watching, "run", state)
    assert counter.calls == 4_005
