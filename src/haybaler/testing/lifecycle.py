"""Laws 8 and 9: one instance serves any event loops and threads, closes and reopens, and is never copied."""

import asyncio
import copy
import gc
import json
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from haybaler.errors import AsyncOnlyStoreError
from haybaler.stores.protocol import ToolResultStore
from haybaler.testing.access import Access
from haybaler.testing.contract import Check, MakeStore, StoreContract, assert_refuses_sync
from haybaler.workers import run_in_worker

_EACH = 40


class LifecycleLaws(StoreContract):
    """Laws 8 and 9; `haybaler.testing.pipelines` has the real Pipeline."""

    def test_closing_may_be_repeated_and_the_next_use_reopens(self, check: Check) -> None:
        async def law(access: Access) -> None:
            await access.close()
            reference = await access.write("key", "content")
            for _ in range(2):
                await access.close()
                await access.close()
                assert await access.read(reference) == "content"
                assert await access.write("key", "content") == reference

        check(law)

    def test_it_is_a_synchronous_context_manager(self, make_store: MakeStore) -> None:
        store = make_store()
        if not self.supports_sync:
            assert_refuses_sync(store)
            return
        with store as entered:
            assert entered is store
            store.warm_up()
            reference = store.write(key="key", content="content")
        assert store.read(reference) == "content"
        store.close()

    def test_it_is_an_asynchronous_context_manager(self, make_store: MakeStore) -> None:
        async def use(store: ToolResultStore) -> None:
            async with store as entered:
                assert entered is store
                await store.warm_up_async()
                reference = await store.write_async(key="key", content="content")
            assert await store.read_async(reference) == "content"
            await store.close_async()

        asyncio.run(use(make_store()))

    def test_it_works_in_a_second_event_loop_when_nobody_closed_it_in_the_first(self, make_store: MakeStore) -> None:
        store = make_store()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # what the first loop opened is lost with that loop
            reference = asyncio.run(store.write_async(key="key", content="content"))
            assert asyncio.run(store.read_async(reference)) == "content"
            assert asyncio.run(_read_and_close(store, reference)) == "content"
            gc.collect()

    def test_a_store_made_inside_an_event_loop_works_in_another(self, make_store: MakeStore) -> None:
        async def make() -> ToolResultStore:
            return await run_in_worker(make_store)

        store = asyncio.run(make())
        assert asyncio.run(_write_and_read(store, "key")) == 1

    def test_two_event_loops_in_two_threads_use_it_at_once(self, make_store: MakeStore) -> None:
        store = make_store()
        start = threading.Barrier(2)

        def run(name: str) -> int:
            start.wait()
            return asyncio.run(_write_and_read(store, *(f"{name} {number}" for number in range(_EACH))))

        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(run, ("one", "other"))) == [_EACH, _EACH]

    def test_synchronous_callers_use_it_while_an_event_loop_does(self, make_store: MakeStore) -> None:
        async def use(store: ToolResultStore) -> None:
            async with asyncio.TaskGroup() as group:
                native = group.create_task(_write_and_read(store, *(f"async {number}" for number in range(_EACH))))
                called = group.create_task(run_in_worker(self._write_and_read_sync, store))
            assert native.result() == _EACH
            assert called.result() == (_EACH if self.supports_sync else 0)

        asyncio.run(use(make_store()))

    def test_many_threads_without_an_event_loop_use_it_at_once(self, make_store: MakeStore) -> None:
        store = make_store()
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(self._write_and_read_sync, [store] * 4))
        assert results == [_EACH if self.supports_sync else 0] * 4

    def test_a_deep_copy_is_the_store_itself(self, make_store: MakeStore) -> None:
        store = make_store()
        scoped = store.scoped("a")
        copied = copy.deepcopy({"hook_context": {"store": store, "scoped": scoped}})
        assert copied["hook_context"]["store"] is store
        assert copied["hook_context"]["scoped"] is scoped

    def test_its_settings_survive_serialization(self, make_store: MakeStore) -> None:
        for store in (make_store(), make_store().scoped("user/run")):
            settings = json.loads(json.dumps(store.to_dict()))
            again = type(store).from_dict(settings)
            assert again.to_dict() == store.to_dict()
            assert type(again) is type(store)
            assert (again.reference("key") == store.reference("key")) is self.durable

    def _write_and_read_sync(self, store: ToolResultStore) -> int:
        if not self.supports_sync:
            with pytest.raises(AsyncOnlyStoreError):
                store.write(key="key", content="content")
            return 0
        keys = [f"sync {threading.get_ident()} {number}" for number in range(_EACH)]
        try:
            references = [store.write(key=key, content=key) for key in keys]
            return sum(store.read(reference) == key for reference, key in zip(references, keys, strict=True))
        finally:
            store.close()


async def _write_and_read(store: ToolResultStore, *keys: str) -> int:
    """Write every key at once, read each, and return how many came back right."""
    try:
        references = await asyncio.gather(*(store.write_async(key=key, content=key) for key in keys))
        contents = await asyncio.gather(*(store.read_async(reference) for reference in references))
        return sum(content == key for content, key in zip(contents, keys, strict=True))
    finally:
        await store.close_async()


async def _read_and_close(store: ToolResultStore, reference: str) -> str | bytes:
    try:
        return await store.read_async(reference)
    finally:
        await store.close_async()
