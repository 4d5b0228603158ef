"""
What people write against haybaler type-checks under `mypy --strict`, and what is wrong is refused.

The type checker reads this module with the rest of the tests; an ignored error that is none is an error there.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage
from haystack.hooks import compaction as stock
from haystack.hooks import tool_result_offloading as stock_offloading
from haystack.hooks.protocol import Hook, HookPoint
from haystack.token_counters import ApproximateTokenCounter as StockTokenCounter
from haystack.tools import ToolsType
from tests.hooks.agents import ScriptedModel, work

from haybaler import (
    AlwaysOffload,
    BaseToolResultStore,
    CompactionHook,
    Compactor,
    InMemoryToolResultStore,
    NeverOffload,
    OffloadOverChars,
    OffloadOverTokens,
    OffloadPolicy,
    SlidingWindowCompactor,
    StoreEntry,
    StoreError,
    TiktokenCounter,
    TokenCounter,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultPruningCompactor,
    ToolResultStore,
    WriteBehindHook,
    store_from_url,
)
from haybaler_filesystem import FileSystemToolResultStore

pytestmark = pytest.mark.filterwarnings("ignore::haystack.utils.experimental.ExperimentalWarning")


class OwnCompactor(Compactor):
    def compact(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        return messages[-1:] if token_counter.count(messages) > target_tokens else None

    async def compact_async(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: TokenCounter
    ) -> list[ChatMessage] | None:
        return messages[-1:] if await token_counter.count_async(messages) > target_tokens else None

    def for_run(self, hook_context: Mapping[str, Any]) -> Self:
        return self

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return default_from_dict(cls, data)


class OwnCounter(TokenCounter):
    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        return len(messages)

    async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        return len(messages)

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return default_from_dict(cls, data)


class OwnPolicy:
    def should_offload(self, tool_name: str, result: str, state: State) -> bool:
        return tool_name.startswith("web") and len(result) > 10

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return default_from_dict(cls, data)


class OwnTokenPolicy:
    def should_offload_tokens(self, tool_name: str, tokens: int, state: State) -> bool:
        return tokens > 10


class OwnStore(BaseToolResultStore):
    def __init__(self, limit: int) -> None:
        super().__init__(location="own:")
        self.limit = limit
        self._entries: dict[str, str | bytes] = {}

    def _settings(self) -> dict[str, Any]:
        return {"limit": self.limit}

    def _put(self, path: str, content: str | bytes) -> None:
        if len(content) > self.limit:
            raise StoreError("Too large.")
        self._entries[path] = content

    def _get(self, path: str) -> str | bytes:
        return self._entries[path]

    def _remove(self, path: str) -> None:
        self._entries.pop(path, None)


class OwnAsyncStore:
    supports_binary_content = False

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        return key

    async def read_async(self, reference: str) -> str | bytes:
        return reference


def test_ones_own_parts_are_accepted(tmp_path: Path) -> None:
    compaction = CompactionHook(OwnCompactor(), context_window=100, token_counter=OwnCounter())
    offloading = ToolResultOffloadHook(
        OwnStore(limit=1_000),
        {"web_*": OwnPolicy(), ("a", "b"): OwnTokenPolicy(), "*": OffloadOverTokens(5)},
        token_counter=OwnCounter(),
    )
    behind = WriteBehindHook()
    hooks: dict[HookPoint, list[Hook]] = {
        "before_run": [behind],
        "before_llm": [compaction],
        "after_tool": [offloading],
        "after_run": [behind],
    }
    agent = Agent(chat_generator=ScriptedModel(work(0)), hooks=hooks)
    assert agent.run([ChatMessage.from_user("task")])["last_message"].text == "The answer."
    ToolResultOffloadHook(OwnAsyncStore(), {})
    ToolResultOffloadHook(FileSystemToolResultStore(tmp_path), {"*": AlwaysOffload()})
    CompactionHook(ToolResultOffloadCompactor(FileSystemToolResultStore(tmp_path)), context_window=100)
    CompactionHook(ToolResultOffloadCompactor(OwnAsyncStore()), context_window=100)


def test_strategies_may_be_put_together_before() -> None:
    strategies: dict[str | tuple[str, ...], OffloadPolicy] = {"search": AlwaysOffload(), ("a", "b"): NeverOffload()}
    ToolResultOffloadHook(InMemoryToolResultStore(), strategies)


def test_haystacks_parts_are_accepted(tmp_path: Path) -> None:
    store = stock_offloading.FileSystemToolResultStore(root=str(tmp_path))
    CompactionHook(stock.SlidingWindowCompactor(), context_window=100, token_counter=StockTokenCounter())
    CompactionHook(stock.ToolResultPruningCompactor(), context_window=100)
    CompactionHook(ToolResultOffloadCompactor(store), context_window=100)
    ToolResultOffloadHook(store, {"*": stock_offloading.AlwaysOffload(), "x": OffloadOverChars(3)})
    SlidingWindowCompactor().compact([], 10, StockTokenCounter())


def test_haystack_accepts_haybalers_parts() -> None:
    store = InMemoryToolResultStore()
    stock.CompactionHook(SlidingWindowCompactor(), context_window=100, token_counter=TiktokenCounter("cl100k_base"))
    stock.CompactionHook(ToolResultPruningCompactor(), context_window=100)
    stock.CompactionHook(ToolResultOffloadCompactor(store), context_window=100)
    stock.ToolResultOffloadCompactor(store=store)
    stock_offloading.ToolResultOffloadHook(store, {"*": AlwaysOffload(), "x": OffloadOverChars(3)})


def test_what_a_store_gives_has_a_type(tmp_path: Path) -> None:
    store: ToolResultStore = InMemoryToolResultStore()
    reference: str = store.write(key="k", content="text")
    content: str | bytes = store.read(reference)
    outcomes: list[str | StoreError] = store.write_many([StoreEntry("a", b"bytes")])
    scoped: InMemoryToolResultStore = InMemoryToolResultStore().scoped("a")
    from_url: ToolResultStore = store_from_url("memory://")
    restored: OwnStore = OwnStore.from_dict(OwnStore(limit=5).to_dict())
    assert (content, len(outcomes), restored.limit) == ("text", 1, 5)
    assert scoped.reference("k") != from_url.reference("k")

    async def read() -> str | bytes:
        async with FileSystemToolResultStore(tmp_path) as files:
            return await files.read_async(await files.write_async(key="k", content="text"))

    assert asyncio.run(read()) == "text"


def test_what_is_no_such_part_is_refused_by_the_type_checker() -> None:
    CompactionHook("a string", context_window=100)  # type: ignore[arg-type]
    CompactionHook(OwnStore(limit=5), context_window=100)  # type: ignore[arg-type]
    CompactionHook(OwnCompactor(), context_window=100, token_counter=OwnPolicy())  # type: ignore[arg-type]
    ToolResultOffloadHook(OwnCounter(), {})  # type: ignore[arg-type]
    ToolResultOffloadHook(OwnStore(limit=5), {"*": OwnCounter()})  # type: ignore[dict-item]
    ToolResultOffloadCompactor(OwnPolicy())  # type: ignore[arg-type]
