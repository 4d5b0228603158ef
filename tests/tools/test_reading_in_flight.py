"""What is on its way into a store can be read as if it were there, by the run's tools and through the store."""

import asyncio
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, ImageContent, TextContent
from haystack.hooks import FunctionHook
from tests.compactors.conversations import PNG
from tests.hooks.agents import ScriptedModel, answered, call, calling, pages, steps_done, work
from tests.hooks.behind import HANGS, SIZE, Model, agent_with, entries, history, offloading, pointers, run, steps_whole
from tests.hooks.parts import SyncStore

from haybaler import (
    InMemoryToolResultStore,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreUnavailableError,
    ToolResultToolset,
)
from haybaler.stores.unwritten import Contents
from haybaler.testing import Fault, FaultyStore
from haybaler.workers import run_in_worker

pytestmark = pytest.mark.anyio
PAGE = pages(SIZE)(step=1)


def reader(steps: int, tool_name: str = "read_tool_result", **arguments: Any) -> Callable[..., ChatMessage]:
    """Return a script that asks for the first pointer that it sees, in each of a number of steps."""
    seen: list[str] = []
    asked: list[ChatMessage] = []

    def script(messages: list[ChatMessage]) -> ChatMessage:
        seen.extend(pointers(messages))
        if not seen:
            return calling(call("fetch", steps_done(messages) + 1))
        if len(asked) == steps:
            return ChatMessage.from_assistant("The answer.")
        made = call(tool_name, 0, call_id=f"read-{len(asked)}", reference=seen[0], **arguments)
        del made.arguments["step"]
        asked.append(calling(made))
        return asked[-1]

    return script


def answers(messages: Sequence[ChatMessage]) -> list[str]:
    results = [result for message in messages for result in message.tool_call_results]
    return [str(result.result) for result in results if result.origin.tool_name != "fetch"]


class Predicting(SyncStore):
    """Somebody's own store, which tells references before, writes in threads, and knows of nothing on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.error: Exception | None = None

    def reference(self, key: str) -> str:
        return f"own/{key}"

    def write(self, *, key: str, content: str | bytes) -> str:
        self.go_on.wait(20)
        if self.error is not None:
            raise self.error
        self.entries[self.reference(key)] = content
        return self.reference(key)


def once_answered(act: Callable[[], None]) -> FunctionHook:
    """Return a hook that acts as soon as something was read back, before haybaler's hooks wait for the write."""

    def hook(state: State) -> None:
        if answers(state.data["messages"]):
            act()

    return FunctionHook(function=hook)


@pytest.mark.parametrize(
    ("name", "arguments"), [("read_tool_result", {}), ("search_tool_result", {"pattern": "page 1"})]
)
@pytest.mark.parametrize("shared", [False, True], ids=["of one run", "of several runs"])
async def test_the_run_reads_what_is_still_being_written(name: str, arguments: dict[str, str], shared: bool) -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=HANGS)
    there: list[dict[str, str]] = []

    def release() -> None:
        there.append(entries(store))
        store.release()

    toolset = ToolResultToolset(store)
    model = ScriptedModel(reader(1, name, **arguments))
    tools = toolset.tools if shared else [toolset]
    agent = agent_with(offloading(store), model=model, tools=tools, before=[once_answered(release)])
    messages = await run(agent)
    (answer,) = answers(messages)
    assert "page 1 line" in answer
    assert there == [{}]
    assert store.calls["read_async"] == 0
    assert set(entries(store)) == set(pointers(messages)) != set()


@pytest.mark.parametrize("fails", [False, True])
async def test_so_it_is_with_somebodys_store_that_knows_of_nothing_on_its_way(fails: bool) -> None:
    """Where the write fails, later reads get the result as well, although it stands in the conversation again."""
    store: Any = Predicting()
    store.error = OSError("disk full") if fails else None
    hook = once_answered(store.go_on.set)
    agent = agent_with(
        offloading(store), model=ScriptedModel(reader(3)), tools=[ToolResultToolset(store)], before=[hook]
    )
    messages = await run(agent)
    assert [PAGE in answer for answer in answers(messages)] == [True] * 3
    assert sorted(store.entries) == sorted(pointers(messages))
    assert bool(store.entries) is not fails


async def test_a_toolset_with_another_store_object_reads_it_as_well() -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=HANGS)
    agent = agent_with(
        offloading(store),
        model=ScriptedModel(reader(1)),
        tools=[ToolResultToolset(InMemoryToolResultStore())],
        before=[once_answered(store.release)],
    )
    assert PAGE in answers(await run(agent))[0]


async def test_another_runs_tools_do_not_read_it() -> None:
    """They read from their own store, as ever."""
    store: Any = Predicting()
    known: list[str] = []

    async def others(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages) and not known:
            known.extend(pointers(messages))
            made = call("read_tool_result", 0, reference=known[0])
            del made.arguments["step"]
            replies = iter([calling(made), ChatMessage.from_assistant("The answer.")])
            other = agent_with(
                offloading(store),
                model=ScriptedModel(lambda _: next(replies)),
                tools=[ToolResultToolset(InMemoryToolResultStore())],
            )
            (answer,) = answers(await run(other))
            assert "not a reference of this run's store" in answer
            store.go_on.set()

    await run(agent_with(offloading(store), model=Model(work(4), others)))
    assert known


