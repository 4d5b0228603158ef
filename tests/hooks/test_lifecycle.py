"""Warming up and closing reach every part of a hook, and a part that fails ends no run."""

import logging
import threading
from typing import Any

import pytest
from haystack.components.agents import Agent
from tests.hooks.agents import Colour, ScriptedModel, both_colours, work
from tests.hooks.parts import CountingCounter, DropOldest, SyncStore

from haybaler import (
    AlwaysOffload,
    CompactionHook,
    InMemoryToolResultStore,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
)
from haybaler.testing import FaultyStore

Hook = CompactionHook | ToolResultOffloadHook


class Lifecycle:
    """The four methods; each call is noted with the thread that made it."""

    error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[str, threading.Thread]] = []

    def _note(self, name: str) -> None:
        self.noted.append((name, threading.current_thread()))
        if self.error is not None:
            raise self.error

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.noted]


class BothColours(Lifecycle):
    def warm_up(self) -> None:
        self._note("warm_up")

    async def warm_up_async(self) -> None:
        self._note("warm_up_async")

    def close(self) -> None:
        self._note("close")

    async def close_async(self) -> None:
        self._note("close_async")


class SyncOnly(Lifecycle):
    def warm_up(self) -> None:
        self._note("warm_up")

    def close(self) -> None:
        self._note("close")


class AsyncOnly(Lifecycle):
    async def warm_up_async(self) -> None:
        self._note("warm_up_async")

    async def close_async(self) -> None:
        self._note("close_async")


class CompactorOfBothColours(BothColours, DropOldest): ...


class CompactorSyncOnly(SyncOnly, DropOldest): ...


class CompactorAsyncOnly(AsyncOnly, DropOldest): ...


class CounterOfBothColours(BothColours, CountingCounter): ...


class CounterSyncOnly(SyncOnly, CountingCounter): ...


class CounterAsyncOnly(AsyncOnly, CountingCounter): ...


class StoreOfBothColours(BothColours, SyncStore): ...


class StoreSyncOnly(SyncOnly, SyncStore): ...


class StoreAsyncOnly(AsyncOnly, SyncStore): ...


def with_compactor(part: Any) -> Hook:
    return CompactionHook(part, context_window=100)


def with_counter(part: Any) -> Hook:
    return CompactionHook(DropOldest(), context_window=100, token_counter=part)


def with_store_of_a_compactor(part: Any) -> Hook:
    return CompactionHook(ToolResultOffloadCompactor(part), context_window=100)


def with_store(part: Any) -> Hook:
    return ToolResultOffloadHook(part, {"*": AlwaysOffload()})


def with_counter_of_offloading(part: Any) -> Hook:
    return ToolResultOffloadHook(InMemoryToolResultStore(), {}, token_counter=part)


PARTS = [
    (with_compactor, CompactorOfBothColours, CompactorSyncOnly, CompactorAsyncOnly),
    (with_counter, CounterOfBothColours, CounterSyncOnly, CounterAsyncOnly),
    (with_counter_of_offloading, CounterOfBothColours, CounterSyncOnly, CounterAsyncOnly),
    (with_store, StoreOfBothColours, StoreSyncOnly, StoreAsyncOnly),
    (with_store_of_a_compactor, StoreOfBothColours, StoreSyncOnly, StoreAsyncOnly),
]
each_part = pytest.mark.parametrize(
    ("hook_with", "both", "sync_only", "async_only"), PARTS, ids=[part[0].__name__ for part in PARTS]
)


@both_colours
@each_part
def test_the_form_of_the_callers_colour_is_called(
    colour: Colour, hook_with: Any, both: Any, sync_only: Any, async_only: Any
) -> None:
    part = both()
    hook = hook_with(part)
    colour.call(hook, "warm_up")
    colour.call(hook, "close")
    suffix = "_async" if colour is Colour.ASYNC else ""
    assert part.names == [f"warm_up{suffix}", f"close{suffix}"]


@each_part
def test_what_is_only_synchronous_runs_in_a_worker_of_an_asynchronous_caller(
    hook_with: Any, both: Any, sync_only: Any, async_only: Any
) -> None:
    part = sync_only()
    hook = hook_with(part)
    Colour.ASYNC.call(hook, "warm_up")
    Colour.ASYNC.call(hook, "close")
    assert part.names == ["warm_up", "close"]
    assert all(thread is not threading.main_thread() for _, thread in part.noted)
    Colour.SYNC.call(hook, "warm_up")
    assert part.noted[-1] == ("warm_up", threading.main_thread())


@each_part
def test_what_is_only_asynchronous_is_left_out_by_a_synchronous_caller(
    hook_with: Any, both: Any, sync_only: Any, async_only: Any
) -> None:
    part = async_only()
    hook = hook_with(part)
    Colour.SYNC.call(hook, "warm_up")
    Colour.SYNC.call(hook, "close")
    assert part.names == []
    Colour.ASYNC.call(hook, "warm_up")
    assert part.names == ["warm_up_async"]


@both_colours
@each_part
def test_a_part_that_fails_ends_no_run(
    colour: Colour,
    hook_with: Any,
    both: Any,
    sync_only: Any,
    async_only: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    part = both()
    part.error = ConnectionError("https://user:password@example.org")
    hook = hook_with(part)
    point = hook.allowed_hook_points[0]
    agent = Agent(chat_generator=ScriptedModel(work(0)), hooks={point: [hook]})
    with caplog.at_level(logging.WARNING):
        result = colour.run(agent, "task")
        colour.call(agent, "close")
    assert result["last_message"].text == "The answer."
    assert len(part.names) == len(caplog.records) == 2
    assert "password" not in str([record.__dict__ for record in caplog.records])


@both_colours
def test_a_failing_counter_does_not_keep_the_compactor_from_its_turn(colour: Colour) -> None:
    counter, compactor = CounterOfBothColours(), CompactorOfBothColours()
    counter.error = OSError("no network")
    hook = CompactionHook(compactor, context_window=100, token_counter=counter)
    colour.call(hook, "warm_up")
    colour.call(hook, "close")
    assert len(compactor.names) == 2


@both_colours
def test_an_agent_warms_up_and_closes_the_stores_of_its_hooks(colour: Colour) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    agent = Agent(
        chat_generator=ScriptedModel(work(0)),
        hooks={
            "before_llm": [CompactionHook(ToolResultOffloadCompactor(store), context_window=100)],
            "after_tool": [ToolResultOffloadHook(store, {})],
        },
    )
    colour.run(agent, "task")
    colour.call(agent, "close")
    suffix = "_async" if colour is Colour.ASYNC else ""
    assert store.calls[f"warm_up{suffix}"] == store.calls[f"close{suffix}"] == 2


@both_colours
def test_parts_without_a_lifecycle_are_fine(colour: Colour) -> None:
    for hook in (with_compactor(DropOldest()), with_store(SyncStore()), with_counter(CountingCounter())):
        colour.call(hook, "warm_up")
        colour.call(hook, "close")
