"""The model: OpenAI's if there is a key, otherwise a stand-in, which needs neither key nor network."""

import os
import re
from collections.abc import Iterator
from typing import Any

import anyio
from haystack.components.generators.chat import MockChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage, StreamingChunk, ToolCall, ToolCallResult

HELP = "I only stand in for a model. Ask me what is in Python's library: What is FTP_PORT in ftplib?"
# How long the stand-in takes for a word, in seconds.
PACE = 0.03
# How often it tries to find a value.
ATTEMPTS = 4

_ASKED = re.compile(r"\b([A-Z][A-Z0-9_]+) in ([a-z_0-9]+)")
_POINTER = re.compile(r"^Tool result offloaded to text .* at '([^']+)'")


def chat_model() -> Any:
    """Return OpenAI's model if there is a key, otherwise the stand-in."""
    if os.environ.get("OPENAI_API_KEY"):
        return OpenAIResponsesChatGenerator(model=os.environ.get("OPENAI_MODEL", "gpt-5-mini"))
    return StandIn()


class StandIn:
    """
    Looks up constants of Python's library, by nothing but the messages it is sent, and says one word after another.

    What is not in the messages any more it searches for in the store. If the store is away, it reads the module again.
    """

    def __init__(self) -> None:
        # The mock would report the tokens of everything but results. Without a report, haybaler counts for itself.
        self._mock = MockChatGenerator(response_fn=reply_to, meta={"usage": {}})

    def run(self, messages: list[ChatMessage], tools: Any = None, streaming_callback: Any = None) -> dict[str, Any]:
        return self._mock.run(messages, streaming_callback, tools=tools)

    async def run_async(
        self, messages: list[ChatMessage], tools: Any = None, streaming_callback: Any = None
    ) -> dict[str, Any]:
        async def paced(chunk: StreamingChunk) -> None:
            await anyio.sleep(PACE)
            await streaming_callback(chunk)

        return await self._mock.run_async(messages, paced if streaming_callback else None, tools=tools)


def reply_to(messages: list[ChatMessage]) -> ChatMessage:
    """
    Return the next reply to a conversation: a call of a tool, or the answer.

    :param messages: The conversation.
    :returns: The reply.
    """
    question = next((str(message.text) for message in messages if message.is_from("user")), "")
    asked = dict.fromkeys(_ASKED.findall(question))
    findings = [_finding(messages, constant, module) for constant, module in asked]
    calls = [finding for finding in findings if isinstance(finding, ToolCall)]
    if calls:
        return ChatMessage.from_assistant(tool_calls=calls[:1])
    return ChatMessage.from_assistant(" ".join(map(str, findings)) or HELP)


def _finding(messages: list[ChatMessage], constant: str, module: str) -> ToolCall | str:
    label = f"{module}.{constant}"
    results = list(_results(messages, label))
    for result in results:
        if match := re.search(rf"\b{constant} = ([^#\n⟧]+)", str(result.result)):
            return f"In {module}, {constant} is {match[1].strip()}."
    if len(results) == ATTEMPTS:
        return f"I cannot find {constant} in {module}."
    pointer = _POINTER.match(str(results[-1].result)) if results else None
    if pointer is None:
        return ToolCall("read_module", {"name": module}, id=f"{label} {len(results)}")
    arguments = {"reference": pointer[1], "pattern": rf"^{constant} = .*", "regex": True, "context": 0}
    return ToolCall("search_tool_result", arguments, id=f"{label} {len(results)}")


def _results(messages: list[ChatMessage], label: str) -> Iterator[ToolCallResult]:
    for message in messages:
        yield from (r for r in message.tool_call_results if str(r.origin.id).startswith(f"{label} "))
