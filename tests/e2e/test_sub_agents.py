"""A sub-agent inside a tool uses the store of the run whose tool it is, however the tool runs it."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import Thread
from typing import Any

import anyio
import anyio.to_thread
import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks import Hook, HookPoint
from haystack.tools import AgentTool, ComponentTool, PipelineTool
from haystack.tools.tool import Tool
from tests.hooks.agents import Colour, ScriptedModel, both_colours, calling, pages, tool, work
from tests.hooks.parts import DropOldest

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    AlwaysOffload,
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultToolset,
)
from haybaler.hooks.carrying import is_carrying
from haybaler.workers import run_in_worker

TASK = [ChatMessage.from_user("look")]
Store = InMemoryToolResultStore


def hooks_with(shared: Store) -> dict[HookPoint, list[Hook]]:
    compaction = CompactionHook(SlidingWindowCompactor(), context_window=1_000_000)
    return {"before_llm": [compaction], "after_tool": [ToolResultOffloadHook(shared, {"fetch": AlwaysOffload()})]}


def offload_only(shared: Store) -> dict[HookPoint, list[Hook]]:
    offload = ToolResultOffloadHook(shared, {"fetch": AlwaysOffload()})
    return {"before_tool": [offload], "after_tool": [offload]}


def inner_agent(shared: Store) -> Agent:
    """Stores two results."""
    fetch = tool("fetch", lambda **_: "a long result " * 200)
    return Agent(chat_generator=ScriptedModel(work(2)), tools=[fetch], hooks=hooks_with(shared))


def outer_script(messages: list[ChatMessage]) -> ChatMessage:
    if any(message.tool_calls for message in messages):
        return ChatMessage.from_assistant("Done.")
    return calling(ToolCall("researcher", {"messages": [message.to_dict() for message in TASK]}, id="only"))


def outer_agent(researcher: Tool, shared: Store, hooks: Any = hooks_with) -> Agent:
    return Agent(
        chat_generator=ScriptedModel(outer_script),
        tools=[researcher],
        hooks=hooks(shared),
        raise_on_tool_invocation_failure=True,
    )


def agent_tool(inner: Agent) -> Tool:
    return AgentTool(agent=inner, name="researcher", description="Researches.")


def run_with(colour: Colour, agent: Agent, own: Any) -> dict[str, Any]:
    return colour.run(agent, "go", hook_context={RESULT_STORE_CONTEXT_KEY: own})


def function_tool(function: Any = None, async_function: Any = None) -> Tool:
    parameters = {"type": "object", "properties": {"messages": {"type": "array"}}}
    return Tool("researcher", "Researches.", parameters, function, async_function=async_function)


def calls_run(inner: Agent) -> Tool:
    return function_tool(lambda messages: inner.run(TASK)["last_message"].text)


def calls_run_async(inner: Agent) -> Tool:
    async def research(messages: Any) -> Any:
        return (await inner.run_async(TASK))["last_message"].text

    return function_tool(lambda messages: asyncio.run(research(messages)), research)


def calls_run_in_a_thread_of_asyncio(inner: Agent) -> Tool:
    async def research(messages: Any) -> Any:
        return (await asyncio.to_thread(inner.run, TASK))["last_message"].text

    return function_tool(lambda messages: asyncio.run(research(messages)), research)


def calls_run_in_a_thread_of_anyio(inner: Agent) -> Tool:
    async def research(messages: Any) -> Any:
        return (await anyio.to_thread.run_sync(inner.run, TASK))["last_message"].text

    return function_tool(lambda messages: asyncio.run(research(messages)), research)


def calls_run_in_a_thread_of_its_own_with_its_context(inner: Agent) -> Tool:
    def research(messages: Any) -> str:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(copy_context().run, inner.run, TASK).result()
        return "Done."

    return function_tool(research)


def calls_it_in_a_task_group(inner: Agent) -> Tool:
    async def research(messages: Any) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(inner.run_async, TASK)
        return "Done."

    return function_tool(lambda messages: asyncio.run(research(messages)), research)


def calls_it_in_another_loop(inner: Agent) -> Tool:
    def research(messages: Any) -> str:
        loop = asyncio.new_event_loop()
        thread = Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(inner.run_async(TASK), loop).result(30)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
        return "Done."

    return function_tool(research)


def pipeline_tool(inner: Agent) -> Tool:
    pipeline = Pipeline()
    pipeline.add_component("agent", inner)
    return PipelineTool(
        pipeline=pipeline,
        name="researcher",
        description="Researches.",
        input_mapping={"messages": ["agent.messages"]},
        output_mapping={"agent.last_message": "reply"},
    )


RESEARCHERS: dict[str, Callable[[Agent], Tool]] = {
    "AgentTool": agent_tool,
    "ComponentTool": lambda inner: ComponentTool(inner, name="researcher", description="Researches."),
    "PipelineTool": pipeline_tool,
    "run": calls_run,
    "run_async": calls_run_async,
    "thread of asyncio": calls_run_in_a_thread_of_asyncio,
    "thread of anyio": calls_run_in_a_thread_of_anyio,
    "thread with the context": calls_run_in_a_thread_of_its_own_with_its_context,
    "task group": calls_it_in_a_task_group,
    "another loop": calls_it_in_another_loop,
}


@both_colours
@pytest.mark.parametrize("researcher", RESEARCHERS.values(), ids=RESEARCHERS)
@pytest.mark.parametrize("hooks", [hooks_with, offload_only])
def test_the_store_of_a_run_reaches_the_agents_inside_its_tools(colour: Colour, researcher: Any, hooks: Any) -> None:
    shared, own = Store(), Store()
    agent = outer_agent(researcher(inner_agent(shared)), shared, hooks)
    run_with(colour, agent, own.scoped("user-7/run-42"))
    assert (len(own), len(shared)) == (2, 0)
    assert own.scoped("user-7/run-42").delete_scope().entries == 2
    colour.run(agent, "go")
    assert (len(own), len(shared)) == (0, 2)


@both_colours
@pytest.mark.parametrize("researcher", RESEARCHERS.values(), ids=RESEARCHERS)
def test_it_reaches_two_levels_down_also_through_an_agent_without_hooks(colour: Colour, researcher: Any) -> None:
    shared, own = Store(), Store()
    between = outer_agent(researcher(inner_agent(shared)), shared, lambda _: {})
    run_with(colour, outer_agent(agent_tool(between), shared), own)
    assert (len(own), len(shared)) == (2, 0)


@both_colours
def test_it_reaches_them_through_a_pipeline_around_the_outer_agent(colour: Colour) -> None:
    """A pipeline deep-copies its inputs."""
    shared, own = Store(), Store()
    pipeline = Pipeline()
    pipeline.add_component("agent", outer_agent(pipeline_tool(inner_agent(shared)), shared))
    data = {"agent": {"messages": TASK, "hook_context": {RESULT_STORE_CONTEXT_KEY: own.scoped("run")}}}
    if colour is Colour.SYNC:
        pipeline.run(data)
    else:
        asyncio.run(pipeline.run_async(data))
    assert own.scoped("run").delete_scope().entries == 2
    assert (len(own), len(shared)) == (0, 0)


@both_colours
def test_it_reaches_every_compactor_of_a_sub_agent(colour: Colour) -> None:
    """Also one that somebody else wrote: it gets the store from `for_run`."""
    shared, own = Store(), Store()
    given: list[Any] = []

    class Watching(DropOldest):
        def for_run(self, hook_context: Mapping[str, Any]) -> "Watching":
            given.append(hook_context[RESULT_STORE_CONTEXT_KEY])
            return self

    ladder = [
        CompactionHook(ToolResultOffloadCompactor(shared, min_keep_steps=keep), context_window=1_000) for keep in (3, 1)
    ]
    inner = Agent(
        chat_generator=ScriptedModel(work(5)),
        tools=[tool("fetch", pages(2_000))],
        hooks={"before_llm": [*ladder, CompactionHook(Watching(), context_window=1_000, compact_at=0.5)]},
    )
    run_with(colour, outer_agent(agent_tool(inner), shared), own.scoped("run"))
    assert (len(own) > 1, len(shared)) == (True, 0)
    assert {store.reference("a") for store in given} == {own.scoped("run").reference("a")}


@both_colours
def test_a_sub_agent_without_hooks_reads_from_it(colour: Colour) -> None:
    shared, own = Store(), Store()
    reference = own.write(key="a", content="the run's own")

    def script(messages: list[ChatMessage]) -> ChatMessage:
        if messages[-1].tool_call_result:
            return ChatMessage.from_assistant(str(messages[-1].tool_call_result.result))
        return calling(ToolCall("read_tool_result", {"reference": reference}, id="only"))

    reader = Agent(chat_generator=ScriptedModel(script), tools=[ToolResultToolset(shared)])
    result = run_with(colour, outer_agent(agent_tool(reader), shared), own)
    assert "the run's own" in str(result["messages"][-2].tool_call_result.result)


@both_colours
def test_a_sub_agent_with_a_store_of_its_own_keeps_it_and_hands_it_on(colour: Colour) -> None:
    shared, own, brought = Store(), Store(), Store()
    between = outer_agent(agent_tool(inner_agent(shared)), shared)
    context = {RESULT_STORE_CONTEXT_KEY: brought}
    fetching = inner_agent(shared)

    def research(messages: Any) -> str:
        between.run(TASK, hook_context=context)
        fetching.run(TASK)
        return "Done."

    run_with(colour, outer_agent(function_tool(research), shared), own)
    assert (len(brought), len(own), len(shared)) == (2, 2, 0)


@both_colours
def test_runs_side_by_side_hand_on_their_own_stores(colour: Colour) -> None:
    shared = Store()
    agent = outer_agent(agent_tool(outer_agent(agent_tool(inner_agent(shared)), shared)), shared)
    stores = [Store() if number % 3 else None for number in range(30)]

    async def all_at_once() -> None:
        async def one(store: Any) -> None:
            context = {RESULT_STORE_CONTEXT_KEY: store}
            if colour is Colour.ASYNC:
                await agent.run_async(TASK, hook_context=context)
            else:
                await run_in_worker(lambda: agent.run(TASK, hook_context=context))

        async with anyio.create_task_group() as group:
            for store in stores:
                group.start_soon(one, store)

    asyncio.run(all_at_once())
    assert [len(store) for store in stores if store is not None] == [2] * 20
    assert len(shared) == 2 * 10


@pytest.mark.anyio
async def test_what_a_tool_leaves_running_keeps_the_store_after_the_run() -> None:
    shared, own = Store(), Store()
    inner, over = inner_agent(shared), asyncio.Event()
    started: list[asyncio.Task[Any]] = []

    async def later() -> None:
        await over.wait()
        await inner.run_async(TASK)

    async def research(messages: Any) -> str:
        started.append(asyncio.create_task(later()))
        return "Started."

    agent = outer_agent(function_tool(None, research), shared)
    await agent.run_async(TASK, hook_context={RESULT_STORE_CONTEXT_KEY: own})
    over.set()
    await started[0]
    assert (len(own), len(shared)) == (2, 0)


def test_a_thread_without_the_context_of_its_tool_call_is_outside_of_the_run() -> None:
    """As for every context variable: a bare thread inherits none."""
    shared, own = Store(), Store()
    inner = inner_agent(shared)

    def research(messages: Any) -> str:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(inner.run, TASK).result()
        return "Done."

    run_with(Colour.SYNC, outer_agent(function_tool(research), shared), own)
    assert (len(own), len(shared)) == (0, 2)


@both_colours
@pytest.mark.parametrize(
    ("point", "warns"), [("after_tool", True), ("before_tool", False)], ids=["after only", "before as well"]
)
def test_a_hook_that_only_runs_after_the_tools_says_what_is_missing(
    colour: Colour, point: str, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shared, own = Store(), Store()
    hooks: dict[HookPoint, list[Hook]] = offload_only(shared)
    if point == "after_tool":
        del hooks["before_tool"]
    agent = outer_agent(agent_tool(inner_agent(shared)), shared, lambda _: hooks)
    with caplog.at_level(logging.WARNING, logger="haybaler"):
        colour.run(agent, "go")
        assert not caplog.records
        run_with(colour, agent, own)
    assert [record.message.endswith("under `before_tool` as well.") for record in caplog.records] == [True] * warns


@both_colours
@pytest.mark.parametrize("made_up", ["memory://", {"read": "x"}, ["x"], 5, True, "", {}])
@pytest.mark.parametrize("kind", ["AgentTool", "ComponentTool"])
def test_a_store_that_a_model_makes_up_for_a_sub_agent_leads_nowhere(colour: Colour, made_up: Any, kind: str) -> None:
    """An Agent as a tool takes every argument that `Agent.run` has, also those that its schema does not name."""
    shared, own = Store(), Store()

    def script(messages: list[ChatMessage]) -> ChatMessage:
        reply = outer_script(messages)
        for made in reply.tool_calls:
            made.arguments["hook_context"] = {RESULT_STORE_CONTEXT_KEY: made_up}
        return reply

    agent = outer_agent(RESEARCHERS[kind](inner_agent(shared)), shared)
    agent.chat_generator = ScriptedModel(script)
    result = run_with(colour, agent, own)
    assert result["last_message"].text == "Done."
    assert (len(own), len(shared)) == (0, 0)


@both_colours
@pytest.mark.parametrize("made_up", [None, {}, {RESULT_STORE_CONTEXT_KEY: None}])
def test_a_model_cannot_take_the_store_away_from_a_sub_agent(colour: Colour, made_up: Any) -> None:
    shared, own = Store(), Store()

    def script(messages: list[ChatMessage]) -> ChatMessage:
        reply = outer_script(messages)
        for made in reply.tool_calls:
            made.arguments["hook_context"] = made_up
        return reply

    agent = outer_agent(agent_tool(inner_agent(shared)), shared)
    agent.chat_generator = ScriptedModel(script)
    run_with(colour, agent, own)
    assert (len(own), len(shared)) == (2, 0)


@both_colours
def test_the_tools_of_the_agent_are_not_touched(colour: Colour) -> None:
    shared = Store()
    researcher = agent_tool(inner_agent(shared))
    before = dict(vars(researcher))
    agent = outer_agent(researcher, shared)
    run_with(colour, agent, Store())
    assert agent.tools == [researcher]
    assert agent.tools[0] is researcher
    assert vars(researcher).keys() == before.keys()
    assert not is_carrying(researcher)
