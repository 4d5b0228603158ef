"""Counters, compactors and stores for tests, each as somebody else might write it."""

from collections import Counter
from threading import Lock
from typing import Any

from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage
from haystack.hooks.compaction import Compactor
from haystack.tools import ToolsType


class CountingCounter:
    """
    Counts a token for each four characters of text, results and arguments, and how often it is asked.

    :param tokens_per_tool: The size of each tool's schema.
    """

    counts_inline = True

    def __init__(self, tokens_per_tool: int = 10) -> None:
        self.tokens_per_tool = tokens_per_tool
        self.asked: Counter[int] = Counter()
        self.tools_asked = 0
        self.kept: list[ChatMessage] = []  # so that no id is given away twice
        self._lock = Lock()

    @property
    def calls(self) -> int:
        return self.asked.total() + self.tools_asked

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        with self._lock:
            self.asked.update(map(id, messages))
            self.kept.extend(messages)
            self.tools_asked += bool(tools)
        return sum(map(size_of, messages)) + self.tokens_per_tool * len(list(tools or []))

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, tokens_per_tool=self.tokens_per_tool)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "CountingCounter":
        return default_from_dict(cls, data)


def size_of(message: ChatMessage) -> int:
    """Return a message's size as `CountingCounter` sees it."""
    texts = [message.text or ""]
    texts += [str(result.result) for result in message.tool_call_results]
    texts += [str(tool_call.arguments) for tool_call in message.tool_calls]
    return sum(map(len, texts)) // 4


class DropOldest(Compactor):
    """
    Somebody's own compactor, written against Haystack's protocol.

    It keeps the first message and the newest ones, and remembers what it was asked.

    :param keep: How many of the newest messages stay.
    """

    def __init__(self, keep: int = 3) -> None:
        self.keep = keep
        self.targets: list[int] = []

    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        self.targets.append(target_tokens)
        return [messages[0], *messages[-self.keep :]] if len(messages) > self.keep + 1 else None

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, keep=self.keep)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "DropOldest":
        return default_from_dict(cls, data)


class SyncStore:
    """Somebody's own store in memory, with the two methods that Haystack asks for."""

    supports_binary_content = True

    def __init__(self) -> None:
        self.entries: dict[str, str | bytes] = {}

    def write(self, *, key: str, content: str | bytes) -> str:
        self.entries[key] = content
        return key

    def read(self, reference: str) -> str | bytes:
        return self.entries[reference]

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "SyncStore":
        return default_from_dict(cls, data)

    def __len__(self) -> int:
        return len(self.entries)


class AsyncStore:
    """Somebody's own store with nothing but coroutine functions."""

    supports_binary_content = True

    def __init__(self) -> None:
        self.entries: dict[str, str | bytes] = {}

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        self.entries[key] = content
        return key

    async def read_async(self, reference: str) -> str | bytes:
        return self.entries[reference]

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self)
