"""What is kept for one run: never for another, never longer than the run."""

import asyncio
import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage
from haystack.hooks import FunctionHook
from hypothesis import given
from hypothesis import strategies as st
from tests.hooks.agents import (
    Colour,
    ScriptedModel,
    agent_state,
    both_colours,
    call,
    calling,
    pages,
    steps_done,
    tool,
    work,
)
from tests.hooks.parts import CountingCounter, DropOldest

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    AlwaysOffload,
    ApproximateTokenCounter,
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
)
from haybaler.hooks.record import Pause, RunRecord

RUNS = 500


def test_one_hook_serves_500_runs_at_once_and_mixes_nothing_up() -> None:
    """Each run has a store, a task and pages of its own; its prompts hold its own words only."""
    prompts: dict[str, list[list[ChatMessage]]] = {}

    def script(messages: list[ChatMessage]) -> ChatMessage:
        task = messages[0].text or ""
        prompts.setdefault(task, []).append(list(messages))
        done = steps_done(messages)
        if done >= 10:
            return ChatMessage.from_assistant(f"answer to {task}")
        return calling(call("fetch", done + 1, call_id=None, run=task))

    def page(step: int, run: str) -> str:
        return f"page {step} for {run} " * 30

    fetch = tool("fetch", page)
    fetch.parameters["properties"]["run"] = {"type": "string"}
    shared = InMemoryToolResultStore()
    agent = Agent(
        chat_generator=ScriptedModel(script),
        tools=[fetch],
        hooks={
            "before_llm": [
                CompactionHook(ToolResultOffloadCompactor(shared, min_tokens=20), context_window=900),
                CompactionHook(SlidingWindowCompactor(), context_window=900),
            ]
        },
    )
    stores = {f"task {n:03}": InMemoryToolResultStore() for n in range(RUNS)}

    async def one(task: str) -> dict[str, Any]:
        return await agent.run_async(
            [ChatMessage.from_user(task)], hook_context={RESULT_STORE_CONTEXT_KEY: stores[task]}
        )

    async def everyone() -> list[dict[str, Any]]:
        return await asyncio.gather(*map(one, stores))

    results = asyncio.run(everyone())
    assert len(shared) == 0
    for task, result in zip(stores, results, strict=True):
        assert result["last_message"].text == f"answer to {task}"
        assert all(prompt[0].text == task for prompt in prompts[task])
        for content in stores[task]._entries.values():
            assert f" for {task} " in str(content)
        for message in result["messages"]:
            for answer in message.tool_call_results:
                assert f" for {task} " in str(answer.result)
            for reference in message.meta.get("tool_result_offloaded", []):
                assert f" for {task} " in str(stores[task].read(reference))
    assert all(len(store) > 0 for store in stores.values())


@both_colours
def test_the_record_is_gone_with_the_run(colour: Colour) -> None:
    states: list[weakref.ref[State]] = []
    records: list[weakref.ref[Any]] = []

    class WeakRecord(RunRecord):
        pass

    def watch(state: State) -> None:
        states.append(weakref.ref(state))
        records.append(weakref.ref(RunRecord.of(state).counter(counter)))

    counter = CountingCounter()
    hook = CompactionHook(SlidingWindowCompactor(), context_window=1_000, token_counter=counter)
    agent = Agent(
        chat_generator=ScriptedModel(work(10)),
        tools=[tool("fetch", pages(500))],
        hooks={"before_llm": [hook, FunctionHook(function=watch)]},
    )
    colour.run(agent, "task")
    gc.collect()
    assert len(states) == 11
    assert all(state() is None for state in states)
    assert all(record() is None for record in records)


def test_the_same_hook_starts_afresh_in_the_next_run() -> None:
    hook = CompactionHook(DropOldest(), context_window=100)
    first, second = agent_state([]), agent_state([])
    assert RunRecord.of(first).pause(hook) is RunRecord.of(first).pause(hook)
    assert RunRecord.of(first).pause(hook) is not RunRecord.of(second).pause(hook)
    assert RunRecord.of(first).pause(hook) is not RunRecord.of(first).pause(
        CompactionHook(DropOldest(), context_window=9)
    )


