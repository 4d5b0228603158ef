"""`CompactionHook` on real Agents: what the model sees, and that nothing blocks."""

import asyncio
import logging
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage
from haystack.hooks import FunctionHook
from tests.hooks.agents import Colour, ScriptedModel, Usage, both_colours, pages, tool, unpaired, work
from tests.hooks.parts import CountingCounter, DropOldest, size_of

from haybaler import (
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultPruningCompactor,
)
from haybaler.references import is_offloaded

WINDOW = 8_000


def total(messages: list[ChatMessage]) -> int:
    return sum(map(size_of, messages))


def exact_usage(messages: list[ChatMessage], reply: ChatMessage) -> dict[str, int]:
    return {"prompt_tokens": total(messages), "completion_tokens": size_of(reply)}


def generous_usage(messages: list[ChatMessage], reply: ChatMessage) -> dict[str, int]:
    """As a provider that sees three times what the counter sees."""
    return {"prompt_tokens": 3 * total(messages), "completion_tokens": 3 * size_of(reply)}


def agent(model: ScriptedModel, *hooks: Any, **settings: Any) -> Agent:
    settings = {"tools": [tool("fetch", pages(2_400))], **settings}
    return Agent(chat_generator=model, hooks={"before_llm": list(hooks)}, **settings)


def hook(compactor: Any, **settings: Any) -> CompactionHook:
    return CompactionHook(compactor, **{"context_window": WINDOW, "token_counter": CountingCounter(), **settings})


COMPACTORS = {
    "sliding window": SlidingWindowCompactor,
    "pruning": ToolResultPruningCompactor,
    "offloading": lambda: ToolResultOffloadCompactor(InMemoryToolResultStore()),
}


@both_colours
@pytest.mark.parametrize("compactor", COMPACTORS.values(), ids=COMPACTORS)
@pytest.mark.parametrize("usage", [None, exact_usage], ids=["no figures", "figures"])
def test_a_long_run_stays_within_the_window(colour: Colour, compactor: Any, usage: Usage | None) -> None:
    model = ScriptedModel(work(40, calls=1), usage=usage)
    result = colour.run(agent(model, hook(compactor())), "task")
    assert result["last_message"].text == "The answer."
    assert len(model.prompts) == 41
    assert max(map(total, model.prompts)) <= 0.8 * WINDOW
    assert all(prompt[0].text == "task" for prompt in model.prompts)
    assert all(unpaired(prompt) == [] for prompt in model.prompts)


@both_colours
def test_the_window_holds_in_the_providers_tokens(colour: Colour) -> None:
    model = ScriptedModel(work(40), usage=generous_usage)
    colour.run(agent(model, hook(ToolResultPruningCompactor(min_tokens=200))), "task")
    assert 3 * total(model.prompts[-1]) >= 0.3 * WINDOW
    assert max(3 * total(prompt) for prompt in model.prompts[3:]) <= 0.9 * WINDOW


@both_colours
def test_figures_that_come_only_now_and_then_do(colour: Colour) -> None:
    def sometimes(messages: list[ChatMessage], reply: ChatMessage) -> dict[str, int]:
        return exact_usage(messages, reply) if len(model.prompts) % 3 == 0 else {}

    model = ScriptedModel(work(40), usage=sometimes)
    colour.run(agent(model, hook(ToolResultPruningCompactor(min_tokens=200))), "task")
    assert max(map(total, model.prompts)) <= 0.8 * WINDOW


def cutting(at: int, keep: int) -> FunctionHook:
    """Return somebody's hook that cuts the conversation now and then, and says so to nobody."""

    def cut(state: State) -> None:
        messages = state.data["messages"]
        state.data["messages"] = [messages[0], *messages[-keep:]] if len(messages) >= at else messages

    return FunctionHook(function=cut)


FIGURES = pytest.mark.parametrize(
    "usage", [None, exact_usage, generous_usage], ids=["no figures", "figures", "high figures"]
)


@both_colours
@FIGURES
@pytest.mark.parametrize("keep", [2, 10])
def test_what_a_hook_before_has_cut_is_not_cut_again(colour: Colour, usage: Usage | None, keep: int) -> None:
    """The figure is that of the conversation before the cut, which was just below the trigger."""
    compactor = DropOldest()
    model = ScriptedModel(work(40), usage=usage)
    scale = 3 if usage is generous_usage else 1
    cut = cutting(at=19, keep=keep)
    colour.run(agent(model, cut, hook(compactor, context_window=scale * WINDOW)), "task")
    assert 0.5 * WINDOW < max(map(total, model.prompts)) < 0.7 * WINDOW
    assert compactor.targets == []


@both_colours
@FIGURES
def test_what_a_later_hook_cuts_is_seen_at_the_next_step(colour: Colour, usage: Usage | None) -> None:
    compactor = DropOldest()
    model = ScriptedModel(work(40), usage=usage)
    scale = 3 if usage is generous_usage else 1
    cut = cutting(at=17, keep=4)
    colour.run(agent(model, hook(compactor, context_window=scale * WINDOW), cut), "task")
    assert 0.5 * WINDOW < max(map(total, model.prompts)) < 0.7 * WINDOW
    assert compactor.targets == []


