"""A run that is cancelled anywhere leaves a conversation that is old or new, and a store without orphans."""

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, TextContent
from haystack.hooks import FunctionHook
from tests.hooks.agents import ScriptedModel, agent_state, answered, call, calling, conversation, pages, tool, work
from tests.hooks.parts import CountingCounter

from haybaler import (
    AlwaysOffload,
    BaseToolResultStore,
    CompactionHook,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultPruningCompactor,
)
from haybaler.errors import StoreError
from haybaler.references import offloaded_references
from haybaler.testing import each_cancellation


class RemoteStore(BaseToolResultStore):
    """Every operation waits before and after it takes effect, as one over a network does."""

    def __init__(self) -> None:
        super().__init__(location="remote:")
        self.entries: dict[str, str | bytes] = {}

    async def _put_async(self, path: str, content: str | bytes) -> None:
        await asyncio.sleep(0)
        self.entries[path] = content
        await asyncio.sleep(0)

    async def _get_async(self, path: str) -> str | bytes:
        await asyncio.sleep(0)
        return self.entries[path]

    async def _remove_async(self, path: str) -> None:
        await asyncio.sleep(0)
        self.entries.pop(path, None)
        await asyncio.sleep(0)


class MemoryStore(BaseToolResultStore):
    """Has synchronous methods only, so its writes go to worker threads."""

    def __init__(self) -> None:
        super().__init__(location="threads:")
        self.entries: dict[str, str | bytes] = {}

    def _put(self, path: str, content: str | bytes) -> None:
        self.entries[path] = content

    def _get(self, path: str) -> str | bytes:
        return self.entries[path]

    def _remove(self, path: str) -> None:
        self.entries.pop(path, None)


class ForeignStore:
    """Knows neither batches nor what a reference will be."""

    supports_binary_content = False

    def __init__(self) -> None:
        self.entries: dict[str, str | bytes] = {}

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        await asyncio.sleep(0)
        self.entries[key] = content
        return key

    async def delete_async(self, references: list[str]) -> None:
        await asyncio.sleep(0)
        for reference in references:
            self.entries.pop(reference, None)


class ReluctantCounter(CountingCounter):
    """Counts natively, with a pause for each call."""

    def __init__(self) -> None:
        super().__init__()
        self.counts_inline: Any = None

    async def count_async(self, messages: list[ChatMessage], tools: Any = None) -> int:
        await asyncio.sleep(0)
        return self.count(messages, tools)


def history() -> list[ChatMessage]:
    messages = [ChatMessage.from_user("task")]
    for step in range(1, 6):
        made = call("fetch", step)
        messages += [calling(made), answered(made, [TextContent(pages(2_000)(step=step)), TextContent("x" * 900)])]
    return messages


def compaction(compactor: Any) -> CompactionHook:
    return CompactionHook(compactor, context_window=3_000, token_counter=ReluctantCounter())


HOOKS: dict[str, Callable[[Any], Any]] = {
    "offload hook": lambda store: ToolResultOffloadHook(store, {"*": AlwaysOffload()}, token_counter=ReluctantCounter()),
    "offloading compactor": lambda store: compaction(ToolResultOffloadCompactor(store)),
    "sliding window": lambda store: compaction(SlidingWindowCompactor()),
    "pruning": lambda store: compaction(ToolResultPruningCompactor()),
}
STORES: dict[str, Callable[[], Any]] = {"remote": RemoteStore, "threads": MemoryStore}