def copied(state: State) -> State:
    return copy.deepcopy(state)


def pickled(state: State) -> State:
    restored: State = pickle.loads(pickle.dumps(state))
    return restored


@pytest.mark.parametrize("copied", [copied, pickled])
def test_a_copy_of_the_state_keeps_the_task_and_nothing_else(copied: Any) -> None:
    task = ChatMessage.from_user("task")
    state = agent_state([ChatMessage.from_system("be brief"), task])
    counter = CountingCounter()
    hook = CompactionHook(DropOldest(), context_window=100, token_counter=counter)
    hook.run(state)
    state.data["messages"].append(ChatMessage.from_user("a remark"))
    record = RunRecord.of(copied(state))
    assert record is not RunRecord.of(state)
    assert [message.text for message in record.task] == ["task"]
    assert record.anchor(counter) is None


def test_a_copied_task_is_the_message_of_the_copied_conversation() -> None:
    state = agent_state([ChatMessage.from_user("task")])
    RunRecord.of(state)
    twin = copy.deepcopy(state)
    assert RunRecord.of(twin).task[0] is twin.data["messages"][0]


def test_a_state_with_a_record_serializes_as_without() -> None:
    state = agent_state([ChatMessage.from_user("task")])
    before = state.to_dict(skip_keys=["hook_context", "tools"])
    RunRecord.of(state)
    assert state.to_dict(skip_keys=["hook_context", "tools"]) == before
    State.from_dict(before)


def test_after_success_a_hook_does_not_wait() -> None:
    pause = Pause()
    pause.after(90_000, trigger=70_000, context_window=100_000)
    assert pause.until == 91_000
    pause.after(60_000, trigger=70_000, context_window=100_000)
    assert pause == Pause()


@pytest.mark.parametrize("fill", [69_500, 70_000])
def test_each_attempt_in_vain_doubles_the_wait(fill: int) -> None:
    pause = Pause()
    waits = []
    for _ in range(4):
        pause.after(fill, trigger=70_000, context_window=100_000)
        waits.append(pause.until - fill)
    assert waits == [1_000, 2_000, 4_000, 8_000]


@given(st.lists(st.integers(69_500, 300_000), min_size=1, max_size=40))
def test_a_hook_always_waits_for_some_growth_but_not_for_much_beyond_the_middle(fills: list[int]) -> None:
    pause = Pause()
    for fill in fills:
        pause.after(fill, trigger=70_000, context_window=100_000)
        assert fill + 1_000 <= pause.until <= max(85_000, fill + 1_000)


@given(st.lists(st.integers(0, 30), min_size=1), st.integers(1, 20))
def test_a_window_of_a_few_tokens_makes_no_exception(fills: list[int], context_window: int) -> None:
    pause = Pause()
    for fill in fills:
        pause.after(fill, trigger=0.7 * context_window, context_window=context_window)
        assert pause == Pause() or pause.until > fill


@both_colours
def test_hooks_share_what_they_count_with_one_counter(colour: Colour) -> None:
    counter = CountingCounter()
    store = InMemoryToolResultStore()
    agent = Agent(
        chat_generator=ScriptedModel(work(12)),
        tools=[tool("fetch", pages(600))],
        hooks={
            "before_llm": [
                CompactionHook(SlidingWindowCompactor(), context_window=1_000, token_counter=counter),
                CompactionHook(ToolResultOffloadCompactor(store), context_window=2_000, token_counter=counter),
            ],
            "after_tool": [ToolResultOffloadHook(store, {"other": AlwaysOffload()}, token_counter=counter)],
        },
    )
    colour.run(agent, "task")
    assert max(counter.asked.values()) == 1


def test_counters_of_two_hooks_are_not_confused() -> None:
    state = agent_state([])
    record = RunRecord.of(state)
    one, two = ApproximateTokenCounter(), ApproximateTokenCounter()
    assert record.counter(one) is record.counter(one)
    assert record.counter(one) is not record.counter(two)
