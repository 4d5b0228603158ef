"""Agents with haybaler's hooks as components of a Haystack pipeline, and on their way to YAML and back."""

import asyncio
import copy
import threading
from typing import Any

import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.core import serialization_security
from haystack.core.errors import DeserializationError
from haystack.core.serialization import allow_deserialization_module
from haystack.dataclasses import ChatMessage
from haystack.tools.tool import Tool
from tests.hooks.agents import Colour, both_colours, pages, work
from tests.hooks.parts import SyncStore

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    AlwaysOffload,
    ApproximateTokenCounter,
    BaseToolResultStore,
    CompactionHook,
    InMemoryToolResultStore,
    NeverOffload,
    OffloadOverChars,
    OffloadOverTokens,
    SlidingWindowCompactor,
    TiktokenCounter,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultPruningCompactor,
    ToolResultToolset,
)
from haybaler.references import offloaded_references

QUESTION = [ChatMessage.from_user("task")]


def reply(messages: list[ChatMessage]) -> ChatMessage:
    return work(6)(messages)


def fetch(step: int) -> str:
    return pages(3_000)(step=step)


def fetch_tool() -> Tool:
    parameters = {"type": "object", "properties": {"step": {"type": "integer"}}}
    return Tool(name="fetch", description="Fetches a page.", parameters=parameters, function=fetch)


class LockedStore(BaseToolResultStore):
    """Holds a lock, which cannot be copied."""

    def __init__(self) -> None:
        super().__init__(location="locked:")
        self._lock = threading.Lock()
        self.entries: dict[str, str | bytes] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def _put(self, path: str, content: str | bytes) -> None:
        with self._lock:
            self.entries[path] = content

    def _get(self, path: str) -> str | bytes:
        with self._lock:
            return self.entries[path]

    def _remove(self, path: str) -> None:
        with self._lock:
            self.entries.pop(path, None)


def agent_with(hooks: dict[Any, list[Any]], *tools: Any) -> Agent:
    return Agent(chat_generator=MockChatGenerator(response_fn=reply), tools=[fetch_tool(), *tools], hooks=hooks)


def run_pipeline(colour: Colour, pipeline: Pipeline, hook_context: dict[str, Any]) -> dict[str, Any]:
    data = {"agent": {"messages": QUESTION, "hook_context": hook_context}}
    if colour is Colour.SYNC:
        return pipeline.run(data)["agent"]  # type: ignore[no-any-return]
    return asyncio.run(pipeline.run_async(data))["agent"]  # type: ignore[no-any-return]


HOOKS: dict[str, Any] = {
    "hook": lambda store: {"after_tool": [ToolResultOffloadHook(store, {"*": AlwaysOffload()})]},
    "compactor": lambda store: {
        "before_llm": [CompactionHook(ToolResultOffloadCompactor(store), context_window=3_000)],
    },
    "ladder": lambda store: {
        "before_llm": [
            CompactionHook(ToolResultPruningCompactor(), context_window=1_000_000),
            CompactionHook(ToolResultOffloadCompactor(store, min_keep_steps=3), context_window=3_000),
            CompactionHook(ToolResultOffloadCompactor(store), context_window=3_000, compact_at=0.8),
            CompactionHook(SlidingWindowCompactor(), context_window=1_000_000),
        ],
        "before_tool": [ToolResultOffloadHook(store, {"other": AlwaysOffload()})],
        "after_tool": [ToolResultOffloadHook(store, {"fetch": OffloadOverChars(10_000)})],
    },
}


@both_colours
@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("store", [InMemoryToolResultStore, LockedStore])
def test_the_callers_own_store_gets_the_results(colour: Colour, store: Any, hooks: Any) -> None:
    """A pipeline deep-copies its inputs."""
    shared, own = InMemoryToolResultStore(), store()
    pipeline = Pipeline()
    pipeline.add_component("agent", agent_with(hooks(shared)))
    result = run_pipeline(colour, pipeline, {RESULT_STORE_CONTEXT_KEY: own.scoped("run")})
    moved = [message for message in result["messages"] if offloaded_references(message)]
    assert len(moved) == len(own) > 0
    assert len(shared) == 0
    for message in moved:
        step = message.tool_call_results[0].origin.arguments["step"]
        assert own.scoped("run").read(offloaded_references(message)[0]) == fetch(step)


