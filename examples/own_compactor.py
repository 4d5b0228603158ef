"""A compactor of your own: it cuts results to their first lines, oldest first, until the target is reached."""

import asyncio
from dataclasses import replace
from typing import Any, Self

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import tool

from haybaler import CompactionHook, TokenCounter


class HeadCompactor:
    def __init__(self, lines: int = 3) -> None:
        self.lines = lines

    def compact(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        compacted = list(messages)
        for index, message in enumerate(messages[:-1]):
            if token_counter.count(compacted) <= target_tokens:
                break
            if (result := message.tool_call_result) and isinstance(result.result, str):
                head = "\n".join(result.result.splitlines()[: self.lines])
                compacted[index] = replace(message, _content=[replace(result, result=head)])
        return compacted if token_counter.count(compacted) < token_counter.count(messages) else None

    async def compact_async(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        return self.compact(messages, target_tokens, token_counter)  # computes only, and little

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, lines=self.lines)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return default_from_dict(cls, data)


@tool
def read_log(day: int) -> str:
    """Read the log of a day."""
    return "\n".join(f"day {day}, line {line}: all is well" for line in range(500))


steps = [ChatMessage.from_assistant(tool_calls=[ToolCall("read_log", {"day": day})]) for day in range(6)]
# The mock would report the tokens of everything but results. Without a report, the hook counts for itself.
model = MockChatGenerator([*steps, "All is well."], meta={"usage": {}})
hook = CompactionHook(HeadCompactor(), context_window=16_000)
agent = Agent(chat_generator=model, tools=[read_log], hooks={"before_llm": [hook]})
result = asyncio.run(agent.run_async([ChatMessage.from_user("Check the logs.")]))
for answer in (message.tool_call_result for message in result["messages"] if message.tool_call_result):
    print(answer.origin.arguments, len(answer.result.splitlines()), "lines")
