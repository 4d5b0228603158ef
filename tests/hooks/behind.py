"""Agents whose runs write behind their backs, and how to tell that nothing is lost."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from tests.hooks.agents import ScriptedModel, answered, call, calling, pages, tool

from haybaler import CompactionHook, StoreUnavailableError, ToolResultOffloadCompactor, WriteBehindHook
from haybaler.references import offloaded_references
from haybaler.testing import Fault

SIZE = 2_000
DOWN = Fault(error=StoreUnavailableError("down"))
HANGS = Fault(hang_before=True)


class Model(ScriptedModel):
    """Awaits something in the middle of each call; told the number of the call, counted from 1."""

    def __init__(self, script: Callable[[list[ChatMessage]], ChatMessage], meanwhile: Any = None) -> None:
        super().__init__(script)
        self.meanwhile = meanwhile

    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **kwargs: Any) -> dict[str, Any]:
        reply = self.run(messages, tools, **kwargs)
        await asyncio.sleep(0)
        if self.meanwhile is not None:
            await self.meanwhile(len(self.prompts), messages)
        return reply


def offloading(store: Any, window: int = 2_000, **settings: Any) -> CompactionHook:
    compactor = ToolResultOffloadCompactor(store, write_behind=True, **settings)
    return CompactionHook(compactor, context_window=window)


def agent_with(
    *hooks: Any, model: Any, tools: Sequence[Any] = (), before: Sequence[Any] = (), after: Sequence[Any] = ()
) -> Agent:
    behind = WriteBehindHook()
    return Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(SIZE)), *tools],
        hooks={"before_run": [behind], "before_llm": [*before, *hooks, *after], "after_run": [behind]},
    )


def history(steps: int) -> list[ChatMessage]:
    """Return a conversation in which a number of steps are done."""
    messages = [ChatMessage.from_user("task")]
    for step in range(1, steps + 1):
        made = call("fetch", step)
        messages += [calling(made), answered(made, pages(SIZE)(step=step))]
    return messages


async def run(agent: Agent, **settings: Any) -> list[ChatMessage]:
    result = await agent.run_async([ChatMessage.from_user("task")], **settings)
    messages: list[ChatMessage] = result["messages"]
    return messages


def pointers(messages: Sequence[ChatMessage]) -> list[str]:
    return [reference for message in messages for reference in offloaded_references(message)]


def whole(messages: Sequence[ChatMessage]) -> list[int]:
    """Return the steps whose results stand in a conversation in full."""
    return [
        result.origin.arguments["step"]
        for message in messages
        for result in message.tool_call_results
        if result.result == pages(SIZE)(step=result.origin.arguments.get("step", 0))
    ]


def entries(store: Any) -> dict[str, str]:
    """Return what really is in a memory store, or in one that is wrapped: text by reference."""
    memory = getattr(store, "store", store)
    return {memory._location + path: str(content) for path, content in memory._entries.items()}


def steps_whole(messages: Sequence[ChatMessage], store: Any) -> list[int]:
    """Return the steps whose results can be had: from the conversation, or from the store."""
    stored = [entries(store)[reference] for reference in pointers(messages)]
    return sorted(whole(messages) + [int(text.split()[1]) for text in stored])


def tasks_left() -> list[str]:
    """Return the names of the tasks that write behind runs, also of one that is about to end."""
    return [name for task in asyncio.all_tasks() if "write-behind" in (name := task.get_name())]
