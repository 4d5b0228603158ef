"""While the first store is away, the second one takes and gives; absence and unavailability are never confused."""

import asyncio
import logging
from typing import Any

import pytest
from tests.stores.wrappers.conftest import Check

from haybaler import (
    CorruptEntryError,
    FallbackStore,
    InMemoryToolResultStore,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
)
from haybaler.errors import EntryTooLargeError, StoreConfigurationError, StoreFullError, StoreTimeoutError
from haybaler.testing import Cancellation, Fault, FaultyStore, cancel_at, each_cancellation
from haybaler.testing.access import Access
from haybaler.testing.corpus import hostile_references


class Switched(InMemoryToolResultStore):
    """A store that can be taken away, and brought back with what it held."""

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.calls: list[str] = []

    def _ask(self, what: str) -> None:
        self.calls.append(what)
        if self.error is not None:
            raise self.error

    def _put(self, path: str, content: Any) -> None:
        self._ask("put")
        super()._put(path, content)

    def _get(self, path: str) -> Any:
        self._ask("get")
        return super()._get(path)

    def _remove(self, path: str) -> None:
        self._ask("remove")
        super()._remove(path)

    def _remove_scope(self, folder: str) -> Any:
        self._ask("remove scope")
        return super()._remove_scope(folder)

    def warm_up(self) -> None:
        self._ask("warm up")

    async def warm_up_async(self) -> None:
        self._ask("warm up")


DOWN = StoreUnavailableError("down")


@pytest.fixture
def first() -> Switched:
    return Switched()


@pytest.fixture
def second() -> Switched:
    return Switched()


@pytest.fixture
def store(first: Switched, second: Switched) -> FallbackStore:
    return FallbackStore(first, second)


@pytest.mark.parametrize("error", [DOWN, StoreTimeoutError("late"), StoreFullError("full"), ConnectionResetError()])
def test_what_the_first_cannot_take_is_written_to_and_read_from_the_second(
    check: Check, store: FallbackStore, first: Switched, second: Switched, error: Exception
) -> None:
    async def law(access: Access) -> None:
        reference = store.reference("key")
        for content in ("text", b"bytes"):
            first.error = error
            assert await access.write("key", content) == reference == first.reference("key")
            assert await access.read(reference) == content
            first.error = None
            assert await access.read(reference) == content
        assert (len(first), len(second)) == (0, 1)

    check(store, law)


@pytest.mark.parametrize(
    "error", [EntryTooLargeError("large"), StoreConfigurationError("refused"), StoreError("something else")]
)
def test_what_is_no_outage_stays_an_error(
    check: Check, store: FallbackStore, first: Switched, second: Switched, error: StoreError
) -> None:
    first.error = error

    async def law(access: Access) -> None:
        assert await access.write_many([StoreEntry("key", "content")]) == [error]
        assert len(second) == 0

    check(store, law)


def test_in_a_batch_only_the_failed_entries_go_to_the_second(check: Check) -> None:
    first, second = InMemoryToolResultStore(), InMemoryToolResultStore()
    large = EntryTooLargeError("large")
    faulty = FaultyStore(first, writes={2: Fault(error=DOWN), 3: Fault(error=large), 4: Fault(error=DOWN)})
    entries = [StoreEntry(key, key.upper()) for key in "abcde"]

    async def law(access: Access) -> None:
        outcomes = await access.write_many(entries)
        assert outcomes == [large if key == "c" else first.reference(key) for key in "abcde"]
        assert (len(first), len(second)) == (2, 2)
        for key in "abde":
            assert await access.read(first.reference(key)) == key.upper()

    check(FallbackStore(faulty, second), law)


def test_what_was_written_last_is_what_is_read_however_the_first_came_and_went(
    check: Check, store: FallbackStore, first: Switched
) -> None:
    async def law(access: Access) -> None:
        for number, is_away in enumerate([False, True, False, False, True, True, False, True]):
            first.error = DOWN if is_away else None
            reference = await access.write("key", f"content {number}")
            for error in (DOWN, None) if is_away else (None,):
                first.error = error
                assert await access.read(reference) == f"content {number}"

    check(store, law)


