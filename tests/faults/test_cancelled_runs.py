"""A run that is cancelled anywhere leaves a conversation that is old or new, and a store without orphans."""

import asyncio
import gc
import threading
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, TextContent
from haystack.hooks import FunctionHook
from tests.hooks.agents import ScriptedModel, agent_state, answered, call, calling, conversation, pages, tool, work
from tests.hooks.parts import CountingCounter, SyncStore

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

    async def read_async(self, reference: str) -> str | bytes:
        return self.entries[reference]

    async def delete_async(self, references: list[str]) -> None:
        await asyncio.sleep(0)
        for reference in references:
            self.entries.pop(reference, None)


class SlowerAndSlower(ForeignStore):
    """Takes a little longer for each entry, so that some are written and others are not."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = self.deleted = 0

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        self.begun += 1
        for _ in range(3 * self.begun):
            await asyncio.sleep(0)
        self.entries[key] = content
        return key

    async def delete_async(self, references: list[str]) -> None:
        self.deleted += len(references)
        await super().delete_async(references)


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
    "offload hook": lambda store: ToolResultOffloadHook(
        store, {"*": AlwaysOffload()}, token_counter=ReluctantCounter()
    ),
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


def no_threads_left() -> None:
    """Wait for the worker threads of a loop that is closed, which may still be taking something back."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and "worker" in thread.name.lower():
            thread.join(10)
            assert not thread.is_alive()


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
        no_threads_left()
        made, state = tried[-1]
        after = conversation(state)
        where = f"{by} at suspension {step}"
        if all(a is b for a, b in zip(after, before, strict=False)) and len(after) == len(before):
            assert made.entries == {}, where
            interrupted += 1
        else:
            assert sorted(references(after)) == sorted(f"{made._prefix}{path}" for path in made.entries), where
        assert not state.data.get("context_tokens"), where
        if not reached:
            assert after != before, where
    assert interrupted >= 3


def test_a_cancelled_run_leaves_no_orphan_in_a_store_that_cannot_predict_its_references() -> None:
    """What is confirmed is known by its reference at once, while others of its batch are being written."""
    stores: list[SlowerAndSlower] = []
    most = 0

    async def operation() -> None:
        stores.append(SlowerAndSlower())
        state = agent_state(history()[:3])
        await ToolResultOffloadHook(stores[-1], {"*": AlwaysOffload()}).run_async(state)

    for by, step, reached in each_cancellation(operation, afterwards=settled):
        left = len(stores[-1].entries)
        assert left == 0 if reached and stores[-1].deleted else left in {0, 2}, f"{by} at suspension {step}"
        assert reached or left == 2
        most = max(most, stores[-1].deleted)
    assert most == 2


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

    reached = [step for _, step, reached in each_cancellation(operation, afterwards=afterwards) if reached]
    assert len(reached) > 50
    no_threads_left()


class Doors:
    """What a thread waits at in the middle of a write, and who went through."""

    def __init__(self) -> None:
        self.entered, self.release, self.taken_back = threading.Event(), threading.Event(), threading.Event()

    def write(self) -> None:
        self.entered.set()
        self.release.wait(60)

    def delete(self) -> None:
        if self.release.is_set():
            self.taken_back.set()


class HangingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.doors = Doors()

    def _put(self, path: str, content: str | bytes) -> None:
        self.doors.write()
        super()._put(path, content)

    def _remove(self, path: str) -> None:
        super()._remove(path)
        self.doors.delete()


class HangingForeignStore(SyncStore):
    def __init__(self) -> None:
        super().__init__()
        self.doors = Doors()

    def write(self, *, key: str, content: str | bytes) -> str:
        self.doors.write()
        return super().write(key=key, content=content)

    def delete(self, references: Sequence[str]) -> None:
        for reference in references:
            self.entries.pop(reference, None)
        self.doors.delete()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.001)


@pytest.mark.anyio
@pytest.mark.parametrize("make_store", [HangingStore, HangingForeignStore])
@pytest.mark.parametrize("ended_by", ["timeout of the hook", "timeout of the compactor", "cancellation", "scope"])
async def test_a_write_that_hangs_in_a_thread_holds_up_nobody(make_store: Any, ended_by: str) -> None:
    """
    The thread cannot be stopped. The references of a foreign store are its own, so what nobody waits for is taken back;
    the keys of haybaler's stores may be written again, so there what was written late stays.
    """
    store = make_store()
    before = history() if "compactor" in ended_by else history()[:3]
    state = agent_state(before)
    timeout = 0.02 if "timeout" in ended_by else None
    hook: Any = (
        compaction(ToolResultOffloadCompactor(store, write_timeout=timeout))
        if "compactor" in ended_by
        else ToolResultOffloadHook(store, {"*": AlwaysOffload()}, write_timeout=timeout)
    )
    scope = anyio.CancelScope()

    async def run() -> None:
        with scope:
            await hook.run_async(state)

    try:
        task = asyncio.create_task(run())
        await until(store.doors.entered.is_set)
        if ended_by == "cancellation":
            task.cancel()
        elif ended_by == "scope":
            scope.cancel()
        await until(task.done)
        assert task.cancelled() is (ended_by == "cancellation")
    finally:
        store.doors.release.set()
    assert conversation(state) == before
    if make_store is HangingForeignStore:
        await until(lambda: store.doors.taken_back.is_set() and not store.entries)


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
