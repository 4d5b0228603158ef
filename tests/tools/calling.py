"""How the tests of the toolset call tools and drive real Agents."""

from collections.abc import Callable, Sequence
from typing import Any

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.tool import Tool

from haybaler.tools import ToolResultToolset

READ = "read_tool_result"
SEARCH = "search_tool_result"


def tool(toolset: ToolResultToolset, name: str) -> Tool:
    return next(t for t in toolset.tools if t.name == name)


def read(store: Any, **arguments: Any) -> Any:
    return tool(ToolResultToolset(store), READ).invoke(**arguments)


async def read_async(store: Any, **arguments: Any) -> Any:
    return await tool(ToolResultToolset(store), READ).invoke_async(**arguments)


def find(store: Any, **arguments: Any) -> Any:
    return tool(ToolResultToolset(store), SEARCH).invoke(**arguments)


def calls(*arguments: dict[str, Any], name: str = READ) -> ChatMessage:
    return ChatMessage.from_assistant(
        tool_calls=[ToolCall(name, given, id=f"call-{number}") for number, given in enumerate(arguments)]
    )


def agent_that_says(replies: Sequence[ChatMessage | str], tools: Any, **settings: Any) -> Agent:
    return Agent(chat_generator=MockChatGenerator(responses=list(replies)), tools=tools, **settings)


def results(run: dict[str, Any]) -> list[Any]:
    return [result.result for message in run["messages"] for result in message.tool_call_results]


async def run_in(colour: str, agent: Agent, **given: Any) -> dict[str, Any]:
    """Run an agent in one colour; the synchronous one in a thread, as a server would."""
    messages = [ChatMessage.from_user("Go.")]
    if colour == "async":
        return await agent.run_async(messages=messages, **given)
    runner: Callable[[], dict[str, Any]] = lambda: agent.run(messages=messages, **given)  # noqa: E731
    from haybaler.workers import run_in_worker

    return await run_in_worker(runner)