def test_another_process_reads_what_was_written_last_too(check: Check, first: Switched, second: Switched) -> None:
    async def law(access: Access) -> None:
        reference = await access.write("key", "old")
        first.error = DOWN
        await access.write("key", "new")
        first.error = None
        assert await access.to(FallbackStore(first, second)).read(reference) == "new"

    check(FallbackStore(first, second), law)


def test_an_entry_that_may_be_where_nobody_answers_is_not_absent(
    check: Check, store: FallbackStore, first: Switched, second: Switched
) -> None:
    async def law(access: Access) -> None:
        reference = store.reference("key")
        for away in (first, second):
            away.error = DOWN
            with pytest.raises(StoreUnavailableError):
                await access.read(reference)
            away.error = None
        with pytest.raises(ReferenceNotFoundError):
            await access.read(reference)

    check(store, law)


def test_while_the_second_is_away_the_first_serves_alone(check: Check, store: FallbackStore, second: Switched) -> None:
    second.error = DOWN

    async def law(access: Access) -> None:
        reference = await access.write("key", "content")
        assert await access.read(reference) == "content"
        with pytest.raises(StoreUnavailableError):  # it may hold the entry
            await access.delete([reference])

    check(store, law)


def test_while_both_are_away_the_outcome_is_unavailability(
    check: Check, store: FallbackStore, first: Switched, second: Switched
) -> None:
    first.error, second.error = DOWN, StoreTimeoutError("late")

    async def law(access: Access) -> None:
        (outcome,) = await access.write_many([StoreEntry("key", "content")])
        assert outcome is DOWN
        with pytest.raises(StoreUnavailableError):
            await access.read(store.reference("key"))

    check(store, law)


def test_damage_in_the_second_is_not_covered_up_by_an_older_content_of_the_first(
    check: Check, store: FallbackStore, first: Switched, second: Switched
) -> None:
    async def law(access: Access) -> None:
        reference = await access.write("key", "old")
        second.error = CorruptEntryError("damaged")
        with pytest.raises(CorruptEntryError):
            await access.read(reference)

    check(store, law)


def test_a_deleted_entry_is_gone_from_both(
    check: Check, store: FallbackStore, first: Switched, second: Switched
) -> None:
    async def law(access: Access) -> None:
        reference = await access.write("key", "old")
        first.error = DOWN
        await access.write("key", "new")
        with pytest.raises(StoreUnavailableError):
            await access.delete([reference])
        assert await access.read(reference) == "new"  # and never the old one
        first.error = None
        await access.delete([reference])
        with pytest.raises(ReferenceNotFoundError):
            await access.read(reference)
        assert (len(first), len(second)) == (0, 0)

    check(store, law)


def test_what_is_no_reference_reaches_neither_store(
    check: Check, store: FallbackStore, first: Switched, second: Switched
) -> None:
    async def law(access: Access) -> None:
        first.error = DOWN
        reference = await access.write("key", "content")
        first.error = None
        for other in [*hostile_references(reference), second.reference(reference), None, 5, b"x", ["x"]]:
            with pytest.raises(InvalidReferenceError):
                await access.read(other)  # type: ignore[arg-type]
            with pytest.raises(InvalidReferenceError):
                await access.delete([reference, other])  # type: ignore[list-item]
        assert await access.read(reference) == "content"

    check(store, law)


def test_scopes_are_apart_in_both(check: Check, store: FallbackStore, first: Switched) -> None:
    first.error = DOWN

    async def law(access: Access) -> None:
        one, other = access.to(store.scoped("a")), access.to(store.scoped("b"))
        reference = await one.write("key", "of a")
        await other.write("key", "of b")
        assert await one.read(reference) == "of a"
        with pytest.raises(StoreError) as caught:
            await other.read(reference)
        assert isinstance(caught.value, (InvalidReferenceError, StoreUnavailableError))

    check(store, law)


@pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])
def test_a_scope_is_removed_from_both_even_if_one_is_away(
    store: FallbackStore, first: Switched, second: Switched, native: bool
) -> None:
    def remove() -> Any:
        return asyncio.run(store.delete_scope_async()) if native else store.delete_scope()

    store.write(key="a", content="123")
    first.error = DOWN
    store.write(key="b", content="45")
    with pytest.raises(StoreUnavailableError):
        remove()
    assert (len(first), len(second)) == (1, 0)
    first.error = None
    store.write(key="c", content="")
    removed = remove()
    assert (removed.entries, removed.bytes) == (2, 3)


@pytest.mark.parametrize("native", [False, True], ids=["sync", "async"])
def test_a_store_that_is_away_at_the_start_is_no_reason_not_to_start(
    store: FallbackStore, first: Switched, second: Switched, native: bool
) -> None:
    def warm_up() -> None:
        asyncio.run(store.warm_up_async()) if native else store.warm_up()

    first.error = DOWN
    warm_up()
    assert "warm up" in second.calls
    second.error = DOWN
    with pytest.raises(StoreUnavailableError):
        warm_up()
    first.error = StoreConfigurationError("the server refuses the credentials")
    with pytest.raises(StoreConfigurationError):
        warm_up()


def test_a_cancelled_write_that_falls_back_leaves_the_old_entry_or_the_new_one() -> None:
    first, second = Switched(), FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.001, after=0.001))
    store = FallbackStore(first, second)

    async def write() -> None:
        first.error = DOWN
        await store.write_async(key="key", content="new")

    store.write(key="key", content="old")
    for _, _, cancelled in each_cancellation(write):
        first.error = None
        assert store.read(store.reference("key")) in ({"old", "new"} if cancelled else {"new"})
        store.write(key="key", content="old")


def test_a_write_cancelled_before_the_older_content_is_forgotten_leaves_that() -> None:
    first, second = InMemoryToolResultStore(), Switched()
    faulty = FaultyStore(first, writes={1: Fault(error=DOWN)}, every_write=Fault(before=0.001))
    store = FallbackStore(faulty, second)
    store.write(key="key", content="old")
    for step in range(1, 10):
        cancel_at(lambda: store.write_async(key="key", content="new"), step=step, by=Cancellation.TASK)
        assert store.read(store.reference("key")) in {"old", "new"}
    assert store.write(key="key", content="newest")
    assert store.read(store.reference("key")) == "newest"
    assert len(second) == 0


def test_falling_back_is_logged_once_a_batch_without_anything_of_an_entry(
    check: Check, store: FallbackStore, first: Switched, caplog: pytest.LogCaptureFixture
) -> None:
    first.error = DOWN

    async def law(access: Access) -> None:
        with caplog.at_level(logging.INFO):
            await access.write_many([StoreEntry(f"key {number}", "secret") for number in range(5)])

    check(store, law)
    (record,) = caplog.records
    assert record.__dict__["entries"] == 5
    assert "secret" not in str(record.__dict__)


class Own:
    """A store of somebody else's, which makes up its references when it writes."""

    supports_binary_content = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.entries: dict[str, str] = {}
        self.is_away = False

    def write(self, *, key: str, content: str) -> str:
        if self.is_away:
            raise ConnectionRefusedError
        reference = f"{self.name} {len(self.entries)}"
        self.entries[reference] = content
        return reference

    def read(self, reference: str) -> str:
        if self.is_away:
            raise ConnectionRefusedError
        try:
            return self.entries[reference]
        except KeyError:
            raise FileNotFoundError(reference) from None


def test_stores_that_tell_no_reference_beforehand_each_keep_their_own(check: Check) -> None:
    first: Any = Own("first")
    second: Any = Own("second")
    store = FallbackStore(first, second)
    assert not hasattr(store, "reference")
    assert not hasattr(store, "delete")

    async def law(access: Access) -> None:
        one = await access.write("key", "1")
        first.is_away = True
        two = await access.write("key", "2")
        assert (one, two) == ("first 0", "second 0")
        assert await access.read(two) == "2"
        with pytest.raises(StoreUnavailableError):
            await access.read(one)
        first.is_away = False
        assert [await access.read(reference) for reference in (one, two)] == ["1", "2"]
        with pytest.raises(ReferenceNotFoundError):
            await access.read("third 0")

    check(store, law)
