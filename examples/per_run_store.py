"""One Agent for all users of a server: each run brings its own part of the store along, and cannot read another's."""

import asyncio
import tempfile

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import tool

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    AlwaysOffload,
    InvalidReferenceError,
    ToolResultOffloadHook,
    ToolResultToolset,
)
from haybaler_filesystem import FileSystemToolResultStore


@tool
def account(user: str) -> str:
    """Return everything that is known of a user."""
    return f"The secret of {user} is {user[::-1]}. " + "History. " * 2000


def respond(messages: list[ChatMessage]) -> ChatMessage:
    """Stand for a model: fetch the account, search what was stored of it, answer."""
    last = messages[-1]
    if last.tool_call_result is None:
        return ChatMessage.from_assistant(tool_calls=[ToolCall("account", {"user": str(last.text)})])
    if references := last.meta.get("tool_result_offloaded"):
        arguments = {"reference": references[0], "pattern": "secret", "context": 40}
        return ChatMessage.from_assistant(tool_calls=[ToolCall("search_tool_result", arguments)])
    return ChatMessage.from_assistant(str(last.tool_call_result.result).splitlines()[1])


async def main(root: str) -> None:
    store = FileSystemToolResultStore(root, references="relative")
    agent = Agent(
        chat_generator=MockChatGenerator(response_fn=respond),
        tools=[account, ToolResultToolset()],
        hooks={"after_tool": [ToolResultOffloadHook(store, {"*": AlwaysOffload()})]},
    )

    async def serve(user: str) -> tuple[str, str]:
        own = store.scoped(user).scoped("run-1")
        result = await agent.run_async([ChatMessage.from_user(user)], hook_context={RESULT_STORE_CONTEXT_KEY: own})
        pointer = next(m for m in result["messages"] if m.meta.get("tool_result_offloaded"))
        return result["last_message"].text, pointer.meta["tool_result_offloaded"][0]

    (grace, _), (alan, of_alan) = await asyncio.gather(serve("grace"), serve("alan"))
    print(grace, alan, sep="\n")
    try:
        await store.scoped("grace").scoped("run-1").read_async(of_alan)
    except InvalidReferenceError as error:
        print(f"Grace reads Alan's result: {error}")


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
