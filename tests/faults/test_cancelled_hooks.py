"""
A run that is cancelled anywhere on a real backend has its conversation of before or of after, and no entry beside it.

All runs of a backend share one event loop, one store and its connections, as in a server.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, TextContent
from haystack.hooks import FunctionHook
from tests.faults.leftovers import nothing_left, settled
from tests.hooks.agents import ScriptedModel, agent_state, answered, call, calling, conversation, pages, work
from tests.hooks.behind import SIZE, agent_with, offloading, whole
from tests.services.places import Place
from tests.tools.calling import READ, tool

from haybaler import (
    AlwaysOffload,
    CompactionHook,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultToolset,
)
from haybaler.references import offloaded_references
from haybaler.testing import each_cancellation_async

Run = Callable[[Any, list[State]], Awaitable[None]]


def history(steps: int) -> list[ChatMessage]:
    messages = [ChatMessage.from_user("task")]
    for step in range(1, steps + 1):
        made = call("fetch", step)
        messages += [calling(made), answered(made, [TextContent(pages(SIZE)(step=step)), TextContent("x" * 900)])]
    return messages


async def offload_hook(store: Any, states: list[State]) -> None:
    states.append(agent_state(history(1)))
    await ToolResultOffloadHook(store, {"*": AlwaysOffload()}).run_async(states[-1])


async def compaction_hook(store: Any, states: list[State]) -> None:
    states.append(agent_state(history(4)))
    await CompactionHook(ToolResultOffloadCompactor(store), context_window=2_000).run_async(states[-1])


async def write_behind(store: Any, states: list[State]) -> None:
    def watch(state: State) -> None:
        states.append(state)

    agent = agent_with(
        offloading(store, window=1_500), model=ScriptedModel(work(3)), after=[FunctionHook(function=watch)]
    )
    await agent.run_async([ChatMessage.from_user("task")])


RUNS: dict[str, Run] = {"offload hook": offload_hook, "compaction hook": compaction_hook, "write-behind": write_behind}


async def check_each_cancellation(place: Place, name: str, run: Run) -> int:
    states: list[State] = []
    stores = [place.store.scoped("run-0")]
    cancelled = 0

    async def operation() -> None:
        states.clear()
        await run(stores[-1], states)

    async for by, step, reached in each_cancellation_async(operation):
        await settled()
        where = f"{name} cancelled by {by.value} at suspension {step}"
        messages = conversation(states[-1]) if states else []
        references = [reference for message in messages for reference in offloaded_references(message)]
        # What is in the store is what the conversation refers to, and all of it can be read.
        names = await place.everything()
        assert len([entry for entry in names if "/.seals/" not in entry]) == len(references), where
        for reference in references:
            assert str(await stores[-1].read_async(reference)), where
        # Nothing in between: each result is whole or replaced.
        answers = [message for message in messages if message.tool_call_results]
        replaced = [message for message in answers if offloaded_references(message)]
        assert all(len(offloaded_references(m)) == len(_parts(m)) for m in replaced), where
        if name == "offload hook" and references:
            assert len(replaced) == len(answers), where
        if not reached:
            assert references, where
        if name == "write-behind" and states:
            assert len(whole(messages)) + len(replaced) == len(answers), where
        cancelled += reached
        if references:
            page = await tool(ToolResultToolset(stores[-1]), READ).invoke_async(reference=references[0], limit=5)
            assert page.startswith("[characters 0-5 of "), where
        await stores[-1].delete_scope_async()
        stores.append(place.store.scoped(f"run-{len(stores)}"))
    assert await place.everything() == []
    return cancelled


def _parts(message: ChatMessage) -> list[str]:
    text = str(message.tool_call_results[0].result)
    return text.splitlines()[1:] if " files:" in text.partition("\n")[0] else [text]


@pytest.mark.parametrize("backend", ["memory", "files", "redis", "s3"])
def test_a_cancelled_run_has_done_all_or_nothing_and_leaves_nothing(
    backend: str, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(f"place_in_{backend}")
    cancelled: dict[str, int] = {}

    async def run() -> None:
        for name, each in RUNS.items():
            cancelled[name] = await check_each_cancellation(place, name, each)
        await place.store.close_async()

    with nothing_left():
        asyncio.run(run())
    assert min(cancelled.values()) > (0 if backend == "memory" else 3), cancelled
