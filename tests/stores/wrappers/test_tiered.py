"""Small entries here, large ones there, and one of the two says which."""

import asyncio
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stores.wrappers.conftest import Check

from haybaler import (
    CorruptEntryError,
    InMemoryToolResultStore,
    ReferenceNotFoundError,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
    TieredStore,
)
from haybaler.errors import ConfigurationError, StoreFullError
from haybaler.testing import Fault, FaultyStore, each_cancellation
from haybaler.testing.access import Access

DOWN = Fault(error=StoreUnavailableError("down"))
LARGE, SMALL = "large " * 10, "small"


def built(threshold: int = 10) -> tuple[TieredStore, InMemoryToolResultStore, InMemoryToolResultStore]:
    small, large = InMemoryToolResultStore(), InMemoryToolResultStore()
    return TieredStore(small, large, threshold=threshold), small, large


@pytest.mark.parametrize(
    ("content", "is_large"),
    [("", False), ("x" * 10, False), ("x" * 11, True), ("é" * 5, False), ("é" * 6, True), (b"x" * 10, False)],
)
def test_the_size_in_bytes_decides_where_an_entry_lives(check: Check, content: str | bytes, is_large: bool) -> None:
    store, small, large = built()

    async def law(access: Access) -> None:
        reference = await access.write("key", content)
        assert reference == store.reference("key") == small.reference("key")
        assert len(large) == is_large
        assert (small.read(reference) == content) is not is_large
        assert await access.read(reference) == content

    check(store, law)


def test_in_one_batch_each_entry_goes_its_way_and_keeps_its_outcome(check: Check) -> None:
    small, large = InMemoryToolResultStore(), InMemoryToolResultStore()
    full = StoreFullError("full")
    store = TieredStore(
        FaultyStore(small, writes={2: Fault(error=full)}, limit=1),
        FaultyStore(large, writes={2: DOWN}, limit=1),
        threshold=10,
    )
    contents = {"a": SMALL, "b": LARGE + "b", "c": LARGE + "c", "d": "d", "e": LARGE + "e"}

    async def law(access: Access) -> None:
        outcomes = await access.write_many([StoreEntry(key, content) for key, content in contents.items()])
        # The second large entry is c; the second to reach the small store is b's note.
        assert outcomes == [full if k == "b" else DOWN.error if k == "c" else small.reference(k) for k in contents]
        for key in "ade":
            assert await access.read(small.reference(key)) == contents[key]
        for key in "bc":
            with pytest.raises(ReferenceNotFoundError):
                await access.read(small.reference(key))

    check(store, law)


def test_an_entry_may_grow_and_shrink(check: Check) -> None:
    store, small, large = built()

    async def law(access: Access) -> None:
        for number, content in enumerate([SMALL, LARGE, LARGE, SMALL, LARGE, SMALL, SMALL]):
            reference = await access.write("key", f"{content} {number}")
            assert await access.read(reference) == f"{content} {number}"
        await access.delete([reference])
        with pytest.raises(ReferenceNotFoundError):
            await access.read(reference)
        assert (len(small), len(large)) == (0, 0)

    check(store, law)


def test_a_page_of_either_kind_is_that_of_the_content(check: Check) -> None:
    store, _, _ = built()

    async def law(access: Access) -> None:
        for content in ("0123456", "0123456789" * 5, bytes(range(50))):
            reference = await access.write("key", content)
            page = await access.call(
                access.colour.reads,
                lambda: store.read_page(reference, offset=-4, limit=3),  # noqa: B023 - called at once
                lambda: store.read_page_async(reference, offset=-4, limit=3),  # noqa: B023
            )
            assert (page.content, page.offset, page.total) == (content[-4:-1], len(content) - 4, len(content))

    check(store, law)


@pytest.mark.parametrize("away", ["small", "large"])
def test_a_store_that_is_away_is_never_taken_for_an_absent_entry(check: Check, away: str) -> None:
    store, small, large = built()
    reference = store.write(key="key", content=LARGE)
    down = FaultyStore({"small": small, "large": large}[away], every_read=DOWN)
    broken = TieredStore(down, large, threshold=10) if away == "small" else TieredStore(small, down, threshold=10)

    async def law(access: Access) -> None:
        with pytest.raises(StoreUnavailableError):
            await access.read(reference)

    check(broken, law)


