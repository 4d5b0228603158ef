"""Bounds on what a scope holds: beside concurrent writers, failures and cancellations, and for several processes."""

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.services.redis_servers import RedisServer

from haybaler.effects import Steps, perform, perform_async
from haybaler.errors import ConfigurationError, ScopeFullError, StoreError, StoreFullError
from haybaler.stores import quota
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content
from haybaler.stores.inventory import EntryPage
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.protocol import StoreEntry
from haybaler.stores.quota import LocalCount, Sizes, fitting
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_redis import RedisToolResultStore


class Slow(InMemoryToolResultStore):
    """Takes its time for each batch, and counts how often it is listed; a key "bad" fails."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.listings: list[str] = []

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        await asyncio.sleep(0)
        stored = self._put_many([(path, content) for path, content in items if not path.endswith("bad")])
        assert stored == [None] * len(stored)
        return [StoreError("bad") if path.endswith("bad") else None for path, _ in items]

    async def _list_async(self, folder: str, after: object) -> EntryPage:
        self.listings.append(folder)
        page = self._list(folder, after)
        await asyncio.sleep(0)
        return page


def held(store: BaseToolResultStore) -> int:
    return sum(entry.bytes for entry in store.list())


@pytest.mark.anyio
async def test_a_hundred_writers_at_once_never_exceed_the_bound_and_fill_it() -> None:
    store = Slow(max_scope_bytes=1000).scoped("run")
    outcomes = await asyncio.gather(
        *(store.write_many_async([StoreEntry(f"{writer} {n}", "x" * 7) for n in range(3)]) for writer in range(100))
    )
    stored = [outcome for part in outcomes for outcome in part if isinstance(outcome, str)]
    assert 900 < held(store) == 7 * len(stored) <= 1000
    for number in range(20):  # what was refused for what was under way
        await store.write_many_async([StoreEntry(f"more {number}", "x" * 7)])
    assert held(store) == 994
    assert all(isinstance(o, (str, ScopeFullError)) for part in outcomes for o in part)


def test_threads_never_exceed_the_bound(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path, max_scope_bytes=100)
    with ThreadPoolExecutor(8) as pool:
        entries = [[StoreEntry(str(number), "x" * 10)] for number in range(40)]
        outcomes = [outcome for (outcome,) in pool.map(store.write_many, entries)]
    assert held(store) == 10 * sum(isinstance(outcome, str) for outcome in outcomes) <= 100
    assert isinstance(store.write_many([StoreEntry("more", "x" * 101)])[0], StoreFullError)


@pytest.mark.anyio
async def test_a_scope_is_listed_once_and_then_only_when_it_seems_full_and_has_changed() -> None:
    store = Slow(max_scope_bytes=100)
    for number in range(10):
        await store.write_async(key=str(number), content="x" * 10)
    assert store.listings == [""]
    for _ in range(5):
        with pytest.raises(ScopeFullError):
            await store.write_async(key="more", content="x")
    assert store.listings == ["", ""]
    await store.delete_async([store.reference("0")])
    assert await store.write_async(key="more", content="x") == store.reference("more")
    assert store.listings == ["", "", ""]


@pytest.fixture(params=["memory", "files", "redis"])
def bounded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BaseToolResultStore]:
    """A store whose scopes hold a thousand bytes."""
    if request.param == "memory":
        yield Slow(max_scope_bytes=1000)
    elif request.param == "files":
        yield FileSystemToolResultStore(tmp_path, max_scope_bytes=1000)
    else:
        url, prefix = request.getfixturevalue("valkey").url, request.getfixturevalue("prefix")
        with RedisToolResultStore(url, prefix=prefix, ttl=60, max_scope_bytes=1000) as store:
            yield store


@pytest.mark.parametrize("loops", [0, 1, 2])
def test_room_that_was_made_is_found_by_all_who_write_at_once(bounded: BaseToolResultStore, loops: int) -> None:
    """By threads, by the tasks of an event loop, and by those of two."""
    full = bounded.write_many([StoreEntry(str(number), "x" * 20) for number in range(50)])
    assert all(isinstance(outcome, str) for outcome in full)
    bounded.delete([str(reference) for reference in full[:25]])
    entries = [StoreEntry(f"more {number}", "x" * 20) for number in range(100)]

    async def write_all(own: Sequence[StoreEntry]) -> list[str | StoreError]:
        try:
            written = await asyncio.gather(*(bounded.write_many_async([entry]) for entry in own))
            return [outcome for (outcome,) in written]
        finally:
            await bounded.close_async()

    with ThreadPoolExecutor(16) as pool:
        if loops:
            runs = pool.map(lambda own: asyncio.run(write_all(own)), [entries[start::loops] for start in range(loops)])
            outcomes = [outcome for run in runs for outcome in run]
        else:
            outcomes = [outcome for (outcome,) in pool.map(lambda entry: bounded.write_many([entry]), entries)]
    assert {type(outcome) for outcome in outcomes} == {str, ScopeFullError}
    written = sum(isinstance(outcome, str) for outcome in outcomes)
    assert held(bounded) == 20 * (25 + written) <= 1000
    # Where two loops ask a server at once, one of them may take what the other still asks for as taken.
    assert written == 25 or (loops == 2 and isinstance(bounded, RedisToolResultStore))
    for number in range(25 - written):
        bounded.write(key=f"later {number}", content="x" * 20)


@pytest.mark.parametrize("loops", [1, 2])
def test_writing_and_deleting_at_once_never_exceeds_the_bound(bounded: BaseToolResultStore, loops: int) -> None:
    async def write_and_delete(writer: str) -> None:
        for number in range(8):
            batch = [StoreEntry(f"{writer} {number} {n}", "x" * (7 + 30 * n)) for n in range(3)]
            stored = [o for o in await bounded.write_many_async(batch) if isinstance(o, str)]
            await bounded.delete_async(stored[: number % 2])

    async def all_of(loop: int) -> None:
        try:
            await asyncio.gather(*(write_and_delete(f"{loop} {writer}") for writer in range(12)))
        finally:
            await bounded.close_async()

    with ThreadPoolExecutor(loops) as pool:
        list(pool.map(lambda loop: asyncio.run(all_of(loop)), range(loops)))
    assert 850 < held(bounded) <= 1000


def test_what_of_a_batch_has_room_takes_it_once_however_often_the_rest_asks(bounded: BaseToolResultStore) -> None:
    bounded.delete([bounded.write(key="old", content="x")])  # so that another count may find more room
    outcomes = bounded.write_many([StoreEntry("fits", "x" * 300), StoreEntry("fits not", "x" * 800)])
    assert [type(outcome) for outcome in outcomes] == [str, ScopeFullError]
    assert bounded.write(key="rest", content="x" * 700)


@pytest.mark.anyio
async def test_a_scope_that_many_begin_to_write_at_once_is_listed_once() -> None:
    store = Slow(max_scope_bytes=1000)
    await asyncio.gather(*(store.write_async(key=str(number), content="x" * 10) for number in range(100)))
    assert store.listings == [""]


@pytest.mark.anyio
async def test_a_count_whose_caller_is_cancelled_is_made_by_another() -> None:
    class Waiting(Slow):
        async def _list_async(self, folder: str, after: object) -> EntryPage:
            begun.set()
            await go_on.wait()
            return await super()._list_async(folder, after)

    begun, go_on = asyncio.Event(), asyncio.Event()
    store = Waiting(max_scope_bytes=100)
    first = asyncio.create_task(store.write_async(key="first", content="x"))
    await begun.wait()
    others = [asyncio.create_task(store.write_async(key=str(number), content="x")) for number in range(4)]
    await asyncio.sleep(0)
    first.cancel()
    go_on.set()
    assert all(await asyncio.gather(*others))
    assert store.listings == [""]
    with pytest.raises(asyncio.CancelledError):
        await first
    assert held(store) == 4


@pytest.mark.anyio
async def test_what_failed_or_was_cancelled_takes_no_room_for_long() -> None:
    store = Slow(max_scope_bytes=100)
    for _ in range(20):
        (outcome,) = await store.write_many_async([StoreEntry("bad", "x" * 90)])
        assert not isinstance(outcome, (str, ScopeFullError))
        task = asyncio.create_task(store.write_async(key="cancelled", content="x" * 90))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await store.delete_scope_async()
    assert await store.write_async(key="fits", content="x" * 100) == store.reference("fits")


@pytest.mark.anyio
async def test_a_scope_that_cannot_be_listed_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Slow(max_scope_bytes=100)

    async def fail(folder: str, after: object) -> EntryPage:
        raise OSError("down")

    with monkeypatch.context() as patch:
        patch.setattr(store, "_list_async", fail)
        outcomes = await store.write_many_async([StoreEntry("a", "x" * 60), StoreEntry("b", "x" * 60)])
        assert [isinstance(o, StoreError) and not isinstance(o, ScopeFullError) for o in outcomes] == [True, True]
    outcomes = await store.write_many_async([StoreEntry("a", "x" * 60), StoreEntry("b", "x" * 60)])
    assert [type(outcome) for outcome in outcomes] == [str, ScopeFullError]


def test_another_process_is_seen_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores stand for two processes: they share the files and nothing else."""
    one, other = (FileSystemToolResultStore(tmp_path, max_scope_bytes=100) for _ in range(2))
    one.write(key="a", content="x" * 50)
    other.write(key="b", content="x" * 50)
    one.write(key="c", content="x" * 50)  # it does not know of the other's
    assert held(one) == 150
    monkeypatch.setattr(quota, "LASTS", -1.0)
    for store in (one, other):
        with pytest.raises(ScopeFullError):
            store.write(key="d", content="x")


