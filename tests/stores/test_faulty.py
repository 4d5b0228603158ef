import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from haybaler.errors import ReferenceNotFoundError, StoreError, StoreUnavailableError
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.protocol import StoreEntry, ToolResultStore
from haybaler.testing import Fault, FaultyStore

ENTRIES = [StoreEntry(key, key.upper()) for key in "abcde"]
DOWN = StoreUnavailableError("down")


def faulty(**faults: Any) -> tuple[FaultyStore, InMemoryToolResultStore]:
    inner = InMemoryToolResultStore()
    return FaultyStore(inner, **faults), inner


def test_it_is_a_store_to_the_type_checker() -> None:
    store: ToolResultStore = faulty()[0]
    assert store.supports_binary_content


def test_the_nth_write_fails_and_no_other() -> None:
    store, inner = faulty(writes={2: Fault(error=DOWN)})
    assert store.write(key="a", content="A") == inner.reference("a")
    with pytest.raises(StoreUnavailableError) as caught:
        store.write(key="b", content="B")
    assert caught.value is DOWN
    assert asyncio.run(store.write_async(key="c", content="C")) == inner.reference("c")
    assert len(inner) == 2
    assert store.calls == {"write": 2, "write_async": 1}


@pytest.mark.parametrize("native", [False, True])
def test_in_a_batch_each_entry_is_a_write(native: bool) -> None:
    store, inner = faulty(writes={2: Fault(error=DOWN), 4: Fault(error=DOWN)})
    outcomes = asyncio.run(store.write_many_async(ENTRIES)) if native else store.write_many(ENTRIES)
    assert outcomes == [inner.reference("a"), DOWN, inner.reference("c"), DOWN, inner.reference("e")]
    assert len(inner) == 3


@pytest.mark.parametrize("native", [False, True])
def test_an_error_outside_the_tree_is_raised_out_of_a_batch(native: bool) -> None:
    store, _ = faulty(writes={3: Fault(error=ZeroDivisionError())})
    with pytest.raises(ZeroDivisionError):
        _ = asyncio.run(store.write_many_async(ENTRIES)) if native else store.write_many(ENTRIES)


def test_the_nth_read_fails_and_no_other() -> None:
    store, _ = faulty(reads={1: Fault(error=DOWN)}, every_read=Fault(result=lambda content: content + "!"))
    reference = store.write(key="a", content="A")
    with pytest.raises(StoreUnavailableError):
        store.read(reference)
    assert store.read(reference) == "A!"
    assert asyncio.run(store.read_async(reference)) == "A!"


def test_a_reference_can_be_no_string() -> None:
    store, _ = faulty(every_write=Fault(result=lambda reference: [reference]))
    returned: list[Any] = [store.write(key="a", content="A"), *store.write_many(ENTRIES[:1])]
    assert returned == [[store.reference("a")]] * 2


def test_what_hangs_goes_on_when_it_is_released() -> None:
    async def use() -> None:
        store, inner = faulty(writes={1: Fault(hang_before=True), 2: Fault(hang_after=True)})
        batch = asyncio.create_task(store.write_many_async(ENTRIES))
        await store.hanging.wait_async()
        while store.in_flight > 2:  # noqa: ASYNC110 - the other three never wait
            await asyncio.sleep(0)
        assert not batch.done()
        assert sorted(inner.read(inner.reference(key)) for key in "bcde") == ["B", "C", "D", "E"]
        with pytest.raises(ReferenceNotFoundError):
            inner.read(inner.reference("a"))
        store.release()
        assert await batch == [inner.reference(entry.key) for entry in ENTRIES]
        assert (store.in_flight, store.most_in_flight) == (0, 5)

    asyncio.run(use())


def test_a_thread_hangs_until_it_is_released() -> None:
    store, inner = faulty(every_write=Fault(hang_before=True))
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(store.write, key="a", content="A")
        store.hanging.wait()
        assert (store.in_flight, len(inner)) == (1, 0)
        store.release()
        assert written.result() == inner.reference("a")
    assert store.write(key="b", content="B") == inner.reference("b")  # nothing hangs any more


def test_a_release_from_another_thread_wakes_the_event_loop() -> None:
    async def use() -> None:
        store, _ = faulty(every_write=Fault(hang_before=True))

        def release() -> None:
            store.hanging.wait()
            store.release()

        threading.Thread(target=release).start()
        assert await store.write_async(key="a", content="A") == store.reference("a")

    asyncio.run(use())


def test_a_cancelled_hang_leaves_nothing_in_flight() -> None:
    async def use() -> None:
        store, inner = faulty(every_write=Fault(hang_before=True))
        write = asyncio.create_task(store.write_async(key="a", content="A"))
        await store.hanging.wait_async()
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert (store.in_flight, len(inner)) == (0, 0)
        store.release()

    asyncio.run(use())


def test_a_batch_keeps_to_its_limit() -> None:
    store, _ = faulty(limit=3, every_write=Fault(after=0.001))
    entries = [StoreEntry(str(number), "content") for number in range(20)]
    assert not any(isinstance(outcome, StoreError) for outcome in asyncio.run(store.write_many_async(entries)))
    assert store.most_in_flight == 3
    store.write_many(entries)
    assert store.most_in_flight == 3


def test_waiting_comes_before_or_after_the_write() -> None:
    async def use(fault: Fault) -> int:
        store, inner = faulty(every_write=fault)
        write = asyncio.create_task(store.write_async(key="a", content="A"))
        for _ in range(5):
            await asyncio.sleep(0)
        stored = len(inner)
        write.cancel()
        return stored

    assert asyncio.run(use(Fault(before=1000))) == 0
    assert asyncio.run(use(Fault(after=1000))) == 1


def test_scopes_share_the_script_and_the_counts() -> None:
    store, _ = faulty(writes={2: Fault(error=DOWN)})
    scoped = store.scoped("run")
    store.write(key="a", content="A")
    with pytest.raises(StoreUnavailableError):
        scoped.write(key="a", content="A")
    assert store.calls == scoped.calls == {"write": 2}


def test_a_serialized_form_has_the_store_and_no_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "haybaler*")
    store, _ = faulty(every_write=Fault(error=DOWN), limit=3)
    again = FaultyStore.from_dict(store.to_dict())
    assert again.write(key="a", content="A") == again.reference("a")
    assert again.to_dict() == store.to_dict()
