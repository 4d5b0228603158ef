"""Agents for tests: a model that follows a script, tools, and runs in both colours."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import ToolsType
from haystack.tools.tool import Tool

Script = Callable[[list[ChatMessage]], ChatMessage]
Usage = Callable[[list[ChatMessage], ChatMessage], dict[str, int]]


class Colour(Enum):
    """How an Agent, or a part of one, is called."""

    SYNC = "sync"
    ASYNC = "async"

    def run(self, agent: Any, messages: Sequence[ChatMessage] | str, **settings: Any) -> dict[str, Any]:
        """Run an Agent; in an event loop of its own if asynchronously."""
        started = [ChatMessage.from_user(messages)] if isinstance(messages, str) else list(messages)
        result: dict[str, Any] = self.call(agent, "run", messages=started, **settings)
        return result

    def call(self, part: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of this colour."""
        if self is Colour.SYNC:
            return getattr(part, method)(*args, **kwargs)

        async def called() -> Any:
            return await getattr(part, f"{method}_async")(*args, **kwargs)

        return asyncio.run(called())


both_colours = pytest.mark.parametrize("colour", Colour, ids=lambda colour: colour.value)


class ScriptedModel:
    """
    A chat model that follows a script, and remembers what it was shown.

    :param script: Gives the reply to a conversation; called for several runs at once, so it looks at nothing else.
    :param usage: Gives the figures that the provider reports; None for a provider that reports nothing.
    """

    def __init__(self, script: Script, *, usage: Usage | None = None) -> None:
        self.script = script
        self.usage = usage
        self.prompts: list[list[ChatMessage]] = []

    def run(self, messages: list[ChatMessage], tools: ToolsType | None = None, **kwargs: Any) -> dict[str, Any]:
        self.prompts.append(list(messages))
        reply = self.script(messages)
        if self.usage is not None:
            reply.meta["usage"] = self.usage(messages, reply)
        return {"replies": [reply]}

    async def run_async(
        self, messages: list[ChatMessage], tools: ToolsType | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        await asyncio.sleep(0)
        return self.run(messages, tools, **kwargs)

    def to_dict(self) -> dict[str, Any]:
        return {"type": "tests.hooks.agents.ScriptedModel", "init_parameters": {}}


def call(tool: str, step: int, *, call_id: str | None = "", **arguments: Any) -> ToolCall:
    """Return a call that carries its number; its id is made from it unless one is given."""
    made_up = f"{tool}-{step}" if call_id == "" else call_id
    return ToolCall(tool_name=tool, arguments={"step": step, **arguments}, id=made_up)


def calling(*calls: ToolCall) -> ChatMessage:
    return ChatMessage.from_assistant(tool_calls=list(calls))


def answered(origin: ToolCall, result: Any, *, error: bool = False, **meta: Any) -> ChatMessage:
    return ChatMessage.from_tool(tool_result=result, origin=origin, error=error, meta=meta)


def steps_done(messages: Sequence[ChatMessage]) -> int:
    """Return the number of the newest call in a conversation, counted from 1."""
    return max((c.arguments.get("step", 0) for m in messages for c in m.tool_calls), default=0)


def work(steps: int, tool: str = "fetch", *, calls: int = 1) -> Script:
    """Return a script that calls a tool in a number of steps and then gives an answer."""

    def script(messages: list[ChatMessage]) -> ChatMessage:
        done = steps_done(messages)
        if done >= steps:
            return ChatMessage.from_assistant("The answer.")
        return calling(*(call(tool, done + 1, call_id=f"{tool}-{done + 1}-{n}") for n in range(calls)))

    return script


def tool(name: str, result: Callable[..., Any], *, async_too: bool = True, **settings: Any) -> Tool:
    """Return a tool with a number as its argument, native in both colours."""

    async def result_async(**arguments: Any) -> Any:
        return result(**arguments)

    return Tool(
        name=name,
        description=f"Does {name}.",
        parameters={"type": "object", "properties": {"step": {"type": "integer"}}},
        function=result,
        async_function=result_async if async_too else None,
        **settings,
    )


def pages(characters: int) -> Callable[..., str]:
    """Return a tool's function whose results are long and differ from step to step."""

    def page(step: int = 0, **_: Any) -> str:
        line = f"page {step} line "
        return (line * (characters // len(line) + 1))[:characters]

    return page


def agent_state(
    messages: Sequence[ChatMessage],
    *,
    context_tokens: int = 0,
    hook_context: Mapping[str, Any] | None = None,
    tools: Sequence[Tool] = (),
    step_count: int = 0,
) -> State:
    """Return a State like that of a running Agent."""
    agent = Agent(chat_generator=ScriptedModel(work(0)))
    state = State(schema=agent.resolved_state_schema)
    state.set("messages", list(messages))
    state.set("context_tokens", context_tokens)
    state.set("step_count", step_count)
    state.set("tools", list(tools))
    state.set("hook_context", dict(hook_context or {}))
    return state


def conversation(state: State) -> list[ChatMessage]:
    messages: list[ChatMessage] = state.data["messages"]
    return messages


def unpaired(messages: Sequence[ChatMessage]) -> list[str]:
    """Return the ids of calls and results that stand alone."""
    calls = [c.id or "" for m in messages for c in m.tool_calls]
    results = [r.origin.id or "" for m in messages for r in m.tool_call_results]
    return sorted(set(calls) ^ set(results))
