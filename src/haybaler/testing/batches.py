"""Law 7: outcomes belong to their entries, a bad entry harms no other, and the work in flight is bounded."""

import asyncio
import threading
from typing import Any

from haybaler.errors import StoreError
from haybaler.stores.protocol import StoreEntry, ToolResultStore
from haybaler.testing.access import Access
from haybaler.testing.contract import Check, MakeStore, StoreContract

_MANY = 1_000
_RUNS = 50


class BatchLaws(StoreContract):
    """Law 7."""

    def test_a_thousand_outcomes_belong_to_their_entries(self, check: Check) -> None:
        async def law(access: Access) -> None:
            entries = [StoreEntry(f"key {number}", f"content {number}") for number in range(_MANY)]
            outcomes = await access.write_many(entries)
            assert outcomes == [access.store.reference(entry.key) for entry in entries]
            for number in range(0, _MANY, 37):
                assert await access.read(str(outcomes[number])) == f"content {number}"

        check(law)

    def test_a_bad_entry_is_an_outcome_and_harms_no_other(self, check: Check) -> None:
        async def law(access: Access) -> None:
            bad: list[Any] = [
                *(StoreEntry(f"bad {kind.__name__}", kind()) for kind in (bytearray, dict, list, int, object)),  # type: ignore[arg-type]
                StoreEntry("bad none", None),  # type: ignore[arg-type]
                *(StoreEntry(key, "content") for key in (None, 5, b"key")),  # type: ignore[arg-type]
            ]
            for entry in bad:
                outcomes = await access.write_many([StoreEntry("a", "first"), entry, StoreEntry("b", "last")])
                assert outcomes[::2] == [access.store.reference("a"), access.store.reference("b")]
                assert isinstance(outcomes[1], StoreError)
            assert await access.read(access.store.reference("a")) == "first"
            assert await access.read(access.store.reference("b")) == "last"

        check(law)

    def test_of_equal_keys_in_one_batch_the_last_stands(self, check: Check) -> None:
        async def law(access: Access) -> None:
            outcomes = await access.write_many(
                [StoreEntry("key", f"content {number}") for number in range(50)] + [StoreEntry("other", "other")]
            )
            assert outcomes == [access.store.reference("key")] * 50 + [access.store.reference("other")]
            assert await access.read(access.store.reference("key")) == "content 49"

        check(law)

    def test_an_empty_batch_has_no_outcomes(self, check: Check) -> None:
        async def law(access: Access) -> None:
            assert await access.write_many([]) == []
            assert await access.write_many(()) == []

        check(law)

    def test_runs_that_write_at_the_same_time_never_mix(self, make_store: MakeStore) -> None:
        asyncio.run(_check_runs(make_store()))

    def test_a_large_batch_keeps_few_operations_in_flight(self, make_store: MakeStore) -> None:
        store = make_store()
        peak = asyncio.run(_peak_of_a_batch([store.reference(str(number)) for number in range(_MANY)], store))
        assert peak <= self.most_in_flight


async def _check_runs(store: ToolResultStore) -> None:
    bad: Any = None
    scopes = {f"run {number}": store.scoped(f"run {number}") for number in range(_RUNS)}
    try:
        results = await asyncio.gather(
            *(
                scope.write_many_async([StoreEntry("a", name), StoreEntry("bad", bad), StoreEntry("b", f"{name} b")])
                for name, scope in scopes.items()
            )
        )
        for (name, scope), (first, refused, last) in zip(scopes.items(), results, strict=True):
            assert (first, last) == (scope.reference("a"), scope.reference("b"))
            assert isinstance(refused, StoreError)
            assert [await scope.read_async(str(written)) for written in (first, last)] == [name, f"{name} b"]
    finally:
        await store.close_async()


async def _peak_of_a_batch(references: list[str], store: Any) -> int:
    """Return the most tasks or threads that a batch added at any moment."""
    entries = [StoreEntry(str(number), f"content {number}") for number in range(len(references))]
    loop = asyncio.get_running_loop()
    threads = threading.active_count()
    peaks = [0]

    def make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **settings: Any) -> "asyncio.Task[Any]":
        task = asyncio.Task(coroutine, loop=loop, **settings)
        peaks.append(max(len(asyncio.all_tasks()), threading.active_count() - threads))
        return task

    loop.set_task_factory(make_task)
    try:
        assert await store.write_many_async(entries) == references
        peaks.append(threading.active_count() - threads)
    finally:
        loop.set_task_factory(None)
        await store.close_async()
    return max(peaks)