@pytest.mark.parametrize("outcome", ["written", "failed"])
async def test_the_store_object_reads_what_is_on_its_way_from_anywhere(outcome: str) -> None:
    """In either colour, page by page, in other threads and loops; until the write has ended one way or the other."""
    memory = InMemoryToolResultStore()
    scope = memory.scoped("user").scoped("run")
    fault = Fault(hang_before=True, error=StoreUnavailableError("down") if outcome == "failed" else None)
    store = FaultyStore(scope, every_write=fault)
    read: list[object] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if not pointers(messages) or read:
            return
        await store.hanging.wait_async()
        reference = pointers(messages)[0]
        for target in (scope, store):
            read.append(await target.read_async(reference))
            read.append(await run_in_worker(target.read, reference))
        read.append((await scope.read_page_async(reference, offset=5, limit=7)).content)
        read.append((await run_in_worker(lambda: scope.read_page(reference, offset=-7, limit=7))).content)
        read.append(await run_in_worker(lambda: asyncio.run(scope.read_async(reference))))
        for other in (memory, memory.scoped("user"), memory.scoped("other")):
            with pytest.raises(InvalidReferenceError):
                await other.read_async(reference)
        assert entries(memory) == {}
        store.release()

    model = Model(work(4), meanwhile)
    messages = await run(agent_with(offloading(store), model=model))
    assert read == [PAGE, PAGE, PAGE, PAGE, PAGE[5:12], PAGE[-7:], PAGE]
    shown = [reference for prompt in model.prompts for reference in pointers(prompt)]
    assert len(memory._unwritten) == 0
    if outcome == "failed":
        assert pointers(messages) == []
        with pytest.raises(ReferenceNotFoundError):
            await scope.read_async(shown[0])
    else:
        assert set(pointers(messages)) == set(entries(memory))


async def test_what_is_deleted_while_it_is_being_written_is_not_read_any_more() -> None:
    store = InMemoryToolResultStore()
    a, b = store.reference("a"), store.reference("b")
    for delete in (store.delete_async, lambda references: run_in_worker(store.delete, references)):
        held: Contents = {a: "text", b: b"bytes"}
        store.hold_entries(held)
        assert await store.read_async(b) == b"bytes"
        await delete([a])
        with pytest.raises(ReferenceNotFoundError):
            await store.read_async(a)
        assert store.read(b) == b"bytes"
        store.release_entries(held)
        store.release_entries(held)
        with pytest.raises(ReferenceNotFoundError):
            store.read(b)


async def test_a_copy_of_a_store_in_another_process_holds_nothing() -> None:
    store = InMemoryToolResultStore()
    store.hold_entries({store.reference("a"): "text"})
    assert store.read(store.reference("a")) == "text"
    with pytest.raises(ReferenceNotFoundError):
        pickle.loads(pickle.dumps(store)).read(store.reference("a"))


async def test_what_is_held_is_gone_with_its_scope() -> None:
    store = InMemoryToolResultStore()
    scope = store.scoped("s")
    store.hold_entries({store.reference("b"): "outside"})
    scope.hold_entries({scope.reference("c"): ""})
    assert scope.read(scope.reference("c")) == ""
    await scope.delete_scope_async()
    with pytest.raises(ReferenceNotFoundError):
        scope.read(scope.reference("c"))
    assert store.read(store.reference("b")) == "outside"
    store.delete_scope()
    with pytest.raises(ReferenceNotFoundError):
        store.read(store.reference("b"))


async def test_an_image_on_its_way_comes_back_as_an_image() -> None:
    image = ImageContent(base64_image=PNG, mime_type="image/png")
    made = call("look", 1)
    started = [ChatMessage.from_user("task"), calling(made), answered(made, [TextContent("x" * 9_000), image])]
    started += history(2)[1:]
    store = FaultyStore(InMemoryToolResultStore(), every_write=HANGS)
    replies = iter([None, ChatMessage.from_assistant("The answer.")])

    def script(messages: list[ChatMessage]) -> ChatMessage:
        reply = next(replies)
        if reply is not None:
            return reply
        asked = call("read_tool_result", 0, reference=pointers(messages)[1])
        del asked.arguments["step"]
        return calling(asked)

    agent = agent_with(
        offloading(store),
        model=ScriptedModel(script),
        tools=[ToolResultToolset(store)],
        before=[once_answered(store.release)],
    )
    result = await agent.run_async(started)
    (answer,) = [r.result for m in result["messages"] for r in m.tool_call_results if "read" in r.origin.tool_name]
    assert any(isinstance(part, ImageContent) and part.base64_image == PNG for part in answer)


async def test_a_reader_that_is_cancelled_leaves_the_write_alone() -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=HANGS)
    cancelled: list[str] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        for reference in pointers(messages):
            await store.hanging.wait_async()
            reading = asyncio.create_task(store.read_async(reference))
            await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
            cancelled.append(reference)
        if cancelled:
            store.release()

    messages = await run(agent_with(offloading(store), model=Model(work(4), meanwhile)))
    assert steps_whole(messages, store) == [1, 2, 3, 4]
    assert cancelled
