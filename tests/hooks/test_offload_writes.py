"""How `ToolResultOffloadHook` writes: one batch for each step, in flight together, and whatever a store does."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, TextContent
from tests.hooks.agents import Colour, agent_state, answered, both_colours, call, calling, conversation
from tests.hooks.parts import AsyncStore, SyncStore

from haybaler import AlwaysOffload, InMemoryToolResultStore, StoreUnavailableError, ToolResultOffloadHook
from haybaler.errors import StoreError
from haybaler.interop import method
from haybaler.references import is_offloaded, offloaded_references
from haybaler.stores.protocol import StoreEntry
from haybaler.testing import Fault, FaultyStore

LONG = "a long result " * 100


def step(number: int, result: Any = LONG) -> list[ChatMessage]:
    calls = [call("fetch", n) for n in range(1, number + 1)]
    return [ChatMessage.from_user("task"), calling(*calls), *(answered(made, result) for made in calls)]


def hook(store: Any, **settings: Any) -> ToolResultOffloadHook:
    return ToolResultOffloadHook(store, {"*": AlwaysOffload()}, **settings)


def offload(colour: Colour, messages: list[ChatMessage], store: Any, **settings: Any) -> list[ChatMessage]:
    state = agent_state(messages)
    colour.call(hook(store, **settings), "run", state)
    return conversation(state)


def moved(messages: Sequence[ChatMessage]) -> list[bool]:
    return [is_offloaded(message) for message in messages if message.tool_call_results]


@both_colours
def test_all_parts_of_a_step_are_one_batch(colour: Colour) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    after = offload(colour, step(8, [TextContent(LONG), TextContent(LONG * 2)]), store)
    assert moved(after) == [True] * 8
    batches = "write_many_async" if colour is Colour.ASYNC else "write_many"
    assert store.calls[batches] == 1
    assert store.calls[batches.replace("_many", "")] == 16


class Meeting:
    """Lets writes go on only when a number of them are there."""

    def __init__(self, number: int) -> None:
        self._missing = number
        self._all_there = asyncio.Event()

    async def join(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._all_there.set()
        await self._all_there.wait()


@pytest.mark.anyio
async def test_all_writes_of_a_step_are_in_flight_together() -> None:
    """The writes of a store without batches as well."""

    class Meeting8(AsyncStore):
        async def write_async(self, *, key: str, content: str | bytes) -> str:
            await meeting.join()
            return await super().write_async(key=key, content=content)

    meeting = Meeting(8)
    store = Meeting8()
    state = agent_state(step(8))
    await asyncio.wait_for(hook(store).run_async(state), 10)
    assert moved(conversation(state)) == [True] * 8
    assert len(store.entries) == 8


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [AsyncStore, SyncStore, InMemoryToolResultStore])
async def test_each_pointer_leads_to_its_own_result(kind: Any) -> None:
    store = kind()
    calls = [call("fetch", number) for number in range(20)]
    texts = [f"result {number} " * 300 for number in range(20)]
    messages = [calling(*calls), *(answered(made, text) for made, text in zip(calls, texts, strict=True))]
    state = agent_state([ChatMessage.from_user("task"), *messages])
    await hook(store).run_async(state)
    references = [reference for message in conversation(state) for reference in offloaded_references(message)]
    assert [await method(store, "read", reference).run_async() for reference in references] == texts


@pytest.mark.anyio
async def test_a_store_that_hangs_holds_the_run_up_no_longer_than_the_timeout(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FaultyStore(InMemoryToolResultStore(), writes={2: Fault(hang_before=True)})
    state = agent_state(step(3))
    with caplog.at_level(logging.WARNING):
        await hook(store, write_timeout=0.01).run_async(state)
    assert moved(conversation(state)) == [False] * 3
    assert conversation(state) == step(3)
    assert [vars(record)["results"] for record in caplog.records] == [3]
    # Two were written before the batch was given up; nothing refers to them, so they are gone.
    assert len(store.store) == 0  # type: ignore[arg-type]
    assert store.in_flight == 0


@pytest.mark.anyio
async def test_what_a_store_without_batches_has_written_by_the_timeout_counts() -> None:
    class Stuck(AsyncStore):
        async def write_async(self, *, key: str, content: str | bytes) -> str:
            if len(self.entries) == 2:
                await asyncio.Event().wait()
            return await super().write_async(key=key, content=content)

    store = Stuck()
    state = agent_state(step(3))
    await hook(store, write_timeout=0.05).run_async(state)
    assert moved(conversation(state)) == [True, True, False]
    assert len(store.entries) == 2


@both_colours
def test_a_failed_write_keeps_its_result_and_spoils_no_other(colour: Colour, caplog: pytest.LogCaptureFixture) -> None:
    error = StoreUnavailableError("down")
    store = FaultyStore(InMemoryToolResultStore(), writes={2: Fault(error=error)})
    messages = step(3)
    with caplog.at_level(logging.WARNING):
        after = offload(colour, messages, store)
    assert moved(after) == [True, False, True]
    assert after[3] is messages[3]
    assert len(caplog.records) == 1
    assert vars(caplog.records[0])["tools"] == ["fetch"]
    assert vars(caplog.records[0])["store"] == "FaultyStore"


@both_colours
def test_a_failed_write_spoils_no_other_in_a_store_without_batches(colour: Colour) -> None:
    def refuse(content: object) -> None:
        if content == "refused" + LONG:
            raise OSError("full")

    class Sync(SyncStore):
        def write(self, *, key: str, content: str | bytes) -> str:
            refuse(content)
            return super().write(key=key, content=content)

    class Async(AsyncStore):
        async def write_async(self, *, key: str, content: str | bytes) -> str:
            refuse(content)
            await asyncio.sleep(0)  # the others are on their way when one of them fails
            return await super().write_async(key=key, content=content)

    messages = step(3)
    messages[3] = answered(call("fetch", 2), "refused" + LONG)
    store = Async() if colour is Colour.ASYNC else Sync()
    assert moved(offload(colour, messages, store)) == [True, False, True]
    assert list(store.entries.values()) == [LONG, LONG]


@both_colours
def test_a_result_of_several_parts_is_moved_whole_or_not_at_all(colour: Colour) -> None:
    """What was written in vain is gone."""
    inner = InMemoryToolResultStore()
    store = FaultyStore(inner, writes={3: Fault(error=StoreError("full"))})
    after = offload(colour, step(2, [TextContent(LONG), TextContent(LONG), TextContent(LONG)]), store)
    assert moved(after) == [False, True]
    assert len(inner) == 3
    assert [inner.read(reference) for reference in offloaded_references(after[-1])] == [LONG] * 3


@both_colours
@pytest.mark.parametrize("error", [ValueError("secret"), OSError(28, "full"), KeyError(), NotImplementedError()])
def test_whatever_a_store_raises_the_result_stays(
    colour: Colour, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(SyncStore):
        def write(self, *, key: str, content: str | bytes) -> str:
            raise error

    with caplog.at_level(logging.WARNING):
        assert moved(offload(colour, step(2), Failing())) == [False, False]
    assert [vars(record)["results"] for record in caplog.records] == [2]
    assert "a long result" not in str([record.__dict__ for record in caplog.records])


@both_colours
@pytest.mark.parametrize("value", [None, 7, b"reference", "", ["reference"], object], ids=ascii)
def test_what_is_no_reference_replaces_nothing(colour: Colour, value: Any) -> None:

    class Odd(SyncStore):
        def write(self, *, key: str, content: str | bytes) -> str:
            return value  # type: ignore[no-any-return]

    class OddBatch(SyncStore):
        def write_many(self, entries: Sequence[StoreEntry]) -> list[Any]:
            return [value] * len(entries)

    for store in (Odd(), OddBatch()):
        assert offload(colour, step(2), store) == step(2)


@both_colours
@pytest.mark.parametrize("outcomes", [None, 7, [], ["one"], ["one", "two", "three"], "ab"], ids=ascii)
def test_a_batch_that_answers_for_other_entries_replaces_nothing(colour: Colour, outcomes: Any) -> None:
    class Odd(SyncStore):
        def write_many(self, entries: Sequence[StoreEntry]) -> Any:
            return outcomes

    after = offload(colour, step(2), Odd())
    assert all(message.tool_call_results[0].result == LONG for message in after[2:])


def coroutine_function() -> type[Any]:
    class Store(SyncStore):
        async def write(self, *, key: str, content: str | bytes) -> str:  # type: ignore[override]
            await asyncio.sleep(0)
            return super().write(key=key, content=content)

    return Store


def function_that_returns_a_coroutine() -> type[Any]:
    class Store(SyncStore):
        def write(self, *, key: str, content: str | bytes) -> Coroutine[Any, Any, str]:  # type: ignore[override]
            async def write() -> str:
                await asyncio.sleep(0)
                return SyncStore.write(self, key=key, content=content)

            return write()

    return Store


@pytest.mark.parametrize("make", [coroutine_function, function_that_returns_a_coroutine])
def test_a_coroutine_is_awaited_by_asynchronous_runs_and_refused_by_synchronous_ones(
    make: Callable[[], type[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    store = make()()
    with caplog.at_level(logging.WARNING):
        assert offload(Colour.SYNC, step(2), store) == step(2)
    assert len(store) == 0
    assert "run_async" in str(vars(caplog.records[0])["error"])
    after = offload(Colour.ASYNC, step(2), store)
    assert moved(after) == [True, True]
    assert len(store) == 2


def test_a_store_with_coroutine_functions_only_is_refused_by_synchronous_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert offload(Colour.SYNC, step(2), AsyncStore()) == step(2)
    assert "run_async" in str(vars(caplog.records[0])["error"])


class WithoutDelete(SyncStore):
    """Cannot take anything back."""


@both_colours
def test_a_store_without_delete_keeps_what_was_written_in_vain(colour: Colour) -> None:
    class Third(WithoutDelete):
        def write(self, *, key: str, content: str | bytes) -> str:
            if len(self) == 2:
                raise OSError("full")
            return super().write(key=key, content=content)

    store = Third()
    assert moved(offload(colour, step(1, [TextContent(LONG)] * 3), store)) == [False]
    assert len(store) == 2


@both_colours
def test_a_delete_that_fails_ends_no_run(colour: Colour, caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn(SyncStore):
        def write(self, *, key: str, content: str | bytes) -> str:
            if len(self) == 2:
                raise OSError("full")
            return super().write(key=key, content=content)

        def delete(self, references: Sequence[str]) -> None:
            raise OSError("read-only")

    with caplog.at_level(logging.WARNING):
        assert moved(offload(colour, step(1, [TextContent(LONG)] * 3), Stubborn())) == [False]
    assert len(caplog.records) == 2
