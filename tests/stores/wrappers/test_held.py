"""What is on its way through a wrapper, or a tower of them, can be read as if it were there."""

import copy
import pickle
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage
from tests.hooks.agents import ScriptedModel, pages, work
from tests.hooks.behind import HANGS, SIZE, Model, agent_with, offloading, pointers, run, tasks_left, whole
from tests.stores.wrappers.around import TOWERS, WRAPPERS, Build, breaking, encrypted
from tests.stores.wrappers.conftest import Check
from tests.tools.test_reading_in_flight import answers, reader

from haybaler import (
    CircuitBreakerStore,
    CompressedStore,
    FallbackStore,
    InMemoryToolResultStore,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreUnavailableError,
    ToolResultToolset,
)
from haybaler.stores.unwritten import Contents
from haybaler.stores.writing import hold_contents, release_contents
from haybaler.testing import Fault, FaultyStore
from haybaler.testing.access import Access
from haybaler.workers import run_in_worker

pytestmark = pytest.mark.usefixtures("environment")

DOWN = Fault(error=StoreUnavailableError("down"))
of_all = pytest.mark.parametrize(
    "build", [pytest.param(build, id=name) for name, build in {**WRAPPERS, **TOWERS}.items()]
)
LONG = "content " * 20


@of_all
def test_what_is_held_is_read_whatever_the_wrapper_makes_of_contents(check: Check, build: Build) -> None:
    store = build(lambda _: FaultyStore(InMemoryToolResultStore(), every_read=DOWN))
    marks = ["hb:z1:x", "hb:e1;x", "hb:t1:=", "hb:c1:s"]
    contents: list[str | bytes] = [LONG, "", b"", *marks, *[mark.encode() for mark in marks]]
    held: Contents = {store.reference(f"key {number}"): content for number, content in enumerate(contents)}

    async def law(access: Access) -> None:
        hold_contents(access.store, held)
        assert [await access.read(reference) for reference in held] == contents
        page = await access.call(
            access.colour.reads,
            lambda: store.read_page(store.reference("key 0"), offset=-8, limit=7),
            lambda: store.read_page_async(store.reference("key 0"), offset=-8, limit=7),
        )
        assert (page.content, page.offset, page.total) == ("content", 152, 160)
        release_contents(access.store, held)
        with pytest.raises(StoreUnavailableError):
            await access.read(store.reference("key 0"))

    check(store, law)


@of_all
def test_no_scope_reads_what_another_one_holds(check: Check, build: Build) -> None:
    async def law(access: Access) -> None:
        store: Any = access.store
        scope, same = store.scoped("user").scoped("run"), store.scoped("user/run")
        held: Contents = {scope.reference("key"): LONG}
        scope.hold_entries(held)
        assert await access.to(same).read(scope.reference("key")) == LONG
        for other in (store, store.scoped("user"), store.scoped("user/run/step"), store.scoped("run")):
            with pytest.raises(InvalidReferenceError):
                await access.to(other).read(scope.reference("key"))

    check(build(lambda _: InMemoryToolResultStore()), law)


@of_all
def test_what_is_deleted_on_its_way_is_not_read_any_more(check: Check, build: Build) -> None:
    async def law(access: Access) -> None:
        store: Any = access.store
        a, b = store.reference("a"), store.reference("b")
        held: Contents = {a: "text", b: b"bytes"}
        store.hold_entries(held)
        with pytest.raises(InvalidReferenceError):
            await access.delete([a, "../elsewhere"])
        assert await access.read(a) == "text"
        await access.delete([a])
        with pytest.raises(ReferenceNotFoundError):
            await access.read(a)
        assert await access.read(b) == b"bytes"
        inner = store.scoped("s")
        inner.hold_entries({inner.reference("c"): LONG})
        await access.to(inner).delete_scope()
        with pytest.raises(ReferenceNotFoundError):
            await access.to(inner).read(inner.reference("c"))
        assert await access.read(b) == b"bytes"
        await access.delete_scope()
        with pytest.raises(ReferenceNotFoundError):
            await access.read(b)
        store.release_entries(held)
        store.release_entries(held)
        assert len(store._held) == 0

    check(build(lambda _: InMemoryToolResultStore()), law)


def test_a_copy_in_another_process_holds_nothing() -> None:
    store = breaking(InMemoryToolResultStore())
    store.hold_entries({store.reference("a"): "text"})
    assert copy.deepcopy(store).read(store.reference("a")) == "text"
    assert len(pickle.loads(pickle.dumps(store._held))) == 0


@pytest.mark.anyio
@pytest.mark.parametrize("is_dead", [False, True], ids=["a slow server", "a dead server"])
async def test_a_run_reads_what_it_writes_behind_its_back_through_a_ladder(is_dead: bool) -> None:
    server, spare = InMemoryToolResultStore(), InMemoryToolResultStore()
    faulty = FaultyStore(server, every_write=DOWN if is_dead else HANGS, every_read=DOWN if is_dead else None)
    slow = FaultyStore(spare, every_write=HANGS)
    store = CompressedStore(encrypted(FallbackStore(CircuitBreakerStore(faulty, failure_threshold=1), slow)))
    seen: list[int] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        found = [await store.read_async(reference) for reference in pointers(messages)]
        found += [await run_in_worker(store.read, reference) for reference in pointers(messages)]
        assert all(content == pages(SIZE)(step=int(str(content).split()[1])) for content in found)
        if found and not seen:
            await (slow if is_dead else faulty).hanging.wait_async()
            seen.append(len(server) + len(spare))
            for hanging in (slow, faulty):
                hanging.release()

    messages = await run(agent_with(offloading(store), model=Model(work(6), meanwhile)))
    assert seen == [0]
    assert len(store._held) == 0
    stored = [int(str(await store.read_async(reference)).split()[1]) for reference in pointers(messages)]
    assert sorted(whole(messages) + stored) == [1, 2, 3, 4, 5, 6]
    assert (len(server), len(spare)) == ((0, len(stored)) if is_dead else (len(stored), 0))
    assert tasks_left() == []


@pytest.mark.anyio
async def test_the_model_reads_a_result_back_while_a_ladder_writes_it() -> None:
    server = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.05))
    store = CompressedStore(encrypted(FallbackStore(CircuitBreakerStore(server), InMemoryToolResultStore())))
    agent = agent_with(offloading(store), model=ScriptedModel(reader(1)), tools=[ToolResultToolset(store)])
    (answer,) = answers(await run(agent))
    assert "page 1 line" in answer
