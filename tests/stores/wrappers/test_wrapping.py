"""What all wrappers have in common: they wrap any store, in any colour, and claim no more than that store can."""

import asyncio
import copy
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from haystack.hooks.tool_result_offloading import FileSystemToolResultStore as StockStore
from tests.stores.wrappers.around import TOWERS, WRAPPERS, Build, encrypted, retrying
from tests.stores.wrappers.conftest import Check

from haybaler import (
    CircuitBreakerStore,
    CompressedStore,
    EncryptedStore,
    FallbackStore,
    InMemoryToolResultStore,
    ReferenceNotFoundError,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
    ToolResultStore,
)
from haybaler.errors import AsyncOnlyStoreError, ConfigurationError, CorruptEntryError, NotSerializableError
from haybaler.stores.inventory import SweepReport
from haybaler.stores.protocol import DeletedScope
from haybaler.stores.writing import predictor, write_entries
from haybaler.testing import Fault, FaultyStore
from haybaler.testing.access import Access

pytestmark = pytest.mark.usefixtures("environment")

SINGLE = {name: build for name, build in WRAPPERS.items() if name not in {"fallback", "tiered"}}
ANY_STORE = {name: build for name, build in WRAPPERS.items() if name != "content-addressed"}
LONG = "content " * 20
OPTIONAL = ("delete", "delete_scope", "sweep")


