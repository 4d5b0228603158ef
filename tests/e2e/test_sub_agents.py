"""A sub-agent inside a tool uses the store of the run whose tool it is, and nobody else's."""

import asyncio
from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks import Hook, HookPoint
from haystack.tools import AgentTool
from tests.hooks.agents import Colour, ScriptedModel, both_colours, calling, tool, work

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    AlwaysOffload,
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    ToolResultOffloadHook,
)

pytestmark = both_colours


def hooks_with(shared: InMemoryToolResultStore) -> dict[HookPoint, list[Hook]]:
    compaction = CompactionHook(SlidingWindowCompactor(), context_window=1_000_000)
    return {"before_llm": [compaction], "after_tool": [ToolResultOffloadHook(shared, {"fetch": AlwaysOffload()})]}


def inner_agent(shared: InMemoryToolResultStore) -> Agent:
    fetch = tool("fetch", lambda **_: "a long result " * 200)
    return Agent(chat_generator=ScriptedModel(work(2)), tools=[fetch], hooks=hooks_with(shared))


def outer_script(messages: list[ChatMessage]) -> ChatMessage:
    if any(message.tool_calls for message in messages):
        return ChatMessage.from_assistant("Done.")
    task = [ChatMessage.from_user("look").to_dict()]
    return calling(ToolCall("researcher", {"messages": task}, id="only"))


def outer_agent(inner: Agent, shared: InMemoryToolResultStore) -> Agent:
    researcher = AgentTool(agent=inner, name="researcher", description="Researches.")
    return Agent(chat_generator=ScriptedModel(outer_script), tools=[researcher], hooks=hooks_with(shared))


def test_the_store_of_a_run_reaches_the_agents_inside_its_tools(colour: Colour) -> None:
    shared, own = InMemoryToolResultStore(), InMemoryToolResultStore()
    agent = outer_agent(inner_agent(shared), shared)
    colour.run(agent, "go", hook_context={RESULT_STORE_CONTEXT_KEY: own})
    assert (len(own), len(shared)) == (2, 0)


def test_it_reaches_two_levels_down(colour: Colour) -> None:
    shared, own = InMemoryToolResultStore(), InMemoryToolResultStore()
    agent = outer_agent(outer_agent(inner_agent(shared), shared), shared)
    colour.run(agent, "go", hook_context={RESULT_STORE_CONTEXT_KEY: own})
    assert (len(own), len(shared)) == (2, 0)


def test_a_run_without_a_store_never_gets_one_that_an_earlier_run_left(colour: Colour) -> None:
    shared, own = InMemoryToolResultStore(), InMemoryToolResultStore()
    agent = outer_agent(inner_agent(shared), shared)

    def failing(**_: Any) -> str:
        raise ValueError("broken")

    broken = Agent(
        chat_generator=ScriptedModel(work(2)),
        tools=[tool("fetch", failing)],
        hooks=hooks_with(shared),
        raise_on_tool_invocation_failure=True,
    )

    async def one_after_another() -> None:
        context = {RESULT_STORE_CONTEXT_KEY: own}
        await agent.run_async([ChatMessage.from_user("go")], hook_context=context)
        before = len(own)
        try:
            await broken.run_async([ChatMessage.from_user("go")], hook_context=context)
        except Exception:  # noqa: BLE001 - the failed run is still held by its traceback here
            await agent.run_async([ChatMessage.from_user("go")])
        assert (before, len(own)) == (2, 2)

    def one_after_another_in_a_thread() -> None:
        context = {RESULT_STORE_CONTEXT_KEY: own}
        agent.run([ChatMessage.from_user("go")], hook_context=context)
        try:
            broken.run([ChatMessage.from_user("go")], hook_context=context)
        except Exception:  # noqa: BLE001 - the failed run is still held by its traceback here
            agent.run([ChatMessage.from_user("go")])
        assert len(own) == 2

    if colour is Colour.ASYNC:
        asyncio.run(one_after_another())
    else:
        one_after_another_in_a_thread()
    assert len(shared) == 2


def test_a_sub_agent_with_a_store_of_its_own_keeps_it(colour: Colour) -> None:
    shared, own = InMemoryToolResultStore(), InMemoryToolResultStore()
    inner = inner_agent(shared)
    assert colour.run(inner, "go", hook_context={RESULT_STORE_CONTEXT_KEY: own})["exit_reason"] == "text"
    assert (len(own), len(shared)) == (2, 0)
