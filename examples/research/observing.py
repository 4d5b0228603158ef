"""What the demo sees of a run, by public means: hooks of its own, a store that notes its writes, a heartbeat."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import anyio
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks import FunctionHook

from haybaler import ApproximateTokenCounter, StoreEntry, StoreError, TiktokenCounter
from haybaler_filesystem import FileSystemToolResultStore


def meter() -> ApproximateTokenCounter | TiktokenCounter:
    """Return what tokens are measured with: tiktoken where its vocabulary is at hand, for it would download it."""
    if os.environ.get("TIKTOKEN_CACHE_DIR"):
        return TiktokenCounter()
    return ApproximateTokenCounter(chars_per_token=4.3)  # Python's source, by OpenAI's current vocabulary


@dataclass(frozen=True)
class Written:
    references: list[str]
    size: int
    seconds: float


class NotingStore(FileSystemToolResultStore):
    """The file store, noting each batch that is written."""

    def __init__(self, root: str) -> None:
        super().__init__(root, references="relative")
        self.written: list[Written] = []

    async def write_many_async(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        started = perf_counter()
        outcomes = await super().write_many_async(entries)
        seconds = perf_counter() - started
        stored = [entry for entry, outcome in zip(entries, outcomes, strict=True) if isinstance(outcome, str)]
        self.written.append(Written([self.reference(entry.key) for entry in stored], sum(map(_size, stored)), seconds))
        return outcomes


@dataclass
class Step:
    """One call of the model: which tools had answered, and the conversation before and after other hooks, in tokens."""

    tools: str
    before: int
    after: int = 0
    written: list[Written] = field(default_factory=list)


class Observer:
    """Two hooks around others that measure what the model is sent."""

    def __init__(self, store: NotingStore | None = None) -> None:
        self.steps: list[Step] = []
        self._meter = meter()
        self._store = store

    def around(self, *hooks: Any) -> list[Any]:
        return [FunctionHook(async_function=self._before), *hooks, FunctionHook(async_function=self._after)]

    async def warm_up(self) -> None:
        await self._meter.count_async([ChatMessage.from_user("Hello")])

    async def _before(self, state: State) -> None:
        self.steps.append(Step(_answered(state.data["messages"]), await self._measured(state)))
        self._seen = len(self._store.written) if self._store else 0

    async def _after(self, state: State) -> None:
        self.steps[-1].after = await self._measured(state)
        self.steps[-1].written = self._store.written[self._seen :] if self._store else []

    async def _measured(self, state: State) -> int:
        return await self._meter.count_async(state.data["messages"], state.data["tools"])

    def usage(self, text: str | None, calls: list[ToolCall]) -> dict[str, int]:
        """Return what a provider would report for the reply to what has just been measured."""
        reply = self._meter.count([ChatMessage.from_assistant(text, tool_calls=calls)])
        return {"prompt_tokens": self.steps[-1].after, "completion_tokens": reply}

    @property
    def peak(self) -> int:
        return max(step.after for step in self.steps)

    @property
    def compactions(self) -> int:
        return sum(step.after < step.before for step in self.steps)


def _size(entry: StoreEntry) -> int:
    return len(entry.content.encode() if isinstance(entry.content, str) else entry.content)


def _answered(messages: list[ChatMessage]) -> str:
    if not messages[-1].tool_call_results:
        return "(the task)"
    latest = next(message for message in reversed(messages) if message.tool_calls).tool_calls
    names = ", ".join(str(call.arguments["name"]) for call in latest if "name" in call.arguments)
    return f"{latest[0].tool_name} {names}".strip()


class Heartbeat:
    """The longest time in seconds for which the event loop did not get round to a task that only wanted to wake up."""

    EVERY = 0.001

    def __init__(self) -> None:
        self.longest_stall = 0.0

    @asynccontextmanager
    async def beating(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(self._beat)
            yield
            group.cancel_scope.cancel()

    async def _beat(self) -> None:
        while True:
            started = perf_counter()
            await anyio.sleep(self.EVERY)
            self.longest_stall = max(self.longest_stall, perf_counter() - started - self.EVERY)
