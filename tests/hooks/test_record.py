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
from tests.freed import until_freed
from tests.hooks.agents import (
    Colour,
    ScriptedModel,
    agent_state,
    answered,
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
    OffloadOverTokens,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
)
from haybaler.hooks.record import RunRecord

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
    assert len(states) == 11
    until_freed([*states, *records])


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


def test_the_task_is_what_it_was_at_the_beginning() -> None:
    state = agent_state([ChatMessage.from_user("task")])
    hook = CompactionHook(DropOldest(), context_window=100)
    for remark in ("a remark", "another"):
        hook.run(state)
        state.data["messages"] += [ChatMessage.from_assistant("an answer"), ChatMessage.from_user(remark)]
    assert [message.text for message in RunRecord.of(state).task] == ["task"]


def test_a_copied_task_is_the_message_of_the_copied_conversation() -> None:
    state = agent_state([ChatMessage.from_user("task")])
    RunRecord.of(state).find_task(state.data["messages"])
    twin = copy.deepcopy(state)
    assert RunRecord.of(twin).task[0] is twin.data["messages"][0]


def test_a_state_with_a_record_serializes_as_without() -> None:
    state = agent_state([ChatMessage.from_user("task")])
    before = state.to_dict(skip_keys=["hook_context", "tools"])
    RunRecord.of(state)
    assert state.to_dict(skip_keys=["hook_context", "tools"]) == before
    State.from_dict(before)


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


@both_colours
def test_4002_messages_are_counted_once_by_all_hooks_together(colour: Colour) -> None:
    counter = CountingCounter()
    store = InMemoryToolResultStore()
    started = [ChatMessage.from_user("task"), ChatMessage.from_user("and quickly")]
    steps = [(call("fetch", n), pages(40)(step=n)) for n in range(2_000)]
    started += [m for made, page in steps for m in (calling(made), answered(made, page))]
    state = agent_state(started)
    watching = [
        CompactionHook(SlidingWindowCompactor(), context_window=10**7, token_counter=counter),
        ToolResultOffloadHook(store, {"*": OffloadOverTokens(10**6)}, token_counter=counter),
        CompactionHook(ToolResultOffloadCompactor(store), context_window=10**7, token_counter=counter),
    ]
    for hook in watching:
        colour.call(hook, "run", state)
    assert counter.calls == len(started) == 4_002
    made = call("fetch", 5_000)
    state.set("messages", [calling(made), answered(made, "fresh")])
    for hook in watching:
        colour.call(hook, "run", state)
    assert counter.calls == 4_004


def known(state: State, counter: Any) -> int:
    return len(RunRecord.of(state).counter(counter)._sizes)


@both_colours
@pytest.mark.parametrize("figures", [False, True], ids=["no figures", "figures"])
def test_what_other_hooks_remove_is_forgotten(colour: Colour, figures: bool) -> None:
    """Somebody cuts the conversation before each call, so haybaler's hook never compacts."""
    counter = ApproximateTokenCounter()
    most: list[int] = []
    gone: list[weakref.ref[ChatMessage]] = []

    def cut(state: State) -> None:
        messages = state.data["messages"]
        gone.extend(map(weakref.ref, messages[1:-4]))
        state.data["messages"] = [messages[0], *messages[-4:]] if len(messages) > 5 else messages

    def watch(state: State) -> None:
        most.append(known(state, counter) - len(state.data["messages"]))
        model.prompts.clear()
        gc.collect()
        alive.append(sum(message() is not None for message in gone))

    alive: list[int] = []
    model = ScriptedModel(work(30), usage=lambda *_: {"prompt_tokens": 900} if figures else {})
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(400))],
        hooks={
            "before_llm": [
                FunctionHook(function=cut),
                CompactionHook(SlidingWindowCompactor(), context_window=10**6, token_counter=counter),
                FunctionHook(function=watch),
            ],
            "after_tool": [
                ToolResultOffloadHook(InMemoryToolResultStore(), {"*": OffloadOverTokens(10**6)}, token_counter=counter)
            ],
        },
    )
    colour.run(agent, "task")
    assert len(gone) > 40
    assert max(most) <= 0
    assert max(alive) <= 4  # what the Agent itself still holds of the step before


@both_colours
def test_an_offload_hook_alone_forgets_what_others_remove(colour: Colour) -> None:
    counter = ApproximateTokenCounter()
    hook = ToolResultOffloadHook(InMemoryToolResultStore(), {"*": OffloadOverTokens(10**6)}, token_counter=counter)
    state = agent_state([ChatMessage.from_user("task")])
    for number in range(30):
        made = call("fetch", number)
        state.data["messages"] = [state.data["messages"][0], calling(made), answered(made, "page")]
        colour.call(hook, "run", state)
        assert known(state, counter) <= 3


def test_counters_of_two_hooks_are_not_confused() -> None:
    state = agent_state([])
    record = RunRecord.of(state)
    one, two = ApproximateTokenCounter(), ApproximateTokenCounter()
    assert record.counter(one) is record.counter(one)
    assert record.counter(one) is not record.counter(two)
