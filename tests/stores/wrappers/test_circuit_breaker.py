"""A store that fails again and again is left alone, and found well again by a single probe."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from tests.stores.wrappers.conftest import Check

from haybaler import (
    CircuitBreakerStore,
    InMemoryToolResultStore,
    RetryingStore,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
)
from haybaler.errors import (
    ConfigurationError,
    CorruptEntryError,
    EntryTooLargeError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    ScopeFullError,
    StoreCircuitOpenError,
    StoreFullError,
    StoreTimeoutError,
)
from haybaler.stores.wrappers.circuit import Circuit
from haybaler.testing import Fault, FaultyStore
from haybaler.testing.access import Access

DOWN = Fault(error=StoreUnavailableError("down"))


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def built(threshold: int = 3, seconds: float = 30.0, **faults: Any) -> tuple[CircuitBreakerStore, FaultyStore, Clock]:
    inner, clock = FaultyStore(InMemoryToolResultStore(), **faults), Clock()
    store = CircuitBreakerStore(inner, failure_threshold=threshold, recovery_timeout=seconds, clock=clock)
    return store, inner, clock


def reads(store: FaultyStore) -> int:
    return store.calls["read"] + store.calls["read_async"]


async def fail(access: Access, times: int) -> None:
    for _ in range(times):
        with pytest.raises(StoreUnavailableError):
            await access.read(access.store.reference("key"))


def test_an_open_circuit_costs_nothing(check: Check) -> None:
    store, inner, _ = built(every_read=DOWN)

    async def law(access: Access) -> None:
        await fail(access, 3)
        assert store.is_open
        reference = store.reference("key")
        for attempt in (access.read(reference), access.write("key", "content"), access.delete([reference])):
            with pytest.raises(StoreCircuitOpenError):
                await attempt
        outcomes = await access.write_many([StoreEntry("a", "A"), StoreEntry("b", "B")])
        assert [type(outcome) for outcome in outcomes] == [StoreCircuitOpenError] * 2

    check(store, law)
    assert reads(inner) == 3
    assert {name: count for name, count in inner.calls.items() if "read" not in name and "close" not in name} == {}


def test_only_failures_in_a_row_count(check: Check) -> None:
    store, inner, _ = built(reads={3: Fault(), 6: Fault()}, every_read=DOWN)
    inner.store.write(key="key", content="content")

    async def law(access: Access) -> None:
        for _ in range(2):
            await fail(access, 2)
            assert await access.read(store.reference("key")) == "content"
        await fail(access, 2)
        assert not store.is_open
        await fail(access, 1)
        assert store.is_open

    check(store, law)


@pytest.mark.parametrize(
    "error",
    [
        ReferenceNotFoundError("absent"),
        CorruptEntryError("damaged"),
        StoreFullError("full"),
        EntryTooLargeError("large"),
        InvalidReferenceError("foreign"),
        StoreError("something else"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_no_outage_is_no_failure(check: Check, error: StoreError) -> None:
    store, _, _ = built(every_read=Fault(error=error), every_write=Fault(error=error))

    async def law(access: Access) -> None:
        for _ in range(10):
            with pytest.raises(type(error)):
                await access.read(store.reference("key"))
            assert await access.write_many([StoreEntry("key", "content")]) == [error]
        assert not store.is_open

    check(store, law)


def test_a_timeout_is_a_failure(check: Check) -> None:
    store, _, _ = built(every_read=Fault(error=StoreTimeoutError("late")))

    async def law(access: Access) -> None:
        await fail(access, 3)
        assert store.is_open

    check(store, law)


def test_a_batch_counts_once_and_only_if_nothing_of_it_got_through(check: Check) -> None:
    entries = [StoreEntry(str(number), "content") for number in range(4)]
    store, _, _ = built(threshold=2, writes=dict.fromkeys([1, 2, 3, *range(5, 100)], DOWN), limit=1)

    async def law(access: Access) -> None:
        await access.write_many(entries)  # the 4th gets through
        await access.write_many(entries)
        assert not store.is_open
        await access.write_many(entries)
        assert store.is_open

    check(store, law)


def test_after_a_while_one_probe_closes_the_circuit(check: Check) -> None:
    store, inner, clock = built(reads=dict.fromkeys([1, 2, 3], DOWN))
    inner.store.write(key="key", content="content")

    async def law(access: Access) -> None:
        await fail(access, 3)
        clock.now += 29.9
        with pytest.raises(StoreCircuitOpenError):
            await access.read(store.reference("key"))
        clock.now += 0.1
        assert await access.read(store.reference("key")) == "content"
        assert not store.is_open
        assert await access.read(store.reference("key")) == "content"

    check(store, law)


def test_a_probe_that_fails_opens_it_for_as_long_again(check: Check) -> None:
    store, inner, clock = built(every_read=DOWN)

    async def law(access: Access) -> None:
        await fail(access, 3)
        for opened in (4, 5):
            clock.now += 30
            await fail(access, 3)
            assert reads(inner) == opened

    check(store, law)


def test_a_probe_that_tells_nothing_is_followed_by_another(check: Check) -> None:
    store, inner, clock = built(reads=dict.fromkeys([1, 2, 3], DOWN))
    inner.store.write(key="key", content="content")

    async def law(access: Access) -> None:
        await fail(access, 3)
        clock.now += 30
        with pytest.raises(InvalidReferenceError):  # found out without asking a server
            await access.read("no reference")
        assert store.is_open
        assert await access.read(store.reference("key")) == "content"
        assert not store.is_open

    check(store, law)


def test_a_limit_that_is_known_without_the_server_does_not_close_the_circuit(check: Check) -> None:
    full = Fault(error=ScopeFullError("full"))
    store, _, clock = built(reads=dict.fromkeys([1, 2, 3], DOWN), every_write=full)

    async def law(access: Access) -> None:
        await fail(access, 3)
        clock.now += 30
        with pytest.raises(ScopeFullError):
            await access.write("key", "content")
        assert store.is_open

    check(store, law)


@pytest.mark.anyio
async def test_of_a_thousand_at_once_one_is_the_probe() -> None:
    store, inner, clock = built(reads={**dict.fromkeys([1, 2, 3], DOWN), 4: Fault(hang_before=True)})
    reference = inner.store.write(key="key", content="content")
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            await store.read_async(reference)
    clock.now += 30
    waiting = [asyncio.create_task(store.read_async(reference)) for _ in range(1_000)]
    await inner.hanging.wait_async()
    done, open_ = await asyncio.wait(waiting, return_when=asyncio.ALL_COMPLETED, timeout=0.5)
    assert (len(done), len(open_)) == (999, 1)
    assert {type(task.exception()) for task in done} == {StoreCircuitOpenError}
    inner.release()
    assert await open_.pop() == "content"
    assert reads(inner) == 4
    assert not store.is_open


@pytest.mark.anyio
async def test_a_cancelled_probe_makes_room_for_the_next() -> None:
    store, inner, clock = built(reads={**dict.fromkeys([1, 2, 3], DOWN), 4: Fault(hang_before=True)})
    reference = inner.store.write(key="key", content="content")
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            await store.read_async(reference)
    clock.now += 30
    probe = asyncio.create_task(store.read_async(reference))
    await inner.hanging.wait_async()
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert await store.read_async(reference) == "content"


@pytest.mark.anyio
@pytest.mark.parametrize(("seconds", "opens"), [(0.9, False), (1.0, True)])
async def test_operations_that_callers_give_up_count_once_they_were_slow(seconds: float, opens: bool) -> None:
    store, inner, clock = built(every_write=Fault(hang_before=True))
    for number in range(1, 4):
        write = asyncio.create_task(store.write_async(key="key", content="content"))
        while inner.in_flight == 0:  # noqa: ASYNC110 - nothing announces the second one
            await asyncio.sleep(0)
        clock.now += seconds
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert store.is_open is (opens and number == 3)


@pytest.mark.anyio
async def test_of_many_operations_that_are_given_up_together_one_counts() -> None:
    """A program that ends cancels all its runs; in a busy one, that finds many operations slow."""
    store, inner, clock = built(every_write=Fault(hang_before=True))
    for number in range(1, 4):
        writes = [asyncio.create_task(store.write_async(key=str(n), content="content")) for n in range(100)]
        while inner.in_flight < 100:  # noqa: ASYNC110 - nothing announces the others
            await asyncio.sleep(0)
        clock.now += 5
        for write in writes:
            write.cancel()
        await asyncio.wait(writes)
        assert store.is_open is (number == 3)


@pytest.mark.anyio
async def test_what_began_before_the_circuit_opened_has_no_say_afterwards() -> None:
    store, inner, clock = built(reads={1: Fault(hang_before=True), **dict.fromkeys([2, 3, 4, 5], DOWN)})
    reference = inner.store.write(key="key", content="content")
    early = asyncio.create_task(store.read_async(reference))
    await inner.hanging.wait_async()
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            await store.read_async(reference)
    inner.release()
    assert await early == "content"
    assert store.is_open
    clock.now += 30
    with pytest.raises(StoreUnavailableError):
        await store.read_async(reference)
    assert reads(inner) == 5


def test_all_scopes_threads_and_event_loops_share_the_state() -> None:
    store, inner, _ = built(threshold=8, every_read=DOWN)
    scoped = store.scoped("a")
    references = [store.reference("key"), scoped.reference("key")]

    def read(number: int) -> None:
        own, reference = (store, scoped)[number % 2], references[number % 2]
        call: Any = partial(own.read, reference) if number % 4 < 2 else lambda: asyncio.run(own.read_async(reference))
        with pytest.raises(StoreUnavailableError):
            call()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(40)))
    assert store.is_open
    assert scoped.is_open
    assert store.scoped("b").is_open
    assert 8 <= reads(inner) < 8 + 4  # no more than were under way


def test_many_threads_find_the_same_single_probe() -> None:
    circuit = Circuit(failure_threshold=1, recovery_timeout=0, slow_after=1, clock=Clock())
    circuit.report(circuit.admit(), worked=False)
    start = threading.Barrier(8)

    def admitted() -> int:
        start.wait()
        count = 0
        for _ in range(1_000):
            try:
                circuit.admit()
            except StoreCircuitOpenError:
                continue
            count += 1
        return count

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: admitted(), range(8))) == 1


def test_retries_around_it_do_not_wait_for_a_circuit_that_is_open(check: Check) -> None:
    store, inner, _ = built(every_read=DOWN)
    retrying = RetryingStore(store, attempts=5, wait_initial=0, wait_max=0)

    async def law(access: Access) -> None:
        with pytest.raises(StoreCircuitOpenError):
            await access.read(store.reference("key"))
        assert reads(inner) == 3

    check(retrying, law)


def test_a_change_is_logged_once_without_anything_of_an_entry(check: Check, caplog: pytest.LogCaptureFixture) -> None:
    store, inner, clock = built(reads=dict.fromkeys([1, 2, 3], DOWN))
    inner.store.write(key="key", content="secret")

    async def law(access: Access) -> None:
        with caplog.at_level(logging.INFO):
            await fail(access, 10)
            clock.now += 30
            await access.read(store.reference("key"))

    check(store, law)
    records = [record for record in caplog.records if record.name.startswith("haybaler")]
    assert [record.__dict__["is_open"] for record in records] == [True, False]
    assert all("secret" not in str(record.__dict__) for record in records)


@pytest.mark.parametrize(
    "settings",
    [{"failure_threshold": 0}, {"failure_threshold": 2.5}, {"recovery_timeout": -1}, {"slow_after": "1"}],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        CircuitBreakerStore(InMemoryToolResultStore(), **settings)
