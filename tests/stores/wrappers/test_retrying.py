"""What may be retried is, in the colours and shapes in which stores come; nothing else."""

import asyncio
import threading
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.stores.wrappers.conftest import Check

from haybaler import InMemoryToolResultStore, RetryingStore, StoreEntry, StoreError, StoreUnavailableError
from haybaler.effects import Effect
from haybaler.errors import (
    AsyncOnlyStoreError,
    ConfigurationError,
    CorruptEntryError,
    EntryTooLargeError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreCircuitOpenError,
    StoreConfigurationError,
    StoreFullError,
    StoreTimeoutError,
)
from haybaler.stores.protocol import DeletedScope
from haybaler.stores.wrappers import retrying
from haybaler.testing import Fault, FaultyStore
from haybaler.testing.access import Access

DOWN = Fault(error=StoreUnavailableError("down"))
PASSING = (StoreUnavailableError("down"), StoreTimeoutError("late"))
LASTING = (
    StoreFullError("full"),
    StoreCircuitOpenError("open"),
    CorruptEntryError("damaged"),
    EntryTooLargeError("large"),
    ReferenceNotFoundError("absent"),
    InvalidReferenceError("foreign"),
    StoreConfigurationError("refused"),
    AsyncOnlyStoreError("asynchronous"),
    StoreError("something else"),
)


def named(error: Exception) -> str:
    return type(error).__name__


def faulty(**faults: Any) -> FaultyStore:
    return FaultyStore(InMemoryToolResultStore(), **faults)


def retried(store: Any, **settings: Any) -> RetryingStore:
    return RetryingStore(store, **{"wait_initial": 0, "wait_max": 0, **settings})


def operations(store: FaultyStore, kind: str) -> int:
    return store.calls[kind] + store.calls[f"{kind}_async"]


@pytest.mark.parametrize("error", PASSING, ids=named)
def test_an_outage_is_tried_again_until_it_is_over(check: Check, error: StoreError) -> None:
    inner = faulty(
        writes={1: Fault(error=error), 2: Fault(error=error)}, reads={1: Fault(error=error), 2: Fault(error=error)}
    )

    async def law(access: Access) -> None:
        reference = await access.write("key", "content")
        assert await access.read(reference) == "content"

    check(retried(inner), law)
    assert (operations(inner, "write"), operations(inner, "read")) == (3, 3)


@pytest.mark.parametrize("error", LASTING, ids=named)
def test_what_another_try_would_not_mend_is_not_tried_again(check: Check, error: StoreError) -> None:
    inner = faulty(every_write=Fault(error=error), every_read=Fault(error=error))

    async def law(access: Access) -> None:
        with pytest.raises(type(error)) as caught:
            await access.write("key", "content")
        assert caught.value is error
        with pytest.raises(type(error)):
            await access.read(inner.reference("key"))

    check(retried(inner), law)
    assert (operations(inner, "write"), operations(inner, "read")) == (1, 1)


def test_the_last_error_is_raised_once_all_tries_are_used_up(check: Check) -> None:
    errors = [StoreUnavailableError(f"try {number}") for number in range(1, 4)]
    inner = faulty(reads={number: Fault(error=error) for number, error in enumerate(errors, 1)})

    async def law(access: Access) -> None:
        with pytest.raises(StoreUnavailableError) as caught:
            await access.read(inner.reference("key"))
        assert caught.value is errors[-1]

    check(retried(inner, attempts=3), law)
    assert operations(inner, "read") == 3


def test_in_a_batch_only_the_entries_are_tried_again_that_an_outage_kept(check: Check) -> None:
    full = StoreFullError("full")
    inner = faulty(writes={2: DOWN, 3: Fault(error=full), 4: DOWN, 6: DOWN}, limit=1)
    entries = [StoreEntry(key, key.upper()) for key in "abcd"]

    async def law(access: Access) -> None:
        # The 5th and 6th write are those of b and d once more, the 7th is d's last.
        assert await access.write_many(entries) == [
            inner.reference("a"),
            inner.reference("b"),
            full,
            inner.reference("d"),
        ]
        assert [await access.read(inner.reference(key)) for key in "abd"] == ["A", "B", "D"]

    check(retried(inner), law)
    assert operations(inner, "write") == 7
    assert operations(inner, "write_many") == 3


def test_an_entry_that_is_tried_again_never_replaces_a_later_one_of_the_same_key(check: Check) -> None:
    inner = faulty(writes={1: DOWN})
    entries = [StoreEntry("key", "first"), StoreEntry("other", "other"), StoreEntry("key", "last")]

    async def law(access: Access) -> None:
        references = await access.write_many(entries)
        assert references == [inner.reference("key"), inner.reference("other"), inner.reference("key")]
        assert await access.read(inner.reference("key")) == "last"

    check(retried(inner), law)


def test_a_batch_of_which_nothing_gets_through_ends_after_the_last_try(check: Check) -> None:
    inner = faulty(every_write=DOWN)

    async def law(access: Access) -> None:
        outcomes = await access.write_many([StoreEntry(str(number), "content") for number in range(5)])
        assert outcomes == [DOWN.error] * 5

    check(retried(inner, attempts=4), law)
    assert operations(inner, "write") == 20