def test_a_bound_that_is_new_counts_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalCount, "every", 0.0)
    FileSystemToolResultStore(tmp_path).scoped("run").write(key="a", content="x" * 90)
    store = FileSystemToolResultStore(tmp_path, max_scope_bytes=100).scoped("run")
    with pytest.raises(ScopeFullError):
        store.write(key="b", content="x" * 11)
    assert store.write(key="a", content="y" * 100) == store.reference("a")


def test_only_so_many_counts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "MOST_SCOPES", 10)
    store = InMemoryToolResultStore(max_scope_bytes=10)
    for number in range(30):
        store.scoped(str(number)).write(key="a", content="x" * 10)
    assert isinstance(store._scope_count, LocalCount)
    assert len(store._scope_count._tallies) == 10
    for number in range(30):
        with pytest.raises(ScopeFullError):
            store.scoped(str(number)).write(key="b", content="x")


@given(st.integers(0, 100), st.lists(st.integers(-20, 60)))
def test_what_fits_is_taken_in_order_and_never_too_much(used: int, growth: list[int]) -> None:
    fits = fitting(used, growth, 100)
    total = used
    for fit, more in zip(fits, growth, strict=True):
        assert fit == (more <= 0 or total + more <= 100)
        total += more if fit else 0
    assert total <= 100


