"""A cancelled compaction leaves the conversation as it was, and nothing in the store."""

import asyncio
import copy
from threading import Event
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, ImageContent, TextContent
from tests.compactors.conversations import PNG
from tests.compactors.subjects import MAKERS
from tests.compactors.test_tool_results import TEXT, conversation

from haybaler import ApproximateTokenCounter, InMemoryToolResultStore, ToolResultOffloadCompactor
from haybaler.compactors.protocol import SteppedCompactor
from haybaler.effects import Effect, Steps, await_effect, perform_async
from haybaler.errors import StoreError
from haybaler.stores.memory import InMemoryToolResultStore as Memory
from haybaler.testing import Fault, FaultyStore, each_cancellation
from haybaler.workers import run_in_worker

Faults = dict[int, Fault]

SCRIPTS: dict[str, Faults] = {
    "all writes succeed": {},
    "a part fails": {3: Fault(error=StoreError("refused"))},
    "the first batch fails": {n: Fault(error=StoreError("refused")) for n in range(1, 4)},
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_cancelled_compaction_leaves_no_entry(script: str) -> None:
    image = ImageContent(base64_image=PNG, mime_type="image/png")
    messages = conversation(TEXT, [TextContent(TEXT), image], TEXT, TEXT)
    original = copy.deepcopy(messages)
    memories: list[Memory] = []
    results: list[list[ChatMessage] | None] = []

    async def compact() -> None:
        memories.append(Memory())
        results.append(None)
        compactor = ToolResultOffloadCompactor(FaultyStore(memories[-1], writes=SCRIPTS[script], limit=2))
        results[-1] = await compactor.compact_async(messages, 600, ApproximateTokenCounter())

    cancelled = 0
    for by, step, reached in each_cancellation(compact):
        cancelled += reached
        assert messages == original
        if results[-1] is None:
            assert len(memories[-1]) == 0, f"{by} at suspension {step}"
        else:
            references = {r for m in results[-1] for r in m.meta.get("tool_result_offloaded", [])}
            assert len(memories[-1]) == len(references)
    assert cancelled > 20


def test_a_large_batch_is_settled_off_the_loop_and_cancelled_as_well_there() -> None:
    messages = conversation(*[TEXT] * 120)
    stores: list[Memory] = []
    results: list[list[ChatMessage] | None] = []

    async def compact() -> None:
        stores.append(Memory())
        results.append(None)
        results[-1] = await ToolResultOffloadCompactor(stores[-1]).compact_async(messages, 0, ApproximateTokenCounter())

    for _ in each_cancellation(compact):
        assert len(stores[-1]) == (0 if results[-1] is None else 120)
    assert results[-1] is not None


@pytest.mark.parametrize("name", MAKERS)
def test_every_compactor_can_be_cancelled_anywhere(name: str) -> None:
    messages = conversation(TEXT, TEXT, TEXT)
    original = copy.deepcopy(messages)
    stores: list[Memory] = []
    results: list[list[ChatMessage] | None] = []

    async def compact() -> None:
        stores.append(Memory())
        results.append(None)
        compactor: SteppedCompactor = MAKERS[name](stores[-1])
        results[-1] = await compactor.compact_async(messages, 600, ApproximateTokenCounter())

    for _ in each_cancellation(compact):
        assert messages == original
        assert results[-1] is not None or len(stores[-1]) == 0


def test_a_compaction_that_is_closed_with_its_loop_ends_quietly() -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=1))
    coroutine = ToolResultOffloadCompactor(store).compact_async(conversation(TEXT), 0, ApproximateTokenCounter())
    with pytest.raises(RuntimeError, match="event loop"):
        coroutine.send(None)
    coroutine.close()

    seen: list[str] = []

    async def forever() -> None:
        await Suspended()

    def steps() -> Steps[None]:
        try:
            yield from await_effect(Effect(lambda: None, forever))
        finally:
            seen.append("ended")

    hanging = perform_async(steps())
    hanging.send(None)
    hanging.close()
    assert seen == ["ended"]


class Suspended:
    def __await__(self) -> Any:
        yield


def test_an_interrupted_synchronous_compaction_removes_what_it_wrote() -> None:
    class Interrupted(Memory):
        def write_many(self, entries: Any) -> Any:
            super().write_many(entries)
            raise KeyboardInterrupt

    store = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        ToolResultOffloadCompactor(store).compact(conversation(TEXT), 0, ApproximateTokenCounter())
    assert len(store) == 0


class SlowStore:
    """Somebody's synchronous store: the task may be cancelled while the thread still writes."""

    supports_binary_content = True

    def __init__(self) -> None:
        self.entries: dict[str, str | bytes] = {}
        self.writing, self.go_on, self.removed = Event(), Event(), Event()

    def write(self, *, key: str, content: str | bytes) -> str:
        self.writing.set()
        self.go_on.wait()
        self.entries[key] = content
        return key

    def delete(self, references: list[str]) -> None:
        for reference in references:
            del self.entries[reference]
        self.removed.set()


@pytest.mark.anyio
@pytest.mark.parametrize("by", ["task", "timeout"])
async def test_a_thread_that_still_writes_for_a_cancelled_run_removes_its_entry(by: str) -> None:
    store: Any = SlowStore()
    compactor = ToolResultOffloadCompactor(store, write_timeout=None if by == "task" else 0.01)
    compaction = asyncio.create_task(compactor.compact_async(conversation(TEXT), 0, ApproximateTokenCounter()))
    await run_in_worker(store.writing.wait)
    try:
        if by == "task":
            compaction.cancel()
            with pytest.raises(asyncio.CancelledError):
                await compaction
        else:
            assert await compaction is None
        assert not store.removed.is_set()
    finally:
        store.go_on.set()
    await run_in_worker(store.removed.wait)
    assert not store.entries