async def settled() -> None:
    """Wait until nothing is left of what was cancelled, and see that this is so."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


def references(messages: list[ChatMessage]) -> list[str]:
    return [reference for message in messages for reference in offloaded_references(message)]


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_cancelled_hook_has_done_all_or_nothing(hook: Any, store: Any) -> None:
    before = history()
    tried: list[tuple[Any, State]] = []

    async def operation() -> None:
        tried.append((store(), agent_state(before, hook_context={})))
        await hook(tried[-1][0]).run_async(tried[-1][1])

    interrupted = 0
    for by, step, reached in each_cancellation(operation, afterwards=settled):
        made, state = tried[-1]
        after = conversation(state)
        where = f"{by} at suspension {step}"
        if all(a is b for a, b in zip(after, before, strict=False)) and len(after) == len(before):
            assert made.entries == {}, where
            interrupted += 1
        else:
            assert sorted(made.reference("")[:0] + r for r in references(after)) == sorted(
                f"{made._prefix}{path}" for path in made.entries
            ), where
        assert not state.data.get("context_tokens"), where
        if not reached:
            assert after != before, where
    assert interrupted >= 3


def test_a_cancelled_run_leaves_no_orphan_in_a_store_that_cannot_predict_its_references() -> None:
    """Only what was confirmed is known by its reference; here nothing is confirmed before all is."""
    stores: list[ForeignStore] = []

    async def operation() -> None:
        stores.append(ForeignStore())
        state = agent_state(history()[:3])
        await ToolResultOffloadHook(stores[-1], {"*": AlwaysOffload()}).run_async(state)

    for _, _, reached in each_cancellation(operation, afterwards=settled):
        assert len(stores[-1].entries) <= 2
        assert reached or len(stores[-1].entries) == 2


def test_a_cancelled_agent_can_run_again_with_the_same_hooks_and_store() -> None:
    store = RemoteStore()
    counter = ReluctantCounter()
    states: list[State] = []

    def watch(state: State) -> None:
        states.append(state)

    agent = Agent(
        chat_generator=ScriptedModel(work(4, calls=2)),
        tools=[tool("fetch", pages(2_000))],
        hooks={
            "before_llm": [
                CompactionHook(ToolResultOffloadCompactor(store), context_window=2_000, token_counter=counter),
                FunctionHook(function=watch),
            ],
            "after_tool": [ToolResultOffloadHook(store, {"list": AlwaysOffload()}, token_counter=counter)],
        },
    )

    async def operation() -> None:
        states.clear()
        store.entries.clear()
        await agent.run_async([ChatMessage.from_user("task")])

    async def afterwards() -> None:
        await settled()
        left = {f"{store._prefix}{path}" for path in store.entries}
        known = set(references(conversation(states[-1]))) if states else set()
        assert left <= known
        result = await agent.run_async([ChatMessage.from_user("task")])
        assert result["last_message"].text == "The answer."

    threads = set(threading.enumerate())
    reached = [step for _, step, reached in each_cancellation(operation, afterwards=afterwards) if reached]
    assert len(reached) > 50
    for thread in set(threading.enumerate()) - threads:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["hook", "compactor"])
async def test_a_write_that_hangs_in_a_thread_holds_up_nobody_and_leaves_nothing(kind: str) -> None:
    """Row 16, and the timeout of row 15 for a store that blocks its thread."""
    entered, release, gone = threading.Event(), threading.Event(), threading.Event()

    class Hanging(MemoryStore):
        def _put(self, path: str, content: str | bytes) -> None:
            entered.set()
            release.wait(30)
            super()._put(path, content)

        def _remove(self, path: str) -> None:
            super()._remove(path)
            if release.is_set():
                gone.set()

    store = Hanging()
    state = agent_state(history()[:3] if kind == "hook" else history())
    hook: Any = (
        ToolResultOffloadHook(store, {"*": AlwaysOffload()}, write_timeout=0.05)
        if kind == "hook"
        else compaction(ToolResultOffloadCompactor(store, write_timeout=0.05))
    )
    try:
        async with asyncio.timeout(10):
            await hook.run_async(state)
    finally:
        release.set()
    assert references(conversation(state)) == []
    async with asyncio.timeout(10):
        while not gone.is_set() or store.entries:
            await asyncio.sleep(0.001)


@pytest.mark.anyio
async def test_cancelling_a_run_during_a_write_in_a_thread_leaves_nothing() -> None:
    """Row 16: the thread cannot be stopped, so it takes back itself what nobody waits for any more."""
    entered, release, gone = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def _put(self, path: str, content: str | bytes) -> None:
            entered.set()
            release.wait(30)
            super()._put(path, content)

        def _remove(self, path: str) -> None:
            super()._remove(path)
            if release.is_set():
                gone.set()

    store = Slow()
    state = agent_state(history()[:3])
    task = asyncio.create_task(ToolResultOffloadHook(store, {"*": AlwaysOffload()}).run_async(state))
    while not entered.is_set():
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(10):
            await task
    release.set()
    async with asyncio.timeout(10):
        while not gone.is_set() or store.entries:
            await asyncio.sleep(0.001)


@pytest.mark.anyio
async def test_a_run_that_is_dropped_with_its_loop_warns_of_nothing() -> None:
    """A coroutine that is closed cannot await its clean-up any more."""
    hook = ToolResultOffloadHook(RemoteStore(), {"*": AlwaysOffload()}, token_counter=ReluctantCounter())
    for suspensions in range(1, 12):
        running = hook.run_async(agent_state(history()))
        for _ in range(suspensions):
            try:
                running.send(None)
            except (StopIteration, StoreError):
                break
            except RuntimeError:
                break  # a task group outside its task
        running.close()
    gc.collect()