def test_a_pickled_store_counts_for_itself() -> None:
    store = InMemoryToolResultStore(max_scope_bytes=10)
    store.write(key="a", content="x" * 10)
    copy = pickle.loads(pickle.dumps(store))
    for other in (store, copy):
        with pytest.raises(ScopeFullError):
            other.write(key="b", content="x")


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "1"])
def test_the_bound_is_checked(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        InMemoryToolResultStore(max_scope_bytes=wrong)


def test_a_store_that_cannot_list_takes_no_bound() -> None:
    class Silent(BaseToolResultStore):
        def _put(self, path: str, content: Content) -> None:
            raise NotImplementedError

        def _get(self, path: str) -> Content:
            raise NotImplementedError

        def _remove(self, path: str) -> None:
            raise NotImplementedError

    with pytest.raises(ConfigurationError, match="_list"):
        BaseToolResultStore.__init__(Silent(), max_scope_bytes=1)


def test_processes_share_the_count_of_a_redis_server(valkey: RedisServer, prefix: str) -> None:
    with (
        RedisToolResultStore(valkey.url, prefix=prefix, max_scope_bytes=100) as one,
        RedisToolResultStore(valkey.url, prefix=prefix, max_scope_bytes=100) as other,
    ):
        one.scoped("a").write(key="a", content="x" * 50)
        other.scoped("a").write(key="b", content="x" * 50)
        with pytest.raises(ScopeFullError):
            one.scoped("a").write(key="c", content="x")
        valkey.client.config_resetstat()
        with pytest.raises(ScopeFullError):
            one.scoped("a").write(key="c", content="x")
        assert "cmdstat_scan" not in valkey.client.info("commandstats")
        valkey.client.delete(f"{prefix}:@a/b")  # as when it expires
        other.scoped("a").write(key="c", content="x" * 40)
        assert valkey.client.hget(f"{prefix}:@a/#count", "bytes") == b"90"
        assert other.sweep(safe_age=0).leftovers == 0
        one.scoped("a").delete_scope()
        assert valkey.client.keys(f"*{prefix}*") == []


@pytest.mark.parametrize("is_heard", [True, False], ids=["answered meanwhile", "unanswered"])
@pytest.mark.parametrize(("before", "room"), [(0, 400), (900, 100)], ids=["granted", "refused"])
def test_a_recount_knows_of_room_that_the_server_has_granted_before_this_process_hears_of_it(
    valkey: RedisServer, prefix: str, is_heard: bool, before: int, room: int
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_scope_bytes=1000) as store:
        count, folder = store._scope_count, "run/"
        perform(count.refund(folder, -before))
        asking = count.take(folder, [600], 1000)
        answer = next(asking).run()
        assert int(valkey.client.hget(f"{prefix}:{folder}#count", "bytes")) == (before or 600)

        def listing() -> Steps[Sizes]:
            yield from ()
            if is_heard:
                with pytest.raises(StopIteration):
                    asking.send(answer)
            return {"run/a": before}

        assert perform(count.recount(folder, listing))
        again = perform(count.recount(folder, listing_of(before)))
        assert (again is None) == is_heard  # what was not heard may have been refused
        if not is_heard:  # rather too much than too little
            room = max(0, min(room, 1000 - before - 600))
        assert perform(count.take(folder, [room + 1], 1000)) == [False]
        if room > 0:
            assert perform(count.take(folder, [room], 1000)) == [True]
        asking.close()


def listing_of(total: int) -> Callable[[], Steps[Sizes]]:
    def listing() -> Steps[Sizes]:
        yield from ()
        return {"run/a": total}

    return listing


def test_a_count_that_failed_is_made_again_at_once() -> None:
    def failing() -> Steps[Sizes]:
        yield from ()
        raise OSError

    count = LocalCount()
    assert perform(count.recount("run/", listing_of(90)))
    assert perform(count.recount("run/", listing_of(90))) is None
    count.forget("run/")
    with pytest.raises(OSError):
        perform(count.recount("run/", failing))
    assert perform(count.recount("run/", listing_of(80))) == {"run/a": 80}


def test_who_cannot_wait_for_the_count_of_another_thread_counts_as_well() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def waiting() -> Steps[Sizes]:
        yield from ()
        begun.set()
        assert go_on.wait(10)
        return {"run/a": 90}

    count = LocalCount()
    assert perform(count.recount("run/", listing_of(70)))
    count.forget("run/")
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(perform, count.recount("run/", waiting))
        assert begun.wait(10)
        assert asyncio.run(perform_async(count.recount("run/", listing_of(80)))) == {"run/a": 80}
        go_on.set()
        assert counting.result() == {"run/a": 90}


@pytest.mark.anyio
async def test_room_that_is_made_while_others_count_is_found_by_who_waits_for_them() -> None:
    class Waiting(Slow):
        async def _list_async(self, folder: str, after: object) -> EntryPage:
            page = await super()._list_async(folder, after)
            begun.set()
            await go_on.wait()
            return page

    begun, go_on = asyncio.Event(), asyncio.Event()
    store = Waiting(max_scope_bytes=100)
    store.write(key="full", content="x" * 100)
    writing = [asyncio.create_task(store.write_async(key=str(number), content="x")) for number in range(3)]
    await begun.wait()
    store.delete([store.reference("full")])
    go_on.set()
    assert await asyncio.gather(*writing) == [store.reference(str(number)) for number in range(3)]


def test_two_who_correct_a_counter_at_once_do_not_correct_it_twice(valkey: RedisServer, prefix: str) -> None:
    """Two stores stand for two processes."""
    listing = listing_of(300)

    def listing_meanwhile() -> Steps[Sizes]:
        assert perform(other._scope_count.recount("run/", listing))
        return (yield from listing())

    with (
        RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_scope_bytes=1000) as one,
        RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_scope_bytes=1000) as other,
    ):
        perform(one._scope_count.refund("run/", -900))
        assert perform(one._scope_count.recount("run/", listing_meanwhile))
        assert perform(other._scope_count.recount("run/", listing)) is None
        assert perform(one._scope_count.recount("run/", listing))  # the other's was there first
        assert perform(one._scope_count.recount("run/", listing)) is None
        assert perform(one._scope_count.take("run/", [701], 1000)) == [False]
        assert perform(one._scope_count.take("run/", [700], 1000)) == [True]