@pytest.mark.anyio
async def test_a_generating_pipeline_uses_the_callers_own_store_too() -> None:
    own = InMemoryToolResultStore()
    pipeline = Pipeline()
    pipeline.add_component("agent", agent_with(HOOKS["hook"](InMemoryToolResultStore())))
    data = {"agent": {"messages": QUESTION, "hook_context": {RESULT_STORE_CONTEXT_KEY: own}}}
    async for _ in pipeline.run_async_generator(data):
        pass
    assert len(own) == 6


@both_colours
def test_a_copied_pipeline_keeps_the_hooks_store(colour: Colour) -> None:
    store = InMemoryToolResultStore()
    agent = agent_with(HOOKS["hook"](store))
    pipeline = Pipeline()
    pipeline.add_component("agent", agent)
    hook: Any = copy.deepcopy(agent.hooks["after_tool"][0])
    assert hook.store is store
    run_pipeline(colour, pipeline, {})
    assert len(store) == 6


EVERY_HOOK: dict[str, Any] = {
    "before_llm": [
        CompactionHook(
            ToolResultPruningCompactor(), context_window=5_000, token_counter=TiktokenCounter("cl100k_base")
        ),
        CompactionHook(
            ToolResultOffloadCompactor(InMemoryToolResultStore().scoped("a")),
            context_window=4_000,
            token_counter=ApproximateTokenCounter(3.5),
        ),
        CompactionHook(SlidingWindowCompactor(omission_note=None), context_window=3_000, compact_at=0.9),
    ],
    "after_tool": [
        ToolResultOffloadHook(
            InMemoryToolResultStore(),
            {
                "fetch": OffloadOverChars(100_000),
                ("a", "b"): NeverOffload(),
                "gh_*": OffloadOverTokens(7),
                "*": AlwaysOffload(),
            },
        )
    ],
}


def every_class() -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("agent", agent_with(EVERY_HOOK, ToolResultToolset(InMemoryToolResultStore(), page_chars=77)))
    return pipeline


@pytest.fixture
def only_haystack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget which modules were allowed."""
    monkeypatch.setattr(serialization_security, "_extra_allowed_modules", ["tests"])
    monkeypatch.delenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", raising=False)


@both_colours
@pytest.mark.usefixtures("only_haystack")
@pytest.mark.parametrize("allow", ["haybaler", "haybaler*", "haybaler.*"])
def test_every_class_comes_back_from_yaml_once_haybaler_is_allowed(colour: Colour, allow: str) -> None:
    allow_deserialization_module(allow)
    text = every_class().dumps()
    restored = Pipeline.loads(text)
    assert restored.dumps() == text
    result = run_pipeline(colour, restored, {})
    assert result["last_message"].text == "The answer."


@pytest.mark.usefixtures("only_haystack")
def test_without_that_haystack_says_what_to_do() -> None:
    text = every_class().dumps()
    with pytest.raises(DeserializationError, match=r"allow_deserialization_module\('haybaler"):
        Pipeline.loads(text)
    with pytest.raises(DeserializationError, match="'haybaler"):
        Agent.from_dict(every_class().get_component("agent").to_dict())  # type: ignore[attr-defined]
    Pipeline.loads(text, allowed_modules=["haybaler"])


@pytest.mark.usefixtures("only_haystack")
def test_an_agent_comes_back_from_its_dictionary() -> None:
    allow_deserialization_module("haybaler*")
    data = agent_with(EVERY_HOOK, ToolResultToolset()).to_dict()
    assert Agent.from_dict(copy.deepcopy(data)).to_dict() == data


def test_a_part_that_cannot_be_serialized_is_named_by_the_agent() -> None:
    class Nameless(SyncStore):
        def __init__(self, bucket: str) -> None:
            super().__init__()

    agent = agent_with({"after_tool": [ToolResultOffloadHook(Nameless("b"), {})]})
    with pytest.raises(Exception, match=r"Nameless.*bucket"):
        agent.to_dict()
