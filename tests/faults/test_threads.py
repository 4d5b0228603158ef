"""One hook, one store and one Agent, used by many threads and event loops at the same time."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from tests.hooks.agents import Colour, ScriptedModel, pages, tool, work

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    AlwaysOffload,
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    TiktokenCounter,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
)
from haybaler.references import offloaded_references

THREADS = 8
RUNS = 40


def shared_agent(store: Any, counter: Any = None) -> Agent:
    return Agent(
        chat_generator=ScriptedModel(work(8, calls=2)),
        tools=[tool("fetch", pages(1_200))],
        hooks={
            "before_llm": [
                CompactionHook(ToolResultOffloadCompactor(store), context_window=2_000, token_counter=counter),
                CompactionHook(SlidingWindowCompactor(), context_window=2_000, token_counter=counter),
            ],
            "after_tool": [ToolResultOffloadHook(store, {"list": AlwaysOffload()}, token_counter=counter)],
        },
    )


@pytest.mark.parametrize("colours", [[Colour.SYNC], [Colour.ASYNC], list(Colour)], ids=["sync", "loops", "both"])
@pytest.mark.parametrize("counter", [None, TiktokenCounter("cl100k_base")], ids=["approximate", "tiktoken"])
def test_runs_in_many_threads_do_not_meet(colours: list[Colour], counter: Any) -> None:
    shared = InMemoryToolResultStore()
    agent = shared_agent(shared, counter)
    start = threading.Barrier(THREADS)

    def one(number: int) -> tuple[InMemoryToolResultStore, dict[str, Any]]:
        if number < THREADS:
            start.wait(30)
        own = InMemoryToolResultStore()
        colour = colours[number % len(colours)]
        return own, colour.run(agent, f"task {number}", hook_context={RESULT_STORE_CONTEXT_KEY: own})

    with ThreadPoolExecutor(THREADS) as pool:
        outcomes = list(pool.map(one, range(RUNS)))
    assert len(shared) == 0
    for number, (own, result) in enumerate(outcomes):
        messages = result["messages"]
        assert messages[0].text == f"task {number}"
        assert messages[-1].text == "The answer."
        assert len(own) > 0
        for message in messages:
            for reference in offloaded_references(message):
                assert own.read(reference) == pages(1_200)(step=message.tool_call_results[0].origin.arguments["step"])


def test_one_hook_serves_loop_after_loop() -> None:
    store = InMemoryToolResultStore()
    agent = shared_agent(store)
    for _ in range(3):
        assert Colour.ASYNC.run(agent, "task")["last_message"].text == "The answer."
        assert Colour.SYNC.run(agent, "task")["last_message"].text == "The answer."


@pytest.mark.anyio
async def test_a_synchronous_run_in_a_thread_of_a_running_loop_works() -> None:
    agent = shared_agent(InMemoryToolResultStore())
    results = await asyncio.gather(
        *(asyncio.to_thread(agent.run, [ChatMessage.from_user("task")]) for _ in range(4)),
        *(agent.run_async([ChatMessage.from_user("task")]) for _ in range(4)),
    )
    assert [result["last_message"].text for result in results] == ["The answer."] * 8