class Raising(DropOldest):
    attempts = 0

    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        self.attempts += 1
        raise ConnectionError("the summarizer is away")


@both_colours
def test_a_compactor_that_always_fails_neither_ends_the_run_nor_is_asked_at_every_step(
    colour: Colour, caplog: pytest.LogCaptureFixture
) -> None:
    compactor = Raising()
    model = ScriptedModel(work(90))
    with caplog.at_level(logging.WARNING):
        result = colour.run(agent(model, hook(compactor, context_window=60_000)), "task")
    assert result["last_message"].text == "The answer."
    assert sum(total(prompt) >= 0.7 * 60_000 for prompt in model.prompts) > 20
    assert 1 <= compactor.attempts <= 10
    assert len(caplog.records) == compactor.attempts


@both_colours
def test_a_target_out_of_reach_costs_few_rewrites(colour: Colour) -> None:
    """Large arguments of calls stay, so pruning never comes near its target."""

    def script(messages: list[ChatMessage]) -> ChatMessage:
        reply = work(200)(messages)
        for made in reply.tool_calls:
            made.arguments["query"] = "x" * 2_400
        return reply

    model = ScriptedModel(script)
    attempts: list[int] = []

    class Watched(ToolResultPruningCompactor):
        def for_run(self, hook_context: Any) -> "Watched":
            attempts.append(len(model.prompts))
            return self

    window = 150_000
    colour.run(agent(model, hook(Watched(min_tokens=200), context_window=window), max_agent_steps=300), "task")
    changed = [
        n
        for n in range(1, len(model.prompts))
        if any(a is not b for a, b in zip(model.prompts[n], model.prompts[n - 1], strict=False))
    ]
    assert len(model.prompts) == 201
    assert sum(total(prompt) >= 0.7 * window for prompt in model.prompts) > 30
    assert 1 <= len(changed) <= 20
    assert len(attempts) <= 20


@pytest.mark.anyio
async def test_an_asynchronous_run_awaits_the_native_form() -> None:
    awaited: list[asyncio.Task[Any] | None] = []

    class Native(DropOldest):
        def compact(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("the synchronous form was called")

        async def compact_async(
            self, messages: list[ChatMessage], target_tokens: int, token_counter: Any
        ) -> list[ChatMessage] | None:
            awaited.append(asyncio.current_task())
            await asyncio.sleep(0)
            return DropOldest.compact(self, messages, target_tokens, token_counter)

    model = ScriptedModel(work(30))
    await agent(model, hook(Native())).run_async([ChatMessage.from_user("task")])
    assert set(awaited) == {asyncio.current_task()}


@both_colours
def test_a_compactor_with_a_synchronous_method_and_nothing_else_will_do(colour: Colour) -> None:
    class Least:
        def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage]:
            return [messages[0], *messages[-2:]]

    model = ScriptedModel(work(30))
    colour.run(agent(model, hook(Least())), "task")
    assert max(map(total, model.prompts)) < WINDOW


@pytest.mark.anyio
async def test_a_compactor_that_blocks_does_not_block_the_loop() -> None:
    """The loop guard raises if anything sleeps on the loop."""
    import time

    class Slow(DropOldest):
        def compact(
            self, messages: list[ChatMessage], target_tokens: int, token_counter: Any
        ) -> list[ChatMessage] | None:
            time.sleep(0.001)
            return super().compact(messages, target_tokens, token_counter)

    class SlowCounter(CountingCounter):
        counts_inline = False

        def count(self, messages: list[ChatMessage], tools: Any = None) -> int:
            time.sleep(0.0001)
            return super().count(messages, tools)

    compactor = Slow()
    model = ScriptedModel(work(14))
    await agent(model, hook(compactor, token_counter=SlowCounter())).run_async([ChatMessage.from_user("task")])
    assert compactor.targets


@both_colours
def test_the_offloading_compactor_writes_to_the_runs_own_store(colour: Colour) -> None:
    """The store of the run, not the one that all runs share."""
    shared, own = InMemoryToolResultStore(), InMemoryToolResultStore()
    model = ScriptedModel(work(20))
    result = colour.run(
        agent(model, hook(ToolResultOffloadCompactor(shared, min_tokens=200))),
        "task",
        hook_context={"tool_result_store": own},
    )
    references = [m.meta["tool_result_offloaded"][0] for m in result["messages"] if is_offloaded(m)]
    assert len(own) == len(references) > 0
    assert len(shared) == 0
    assert own.read(references[0]) == pages(2_400)(step=1)


@both_colours
def test_a_context_window_full_of_chinese_is_emptied_to_the_target_and_no_further(colour: Colour) -> None:
    """The counter sees 0.4 of what the provider sees."""

    def provider(messages: list[ChatMessage]) -> int:
        return int(2.6 * total(messages))

    model = ScriptedModel(
        work(100),
        usage=lambda messages, reply: {"prompt_tokens": provider(messages), "completion_tokens": provider([reply])},
    )
    window = 40_000
    colour.run(agent(model, hook(SlidingWindowCompactor(), context_window=window)), "task")
    after = [b for a, b in zip(model.prompts, model.prompts[1:], strict=False) if len(b) < len(a)]
    assert after
    for prompt in after:
        assert 0.35 * window <= provider(prompt) <= 0.42 * window