def of(builds: dict[str, Build]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("build", [pytest.param(build, id=name) for name, build in builds.items()])


class SyncOnly:
    """The least that Haystack asks of a store."""

    supports_binary_content = False

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def write(self, *, key: str, content: str) -> str:
        self.entries[f"at:{key}"] = content
        return f"at:{key}"

    def read(self, reference: str) -> str:
        if reference not in self.entries:
            raise FileNotFoundError(reference)
        return self.entries[reference]


class AsyncOnly:
    """The least that haybaler asks of a store."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    async def write_async(self, *, key: str, content: str) -> str:
        await asyncio.sleep(0)
        self.entries[f"at:{key}"] = content
        return f"at:{key}"

    async def read_async(self, reference: str) -> str:
        await asyncio.sleep(0)
        if reference not in self.entries:
            raise FileNotFoundError(reference)
        return self.entries[reference]


class CoroutineFunctions(AsyncOnly):
    """The same under the names of synchronous methods."""

    async def write(self, *, key: str, content: str) -> str:
        return await super().write_async(key=key, content=content)

    async def read(self, reference: str) -> str:
        return await super().read_async(reference)

    write_async = read_async = None  # type: ignore[assignment]


class WithMore(SyncOnly):
    """One that can delete, and knows its references."""

    def reference(self, key: str) -> str:
        return f"at:{key}"

    def delete(self, references: list[str]) -> None:
        for reference in references:
            self.entries.pop(reference, None)


class Swept(InMemoryToolResultStore):
    """A store whose entries expire at once when told to, and which may be away."""

    def __init__(self) -> None:
        super().__init__(ttl=1000)
        self.error: list[Exception] = []

    def age(self) -> None:
        for held in self._entries.values():
            held.used -= 2000

    def _sweep(self, folder: str, safe_age: float) -> SweepReport:
        if self.error:
            raise self.error.pop()
        return super()._sweep(folder, safe_age)


@of(ANY_STORE)
def test_a_store_with_nothing_but_write_and_read_is_wrapped(check: Check, build: Build) -> None:
    store = build(lambda name: SyncOnly())
    assert not store.supports_binary_content

    async def law(access: Access) -> None:
        for content in ("short", LONG, "", "\ud800"):
            reference = await access.write("key", content)
            assert await access.read(reference) == content
        outcomes = await access.write_many([StoreEntry("a", LONG), StoreEntry("b", b"bytes"), StoreEntry("c", "C")])
        assert isinstance(outcomes[1], StoreError)
        assert [await access.read(str(outcomes[n])) for n in (0, 2)] == [LONG, "C"]
        page = await access.call(
            access.colour.reads,
            lambda: store.read_page(outcomes[0], offset=8, limit=7),
            lambda: store.read_page_async(outcomes[0], offset=8, limit=7),
        )
        assert page.content == "content"
        with pytest.raises(StoreError):
            await access.read("x:at:nothing")

    check(store, law)


@of(ANY_STORE)
@pytest.mark.parametrize("kind", [AsyncOnly, CoroutineFunctions])
def test_a_store_that_is_only_asynchronous_is_wrapped(build: Build, kind: type) -> None:
    store = build(lambda name: kind())

    async def use() -> None:
        async with store:
            for content in ("short", LONG):
                assert await store.read_async(await store.write_async(key="key", content=content)) == content
            outcomes = await store.write_many_async([StoreEntry(str(number), LONG) for number in range(40)])
            assert [await store.read_async(outcome) for outcome in outcomes] == [LONG] * 40

    asyncio.run(use())
    with pytest.raises(AsyncOnlyStoreError):
        store.write(key="key", content="content")
    with pytest.raises(AsyncOnlyStoreError):
        store.read("a:at:key")
    (outcome,) = store.write_many([StoreEntry("key", LONG)])
    assert isinstance(outcome, AsyncOnlyStoreError)


@of(ANY_STORE)
def test_haystacks_own_store_is_wrapped(check: Check, build: Build, tmp_path: Path) -> None:
    store = build(lambda name: StockStore(str(tmp_path / f"files{name}")))

    async def law(access: Access) -> None:
        for content in ("short", LONG):
            assert await access.read(await access.write("key", content)) == content

    check(store, law)


@of(ANY_STORE)
def test_a_wrapper_claims_no_more_than_what_it_wraps_can_do(build: Build) -> None:
    poor, able = build(lambda name: SyncOnly()), build(lambda name: InMemoryToolResultStore())
    for name in (
        "reference",
        "scoped",
        "delete",
        "delete_async",
        "delete_scope",
        "delete_scope_async",
        "sweep",
        "sweep_async",
    ):
        assert not hasattr(poor, name)
        assert callable(getattr(able, name))
    assert predictor(poor) is None
    assert predictor(able) is not None


@of(WRAPPERS)
def test_what_is_wrapped_may_have_some_of_the_methods(check: Check, build: Build) -> None:
    store = build(lambda name: WithMore())

    async def law(access: Access) -> None:
        reference = await access.write("key", LONG)
        assert reference == store.reference("key")
        await access.delete([reference])
        with pytest.raises(ReferenceNotFoundError):
            await access.read(reference)
        assert not hasattr(store, "scoped")

    check(store, law)


@of({**WRAPPERS, **TOWERS})
def test_a_wrapper_is_written_to_as_any_other_store(build: Build) -> None:
    contents: dict[str, Any] = {"a": LONG, "b": b"bytes", "c": None}

    def run(native: bool) -> Any:
        entries = [StoreEntry(key, content) for key, content in contents.items()]
        effect = write_entries(build(lambda name: InMemoryToolResultStore()), entries)
        return asyncio.run(_awaited(effect)) if native else effect.run()

    for native in (False, True):
        first, second, third = run(native)
        assert first.endswith("/a")
        assert second.endswith("/b")
        assert isinstance(third, StoreError)


async def _awaited(effect: Any) -> Any:
    return await effect.run_async()


@of({**WRAPPERS, **TOWERS})
def test_a_serialized_wrapper_holds_what_it_wraps(build: Build) -> None:
    store = build(lambda name: InMemoryToolResultStore()).scoped("user/run")
    data = json.loads(json.dumps(store.to_dict()))
    before = copy.deepcopy(data)
    again = type(store).from_dict(data)
    assert data == before
    assert again.to_dict() == before
    assert again.read(again.write(key="key", content=LONG)) == LONG
    assert "@user/@run/" in again.reference("key")


@of(SINGLE)
def test_a_store_that_cannot_be_serialized_is_named(build: Build) -> None:
    own = WithMore()
    with pytest.raises(NotSerializableError, match="WithMore"):
        build(lambda name: own).to_dict()


@of({**WRAPPERS, **TOWERS})
def test_a_deep_copy_is_the_wrapper_itself(build: Build) -> None:
    store = build(lambda name: InMemoryToolResultStore())
    assert copy.deepcopy([store])[0] is store


class Recorder(InMemoryToolResultStore):
    def __init__(self, calls: list[str], error: Exception | None = None) -> None:
        super().__init__()
        self.calls = calls
        self.error = error

    def _record(self, name: str) -> None:
        self.calls.append(name)
        if self.error is not None:
            raise self.error

    def warm_up(self) -> None:
        self._record("warm_up")

    async def warm_up_async(self) -> None:
        self._record("warm_up_async")

    def close(self) -> None:
        self._record("close")

    async def close_async(self) -> None:
        self._record("close_async")


@of({**WRAPPERS, **TOWERS})
def test_opening_and_closing_reach_every_store_at_the_bottom(build: Build) -> None:
    calls: list[list[str]] = []

    def make(name: str) -> Recorder:
        calls.append([])
        return Recorder(calls[-1])

    store = build(make)
    with store as entered:
        assert entered is store

    async def use() -> None:
        async with store as entered:
            assert entered is store

    asyncio.run(use())
    assert calls == [["warm_up", "close", "warm_up_async", "close_async"]] * len(calls)


@pytest.mark.parametrize("name", ["fallback", "tiered"])
def test_a_store_that_cannot_be_closed_does_not_keep_the_other_open(name: str) -> None:
    calls: list[str] = []
    store = WRAPPERS[name](lambda name: Recorder(calls, ConnectionResetError() if name == "-1" else None))
    with pytest.raises(ConnectionResetError):
        store.close()
    assert calls == ["close", "close"]


@of(SINGLE)
def test_an_error_of_the_wrapped_store_is_one_of_the_tree_and_chained(check: Check, build: Build) -> None:
    class Broken(InMemoryToolResultStore):
        def write_many(self, entries: Any) -> Any:
            raise ZeroDivisionError

        async def write_many_async(self, entries: Any) -> Any:
            raise ZeroDivisionError

        def read(self, reference: str) -> Any:
            raise ZeroDivisionError

        async def read_async(self, reference: str) -> Any:
            raise ZeroDivisionError

    store = build(lambda name: Broken())

    async def law(access: Access) -> None:
        for attempt in (access.write("key", LONG), access.read(store.reference("key"))):
            with pytest.raises(StoreError) as caught:
                await attempt
            assert isinstance(caught.value.__cause__, ZeroDivisionError)

    check(store, law)


@pytest.mark.parametrize("answer", [None, "", 5, ["x"], b"x"], ids=repr)
@of(SINGLE)
def test_a_reference_that_is_none_is_an_outcome(check: Check, build: Build, answer: Any) -> None:
    inner = FaultyStore(InMemoryToolResultStore(), every_write=Fault(result=lambda reference: answer))

    async def law(access: Access) -> None:
        outcomes = await access.write_many([StoreEntry("a", LONG), StoreEntry("b", "short")])
        assert [type(outcome) for outcome in outcomes] == [StoreError] * 2

    check(build(lambda name: inner), law)


@pytest.mark.parametrize("answer", [None, 5, ["x"], bytearray(b"x")], ids=repr)
@of(SINGLE)
def test_a_content_that_is_none_is_damage(check: Check, build: Build, answer: Any) -> None:
    inner = FaultyStore(InMemoryToolResultStore(), every_read=Fault(result=lambda content: answer))
    store = build(lambda name: inner)

    async def law(access: Access) -> None:
        with pytest.raises(CorruptEntryError):
            await access.read(await access.write("key", "x"))

    check(store, law)


@of({**WRAPPERS, **TOWERS})
def test_a_batch_of_refused_entries_never_reaches_the_store(check: Check, build: Build) -> None:
    inner = FaultyStore(InMemoryToolResultStore())
    bad: list[Any] = [StoreEntry("a", None), "no entry", StoreEntry(None, "content")]  # type: ignore[arg-type]

    async def law(access: Access) -> None:
        assert all(isinstance(outcome, StoreError) for outcome in await access.write_many(bad))
        assert await access.write_many([]) == []
        assert {name for name in inner.calls if "close" not in name} == set()

    check(build(lambda name: inner), law)


@of({**WRAPPERS, **TOWERS})
def test_a_wrapper_is_a_store_to_the_type_checker(build: Build) -> None:
    store: ToolResultStore = build(lambda name: InMemoryToolResultStore())
    one: ToolResultStore = FallbackStore(EncryptedStore(store, keys=encrypted(store)._secrets), CompressedStore(store))
    assert one.supports_binary_content
    assert store.scoped("a").reference("key") != store.reference("key")


@of(WRAPPERS)
@pytest.mark.anyio
async def test_a_cancellation_reaches_the_store_and_ends_there(build: Build) -> None:
    inner = FaultyStore(InMemoryToolResultStore(), every_write=Fault(hang_before=True))
    store = build(lambda name: inner)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: store.write_async(key="key", content=LONG))
            await inner.hanging.wait_async()
            scope.cancel()
    assert scope.cancelled_caught
    assert inner.in_flight == 0
    inner.release()
    assert await store.read_async(await store.write_async(key="key", content=LONG)) == LONG


@pytest.mark.anyio
async def test_a_thousand_operations_at_once_through_a_tower_come_back_right() -> None:
    store = TOWERS["remote"](lambda name: InMemoryToolResultStore())

    async def use(number: int) -> None:
        scope = store.scoped(f"user {number % 10}")
        content = f"{number} " * (number % 200)
        assert await scope.read_async(await scope.write_async(key=str(number), content=content)) == content

    async with anyio.create_task_group() as group:
        for number in range(1_000):
            group.start_soon(use, number)


@of(SINGLE)
def test_a_scope_of_a_wrapper_is_that_of_the_store(build: Build) -> None:
    inner = InMemoryToolResultStore()
    store = build(lambda name: inner)
    scope = store.scoped("user").scoped("run")
    scope.write(key="key", content="short")
    assert scope.reference("key") == inner.scoped("user/run").reference("key")
    assert scope.delete_scope().entries == 1
    assert isinstance(asyncio.run(store.delete_scope_async()), DeletedScope)
    assert len(inner) == 0


@pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", ["fallback", "tiered", "two places"])
def test_a_sweep_reaches_every_store_at_the_bottom_also_after_one_that_fails(name: str, native: bool) -> None:
    bottoms: list[Swept] = []

    def make(_: str) -> Swept:
        bottoms.append(Swept())
        return bottoms[-1]

    store = {**WRAPPERS, **TOWERS}[name](make).scoped("user")
    for bottom in [bottom.scoped("user") for bottom in bottoms]:
        bottom.write(key="key", content="x")
        bottom.age()
    bottoms[0].error.append(StoreUnavailableError("down"))
    with pytest.raises(StoreUnavailableError):
        asyncio.run(store.sweep_async()) if native else store.sweep()
    assert list(map(len, bottoms)) == [1, *[0] * (len(bottoms) - 1)]
    report = asyncio.run(store.sweep_async(safe_age=timedelta(hours=1))) if native else store.sweep(safe_age=10)
    assert report == SweepReport(expired=1, bytes=1)
    assert list(map(len, bottoms)) == [0] * len(bottoms)
    with pytest.raises(ConfigurationError):
        store.sweep(safe_age=-1)


@pytest.mark.parametrize("build", [retrying, CircuitBreakerStore, CompressedStore])
def test_what_was_stored_before_is_read_through_the_wrapper_and_without_it(check: Check, build: Any) -> None:
    inner = InMemoryToolResultStore()
    before = inner.write(key="before", content="content")

    async def law(access: Access) -> None:
        assert await access.read(before) == "content"
        assert inner.read(await access.write("after", "short")) == "short"

    check(build(inner), law)


def test_an_outage_is_an_outage_whichever_wrapper_is_around(check: Check) -> None:
    down = Fault(error=StoreUnavailableError("down"))
    for name, build in {**WRAPPERS, **TOWERS}.items():
        store = build(lambda _: FaultyStore(InMemoryToolResultStore(), every_write=down, every_read=down))

        async def law(access: Access, store: Any = store) -> None:
            for attempt in (access.write("key", LONG), access.read(store.reference("key"))):
                with pytest.raises(StoreUnavailableError):
                    await attempt

        check(store, law)
        assert name
