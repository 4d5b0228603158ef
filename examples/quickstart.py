"""An Agent whose conversation compacts itself; what is compacted moves into files that the model can read back."""

import asyncio

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import tool

from haybaler import CompactionHook, ToolResultOffloadCompactor, ToolResultToolset
from haybaler_filesystem import FileSystemToolResultStore


@tool
def fetch(page: int) -> str:
    """Fetch a page of the report."""
    return f"Page {page}: " + "revenue grew. " * 1000


store = FileSystemToolResultStore("tool_results")
hook = CompactionHook(ToolResultOffloadCompactor(store), context_window=16_000)
steps = [ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {"page": n})]) for n in range(8)]
model = MockChatGenerator([*steps, "Revenue grew."])  # your model goes here, e.g. OpenAIResponsesChatGenerator()
agent = Agent(chat_generator=model, tools=[fetch, ToolResultToolset(store)], hooks={"before_llm": [hook]})
result = asyncio.run(agent.run_async([ChatMessage.from_user("Summarize the report.")]))
print(*(m.tool_call_result.result[:99] for m in result["messages"] if m.tool_call_result), sep="\n")