class Flaky(InMemoryToolResultStore):
    """Fails in every operation but a write, the first two times."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 2

    def _fail(self) -> None:
        if self.left:
            self.left -= 1
            raise ConnectionResetError

    def _remove_many(self, paths: Any) -> None:
        self._fail()

    def _remove_scope(self, folder: str) -> DeletedScope:
        self._fail()
        return DeletedScope(1, 2)

    def warm_up(self) -> None:
        self._fail()

    async def warm_up_async(self) -> None:
        self._fail()

    def _get_page(self, path: str, offset: int, limit: int) -> Any:
        self._fail()
        return super()._get_page(path, offset, limit)

    async def _get_page_async(self, path: str, offset: int, limit: int) -> Any:
        return self._get_page(path, offset, limit)


@pytest.mark.parametrize("name", ["delete", "delete_scope", "warm_up", "read_page"])
@pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])
def test_every_operation_is_tried_again(name: str, native: bool) -> None:
    inner = Flaky()
    reference = inner.write(key="key", content="content")
    store = retried(inner)
    arguments: tuple[Any, ...] = {"delete": ([reference],), "read_page": (reference,)}.get(name, ())
    options = {"limit": 3} if name == "read_page" else {}
    if native:
        result = asyncio.run(getattr(store, f"{name}_async")(*arguments, **options))
    else:
        result = getattr(store, name)(*arguments, **options)
    assert inner.left == 0
    assert name != "delete_scope" or result == DeletedScope(1, 2)
    assert name != "read_page" or result.content == "con"


def test_a_try_that_takes_too_long_is_a_timeout_and_is_tried_again(check: Check) -> None:
    inner = faulty(writes={1: Fault(hang_before=True)}, reads={1: Fault(hang_before=True)})

    async def law(access: Access) -> None:
        reference = await access.write("key", "content")
        assert await access.read(reference) == "content"
        inner.release()

    check(retried(inner, timeout=0.05), law)
    assert (operations(inner, "write"), operations(inner, "read")) == (2, 2)


def test_a_store_that_hangs_for_good_is_a_timeout_for_each_entry(check: Check) -> None:
    inner = faulty(every_write=Fault(hang_before=True), every_read=Fault(hang_before=True))

    async def law(access: Access) -> None:
        outcomes = await access.write_many([StoreEntry("a", "A"), StoreEntry("b", "B")])
        assert [type(outcome) for outcome in outcomes] == [StoreTimeoutError] * 2
        with pytest.raises(StoreTimeoutError):
            await access.read(inner.reference("a"))
        inner.release()

    check(retried(inner, attempts=2, timeout=0.03), law)


class SyncOnly:
    """A store of somebody else's that hangs in the thread in which it is called."""

    supports_binary_content = False

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}
        self.calls = 0
        self.go_on = threading.Event()

    def write(self, *, key: str, content: str) -> str:
        self.calls += 1
        if self.calls == 1:
            self.go_on.wait()
        self.entries[key] = content
        return key

    def read(self, reference: str) -> str:
        return self.entries[reference]


def test_no_timeout_waits_for_a_thread_of_somebody_elses_store(check: Check) -> None:
    inner = SyncOnly()

    async def law(access: Access) -> None:
        assert await access.write("key", "content") == "key"
        assert await access.read("key") == "content"
        inner.go_on.set()

    check(retried(inner, timeout=0.05), law)
    assert inner.calls == 2


def test_threads_that_hang_are_bounded() -> None:
    inner = faulty(every_read=Fault(hang_before=True))
    store = retried(inner, attempts=1, timeout=0.02)
    before = threading.active_count()
    for _ in range(40):
        with pytest.raises(StoreTimeoutError):
            store.read(inner.reference("key"))
    assert operations(inner, "read") == 32
    assert threading.active_count() - before <= 32
    inner.release()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []

    def pause(seconds: float) -> Effect[None]:
        made.append(seconds)
        return Effect(lambda: None, checkpoint)

    monkeypatch.setattr(retrying, "_pause", pause)
    return made


def test_the_pause_grows_up_to_its_longest_and_never_is_the_same_for_all(check: Check, pauses: list[float]) -> None:
    for _ in range(20):
        inner = faulty(every_read=DOWN)

        async def law(access: Access) -> None:
            with pytest.raises(StoreUnavailableError):
                await access.read(inner.reference("key"))  # noqa: B023 - called at once

        check(RetryingStore(inner, attempts=6, timeout=None, wait_initial=0.1, wait_max=0.5), law)
    assert len(pauses) == 100
    for index, shortest in enumerate([0.1, 0.2, 0.4, 0.5, 0.5]):
        own = pauses[index::5]
        assert min(own) >= shortest
        assert max(own) <= shortest + 0.1
        assert len({round(pause, 9) for pause in own}) > 10


@pytest.mark.anyio
async def test_a_cancellation_ends_it_at_once() -> None:
    inner = faulty(every_read=Fault(hang_before=True))
    store = retried(inner, timeout=60.0)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(store.read_async, inner.reference("key"))
            await inner.hanging.wait_async()
            scope.cancel()
    assert scope.cancelled_caught
    assert (operations(inner, "read"), inner.in_flight) == (1, 0)


@pytest.mark.anyio
async def test_a_cancellation_during_a_pause_ends_it_too() -> None:
    inner = faulty(every_write=DOWN)
    store = RetryingStore(inner, wait_initial=1_000, wait_max=1_000)
    task = asyncio.create_task(store.write_async(key="key", content="content"))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert operations(inner, "write") == 1


@pytest.mark.anyio
async def test_many_operations_at_once_each_have_their_own_tries() -> None:
    inner = faulty(reads=dict.fromkeys(range(1, 101), DOWN))
    store = retried(inner)
    reference = inner.store.write(key="key", content="content")
    contents = await asyncio.gather(*(store.read_async(reference) for _ in range(100)))
    assert contents == ["content"] * 100
    assert operations(inner, "read") == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"attempts": 0},
        {"attempts": True},
        {"attempts": 1.5},
        {"timeout": 0},
        {"timeout": "1"},
        {"timeout": float("inf")},
        {"wait_initial": -1},
        {"wait_max": float("nan")},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        RetryingStore(InMemoryToolResultStore(), **settings)