def test_what_is_about_to_be_replaced_by_less_takes_room_until_it_is() -> None:
    listing = listing_of(90)
    count = LocalCount()
    perform(count.prepare("run/", listing))
    assert perform(count.take("run/", [-30, 10], 100)) == [True, True]
    count.forget("run/")
    assert perform(count.recount("run/", listing))
    assert perform(count.take("run/", [1], 100)) == [False]


@pytest.mark.parametrize("processes", [1, 3])
def test_many_writers_of_a_redis_scope_fill_it_and_hardly_exceed_it(
    valkey: RedisServer, prefix: str, processes: int
) -> None:
    """While one process counts anew, what others are writing may be missed."""
    stores = [RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_scope_bytes=1000) for _ in range(processes)]

    async def write_all() -> list[str | StoreError]:
        try:
            batches = [[StoreEntry(f"{writer} {n}", "x" * 7) for n in range(3)] for writer in range(100)]
            writing = (stores[n % processes].write_many_async(batch) for n, batch in enumerate(batches))
            return [outcome for part in await asyncio.gather(*writing) for outcome in part]
        finally:
            for store in stores:
                await store.close_async()

    stored = sum(isinstance(outcome, str) for outcome in asyncio.run(write_all()))
    with stores[0] as store:
        assert 900 < held(store) == 7 * stored <= (1000 if processes == 1 else 2000)
    assert valkey.client.ttl(f"{prefix}:#count") > 0