def test_a_large_entry_that_went_away_by_itself_is_absent(check: Check) -> None:
    store, _, large = built()

    async def law(access: Access) -> None:
        reference = await access.write("key", LARGE)
        large.delete_scope()
        with pytest.raises(ReferenceNotFoundError):
            await access.read(reference)

    check(store, law)


@pytest.mark.parametrize("content", ["hb:t1:", "hb:t1:lelsewhere", b"hb:t1:", b"hb:t1:l" + b"x", b"hb:t1:=t"], ids=str)
def test_content_that_looks_like_a_note_is_content(check: Check, content: str | bytes) -> None:
    store, _, _ = built(threshold=1_000)

    async def law(access: Access) -> None:
        read = await access.read(await access.write("key", content))
        assert (type(read), read) == (type(content), content)

    check(store, law)


@pytest.mark.parametrize("stored", [b"hb:t1:", b"hb:t1:?x", b"hb:t1:=", b"hb:t1:lnowhere", b"hb:t1:l\xff"], ids=str)
def test_a_note_that_is_none_is_damage(check: Check, stored: bytes) -> None:
    store, small, _ = built()
    reference = small.write(key="key", content=stored)

    async def law(access: Access) -> None:
        with pytest.raises(CorruptEntryError):
            await access.read(reference)

    check(store, law)


@given(st.lists(st.sampled_from([SMALL, LARGE]), min_size=2, max_size=3), st.data())
def test_of_writers_at_once_one_is_the_last(contents: list[str], data: st.DataObject) -> None:
    small, large = InMemoryToolResultStore(), InMemoryToolResultStore()
    store = TieredStore(small, large, threshold=10)
    steps = {n: store._outcomes([StoreEntry("key", f"{content}{n}")]) for n, content in enumerate(contents)}
    results: dict[int, Any] = {}
    pending: dict[int, Any] = dict.fromkeys(steps)
    while pending:
        number = data.draw(st.sampled_from(sorted(pending)))
        try:
            pending[number] = steps[number].send(pending[number] and pending[number].run())
        except StopIteration as stop:
            results[number] = stop.value
            del pending[number]
    assert all(outcome == [store.reference("key")] for outcome in results.values())
    assert store.read(store.reference("key")) in {f"{content}{number}" for number, content in enumerate(contents)}


@pytest.mark.parametrize(("old", "new"), list(permutations([SMALL, LARGE])))
def test_a_cancelled_write_leaves_the_old_entry_or_the_new_one(old: str, new: str) -> None:
    slow = Fault(before=0.001, after=0.001)
    store = TieredStore(
        FaultyStore(InMemoryToolResultStore(), every_write=slow),
        FaultyStore(InMemoryToolResultStore(), every_write=slow),
        threshold=10,
    )
    reference = store.write(key="key", content=old)
    for _, _, cancelled in each_cancellation(lambda: store.write_async(key="key", content=new)):
        assert store.read(reference) in ({old, new} if cancelled else {new})
        store.write(key="key", content=old)


class Own:
    """A store of somebody else's, which makes up its references when it writes."""

    supports_binary_content = False

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def write(self, *, key: str, content: str) -> str:
        self.entries[f"{key} {len(self.entries)}"] = content
        return f"{key} {len(self.entries) - 1}"

    def read(self, reference: str) -> str:
        return self.entries[reference]


def test_stores_that_tell_no_reference_beforehand_work_too(check: Check) -> None:
    own: list[Any] = [Own(), Own()]
    store = TieredStore(*own, threshold=10)
    assert not hasattr(store, "reference")
    assert not hasattr(store, "delete")

    async def law(access: Access) -> None:
        for content in (SMALL, LARGE, "hb:t1:x"):
            assert await access.read(await access.write("key", content)) == content

    check(store, law)
    assert [len(store.entries) for store in own] == [3, 1]


def test_sorting_many_megabytes_leaves_the_event_loop_free() -> None:
    store, _, large = built(threshold=64 * 1024)
    entries = [StoreEntry(str(number), "é" * 60_000) for number in range(100)]
    assert not any(isinstance(outcome, StoreError) for outcome in asyncio.run(store.write_many_async(entries)))
    assert len(large) == 100


def test_a_threshold_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="threshold"):
        TieredStore(InMemoryToolResultStore(), InMemoryToolResultStore(), threshold=-1)
