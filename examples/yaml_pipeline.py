"""An Agent with all of haybaler's parts in a pipeline, to YAML and back."""

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.core.serialization import allow_deserialization_module
from haystack.dataclasses import ChatMessage

from haybaler import (
    CompactionHook,
    OffloadOverTokens,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultToolset,
)
from haybaler_filesystem import FileSystemToolResultStore

# Haystack only loads classes of modules that are allowed; the pattern covers the backends as well.
allow_deserialization_module("haybaler*")

store = FileSystemToolResultStore("tool_results", references="relative").scoped("reports")
agent = Agent(
    chat_generator=MockChatGenerator("Revenue grew."),
    tools=[ToolResultToolset(store)],
    hooks={
        "after_tool": [ToolResultOffloadHook(store, {"github__*": OffloadOverTokens(5_000)})],
        "before_llm": [
            CompactionHook(ToolResultOffloadCompactor(store), context_window=400_000),
            CompactionHook(SlidingWindowCompactor(), context_window=400_000, compact_at=0.9),
        ],
    },
)
pipeline = Pipeline()
pipeline.add_component("agent", agent)

text = pipeline.dumps()
loaded = Pipeline.loads(text)
assert loaded.to_dict() == pipeline.to_dict()
answer = loaded.run({"agent": {"messages": [ChatMessage.from_user("How was the year?")]}})
print(text, answer["agent"]["last_message"].text, sep="\n")
