"""A run without a store of its own uses the constructor's, whatever ran before it in the same task or thread."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextvars import copy_context
from typing import Any

import anyio
import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage
from haystack.hooks import FunctionHook
from haystack.tools.tool import Tool
from tests.e2e.test_sub_agents import TASK, Store, agent_tool, hooks_with, inner_agent, outer_agent
from tests.hooks.agents import ScriptedModel, tool, work

from haybaler import RESULT_STORE_CONTEXT_KEY
from haybaler.workers import run_in_worker

pytestmark = pytest.mark.anyio


def failing() -> Any:
    raise ValueError("broken")


def failing_hook(state: State) -> None:
    failing()


def failing_agent(shared: Store, place: str) -> Agent:
    """Fails in its second step, when it has stored something."""

    def script(messages: list[ChatMessage]) -> ChatMessage:
        return failing() if place == "model" and len(messages) > 2 else work(3)(messages)

    def fetch(step: int = 0, **_: Any) -> str:
        return str(failing()) if place == "tool" and step > 1 else "a long result " * 200

    hooks: Any = hooks_with(shared)
    if place == "hook":
        hooks["after_tool"].append(FunctionHook(function=failing_hook))
    return Agent(
        chat_generator=ScriptedModel(script),
        tools=[tool("fetch", fetch)],
        hooks=hooks,
        raise_on_tool_invocation_failure=True,
    )


def with_agents_inside(shared: Store, place: str) -> Agent:
    return outer_agent(agent_tool(failing_agent(shared, place)), shared)


async def directly(agent: Agent) -> None:
    await agent.run_async(TASK)


async def in_a_task(agent: Agent) -> None:
    await asyncio.create_task(agent.run_async(TASK))


async def in_a_task_group(agent: Agent) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(agent.run_async, TASK)


async def in_a_thread(agent: Agent) -> None:
    await asyncio.to_thread(agent.run, TASK)


async def in_a_copied_context(agent: Agent) -> None:
    context = copy_context()

    def run() -> None:
        thread = threading.Thread(target=context.run, args=(agent.run, TASK))
        thread.start()
        thread.join()

    await run_in_worker(run)


NEXT_RUNS: list[Callable[[Agent], Awaitable[None]]] = [
    directly,
    in_a_task,
    in_a_task_group,
    in_a_thread,
    in_a_copied_context,
]
both_depths = pytest.mark.parametrize("make_agent", [failing_agent, with_agents_inside], ids=["run", "nested run"])


@pytest.mark.parametrize("next_run", NEXT_RUNS)
@pytest.mark.parametrize("place", ["nowhere", "tool", "model", "hook"])
@both_depths
async def test_after_a_run_that_ended_or_failed(make_agent: Any, place: str, next_run: Any) -> None:
    shared, own = Store(), Store()
    kept: list[Exception] = []  # with its traceback the failed run's State
    try:
        await make_agent(shared, place).run_async(TASK, hook_context={RESULT_STORE_CONTEXT_KEY: own})
    except Exception as error:  # noqa: BLE001
        kept.append(error)
    assert ["broken" in str(error) for error in kept] == [True] * (place != "nowhere")
    assert (len(own) > 0, len(shared)) == (True, 0)
    stored = len(own)
    await next_run(inner_agent(shared))
    assert (len(own), len(shared)) == (stored, 2)


@pytest.mark.parametrize("next_run", NEXT_RUNS)
@pytest.mark.parametrize("ended_by", ["timeout", "scope"])
@pytest.mark.parametrize("depth", [0, 1])
async def test_after_a_run_that_was_cancelled_while_its_tools_ran(ended_by: str, depth: int, next_run: Any) -> None:
    shared, own, waiting = Store(), Store(), asyncio.Event()

    async def hang(**_: Any) -> None:
        waiting.set()
        await asyncio.Event().wait()

    fetch = Tool("fetch", "Waits.", {"type": "object", "properties": {}}, async_function=hang)
    agent = Agent(chat_generator=ScriptedModel(work(2)), tools=[fetch], hooks=hooks_with(shared))
    for _ in range(depth):
        agent = outer_agent(agent_tool(agent), shared)
    running = agent.run_async(TASK, hook_context={RESULT_STORE_CONTEXT_KEY: own})
    kept: list[BaseException] = []
    if ended_by == "scope":
        with anyio.CancelScope() as scope:

            async def cancel() -> None:
                await waiting.wait()
                scope.cancel()

            cancelling = asyncio.create_task(cancel())
            try:
                await running
            except BaseException as error:
                kept.append(error)
                raise
        await cancelling
    else:
        try:
            async with asyncio.timeout(0.05):
                await running
        except TimeoutError as error:
            kept.append(error)
    assert waiting.is_set()
    assert kept
    await next_run(inner_agent(shared))
    assert (len(own), len(shared)) == (0, 2)


@pytest.mark.parametrize("next_run", NEXT_RUNS)
async def test_between_the_items_of_a_generator_that_runs_agents(next_run: Any) -> None:
    shared, own = Store(), Store()
    agent = outer_agent(agent_tool(inner_agent(shared)), shared)

    async def served() -> AsyncIterator[str]:
        for _ in range(2):
            result = await agent.run_async(TASK, hook_context={RESULT_STORE_CONTEXT_KEY: own})
            yield result["last_message"].text

    generator = served()
    async for _ in generator:
        await next_run(inner_agent(shared))
    assert (len(own), len(shared)) == (4, 4)


def test_in_the_thread_of_a_generator_that_was_abandoned() -> None:
    shared, own = Store(), Store()
    agent = failing_agent(shared, "tool")

    def served() -> Generator[Exception, None, None]:
        try:
            agent.run(TASK, hook_context={RESULT_STORE_CONTEXT_KEY: own})
        except Exception as error:  # noqa: BLE001
            yield error

    generator = served()
    error = next(generator)
    stored = len(own)
    inner_agent(shared).run(TASK)
    thread = threading.Thread(target=copy_context().run, args=(inner_agent(shared).run, TASK))
    thread.start()
    thread.join()
    generator.close()
    assert error.__traceback__
    assert (len(own), len(shared)) == (stored, 4)


async def test_beside_a_run_that_is_waiting_for_its_tools() -> None:
    """Also from a context that was copied while that run was under way, if it is not its tool's."""
    shared, own, waiting, go_on = Store(), Store(), asyncio.Event(), asyncio.Event()
    contexts: list[Any] = []

    def keep_context(state: State) -> None:
        contexts.append(copy_context())

    async def hang(**_: Any) -> str:
        waiting.set()
        await go_on.wait()
        return "Done."

    fetch = Tool("fetch", "Waits.", {"type": "object", "properties": {}}, async_function=hang)
    hooks: Any = hooks_with(shared)
    hooks["before_llm"].append(FunctionHook(function=keep_context))
    agent = Agent(chat_generator=ScriptedModel(work(1)), tools=[fetch], hooks=hooks)
    running = asyncio.create_task(agent.run_async(TASK, hook_context={RESULT_STORE_CONTEXT_KEY: own}))
    await waiting.wait()
    await inner_agent(shared).run_async(TASK)
    await asyncio.create_task(inner_agent(shared).run_async(TASK), context=contexts[0])
    go_on.set()
    await running
    assert (len(own), len(shared)) == (0, 4)
