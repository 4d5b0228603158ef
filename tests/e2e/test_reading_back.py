"""A real Agent whose results go to a store, and that reads them back."""

import asyncio
import json
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from tests.hooks.agents import Colour, ScriptedModel, both_colours, calling, tool

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    AlwaysOffload,
    CompactionHook,
    InMemoryToolResultStore,
    OffloadOverChars,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultPruningCompactor,
    ToolResultToolset,
)
from haybaler.references import is_offloaded, offloaded_references
from haybaler.stores.protocol import StorePage

BOOK = "".join(f"line {number}: the answer is {number * 7}\n" for number in range(2_700))


def read_back_twice(messages: list[ChatMessage]) -> ChatMessage:
    """Fetch the book, read a page of it, then search it, and give what was found."""
    done = [result for message in messages for result in message.tool_call_results]
    if not done:
        return calling(ToolCall("fetch", {"step": 1}, id="1"))
    reference = next(ref for message in messages for ref in offloaded_references(message))
    if len(done) == 1:
        return calling(ToolCall("read_tool_result", {"reference": reference, "offset": 100, "limit": 4_000}, id="2"))
    if len(done) == 2:
        return calling(
            ToolCall("search_tool_result", {"reference": reference, "pattern": "line 1999:"}, id="3"),
            ToolCall("read_tool_result", {"reference": reference, "offset": -4_000}, id="4"),
        )
    return ChatMessage.from_assistant(json.dumps([str(result.result) for result in done]))


@both_colours
@pytest.mark.parametrize("per_run", [False, True], ids=["own store", "store of the run"])
@pytest.mark.parametrize("policy", [AlwaysOffload(), OffloadOverChars(0)], ids=["always", "over 0"])
def test_what_is_read_back_is_never_moved_again(colour: Colour, per_run: bool, policy: Any) -> None:
    own, shared = InMemoryToolResultStore(), InMemoryToolResultStore()
    used = own if per_run else shared
    agent = Agent(
        chat_generator=ScriptedModel(read_back_twice),
        tools=[tool("fetch", lambda step: BOOK), ToolResultToolset(shared)],
        hooks={"after_tool": [ToolResultOffloadHook(shared, {"*": policy})]},
    )
    result = colour.run(agent, "task", hook_context={RESULT_STORE_CONTEXT_KEY: own} if per_run else None)
    pointer, page, found, tail = json.loads(result["last_message"].text)
    assert "offloaded to" in pointer
    assert BOOK[100:4_000] in page
    assert "the answer is 13993" in found
    assert BOOK[-3_000:] in tail
    assert [is_offloaded(message) for message in result["messages"] if message.tool_call_results] == [
        True,
        False,
        False,
        False,
    ]
    assert len(used) == 1
    assert len(own) + len(shared) == 1


@both_colours
@pytest.mark.parametrize(
    "compactor",
    [
        lambda store: ToolResultPruningCompactor(min_tokens=0),
        lambda store: ToolResultOffloadCompactor(store, min_tokens=0),
    ],
    ids=["pruning", "offloading"],
)
def test_no_compactor_moves_what_is_read_back(colour: Colour, compactor: Any) -> None:
    store = InMemoryToolResultStore()
    model = ScriptedModel(read_back_twice)
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", lambda step: BOOK), ToolResultToolset(store)],
        hooks={
            "before_llm": [CompactionHook(compactor(store), context_window=500)],
            "after_tool": [ToolResultOffloadHook(store, {"fetch": AlwaysOffload()})],
        },
    )
    result = colour.run(agent, "task")
    assert BOOK[100:4_000] in json.loads(result["last_message"].text)[1]
    assert len(store) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("hook", ["compaction", "offload"])
async def test_reads_of_one_step_run_side_by_side_with_a_store_of_the_run(hook: str) -> None:
    """A tool that asks for the State runs alone, so the hooks tell the tools which store the run has."""
    everyone_there = asyncio.Event()
    waiting: list[str] = []

    class Meeting(InMemoryToolResultStore):
        async def _get_page_async(self, path: str, offset: int, limit: int) -> StorePage:
            waiting.append(path)
            if len(waiting) == 3:
                everyone_there.set()
            await everyone_there.wait()
            return await super()._get_page_async(path, offset, limit)

    own = Meeting()
    reference = own.write(key="book", content=BOOK)

    def read_thrice(messages: list[ChatMessage]) -> ChatMessage:
        done = [result for message in messages for result in message.tool_call_results]
        if done:
            return ChatMessage.from_assistant(f"{len(done)} pages")
        reads = [ToolCall("read_tool_result", {"reference": reference, "offset": n}, id=str(n)) for n in range(3)]
        # The hooks run before the model's call, or after a first tool; the toolset needs either.
        return calling(*reads)

    def fetch_first(messages: list[ChatMessage]) -> ChatMessage:
        fetched = any(call.tool_name == "fetch" for message in messages for call in message.tool_calls)
        return read_thrice(messages[3:]) if fetched else calling(ToolCall("fetch", {"step": 1}, id="f"))

    hooks: dict[str, dict[Any, list[Any]]] = {
        "compaction": {"before_llm": [CompactionHook(SlidingWindowCompactor(), context_window=100_000)]},
        "offload": {"after_tool": [ToolResultOffloadHook(InMemoryToolResultStore(), {})]},
    }
    agent = Agent(
        chat_generator=ScriptedModel(fetch_first),
        tools=[tool("fetch", lambda step: "short"), ToolResultToolset()],
        hooks=hooks[hook],
    )
    async with asyncio.timeout(30):
        result = await agent.run_async([ChatMessage.from_user("t")], hook_context={RESULT_STORE_CONTEXT_KEY: own})
    assert result["last_message"].text == "3 pages"


@both_colours
def test_a_fresh_result_that_is_larger_than_the_window_goes_through(colour: Colour) -> None:
    """80 kB in a window of 10,000 tokens; no compactor may touch the newest step, so the offload hook does."""
    store = InMemoryToolResultStore()
    model = ScriptedModel(read_back_twice)
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", lambda step: BOOK), ToolResultToolset(store)],
        hooks={
            "before_llm": [CompactionHook(SlidingWindowCompactor(), context_window=10_000)],
            "after_tool": [ToolResultOffloadHook(store, {"*": OffloadOverChars(8_000)})],
        },
    )
    assert 80_000 < len(BOOK) < 90_000
    result = colour.run(agent, "task")
    assert "the answer is 13993" in result["last_message"].text
    for prompt in model.prompts:
        assert sum(len(str(r.result)) for message in prompt for r in message.tool_call_results) < 4 * 10_000
