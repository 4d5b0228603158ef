"""Equal contents are stored once and go with the last entry; nobody loses one, whoever comes in between or crashes."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.stores.wrappers.conftest import Check
from tests.stores.wrappers.turns import Crash, Turns, TurnsStore

from haybaler import (
    ContentAddressedStore,
    CorruptEntryError,
    InMemoryToolResultStore,
    ReferenceNotFoundError,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
)
from haybaler.effects import Effect
from haybaler.errors import ConfigurationError, StoreFullError, StoreTimeoutError
from haybaler.stores.wrappers import content_index, content_sharing, holds
from haybaler.stores.wrappers.holds import Hold
from haybaler.testing import Cancellation, Fault, FaultyStore, cancel_at
from haybaler.testing.access import Access

LARGE = "a large content " * 1_000
SECOND = "another content " * 1_000


def copies(store: Any, content: Any = LARGE) -> int:
    return sum(held.content == content for held in store._entries.values())


def built(**settings: Any) -> tuple[ContentAddressedStore, InMemoryToolResultStore]:
    inner = InMemoryToolResultStore()
    return ContentAddressedStore(inner, **settings), inner


def test_equal_contents_of_one_scope_are_stored_once_and_go_with_the_last_entry(check: Check) -> None:
    store, inner = built()

    async def law(access: Access) -> None:
        references = [await access.write(f"key {number}", LARGE) for number in range(5)]
        references += [str(o) for o in await access.write_many([StoreEntry(f"more {n}", LARGE) for n in range(70)])]
        assert copies(inner) == 1
        assert len(references) == len(set(references)) == 75
        random.Random(0).shuffle(references)
        while references:
            for reference in references[:3]:
                assert await access.read(reference) == LARGE
            await access.delete([references.pop() for _ in range(min(len(references), 7))])
            assert copies(inner) == bool(references)
        assert len(inner) == 0

    check(store, law)


def test_text_and_the_same_bytes_are_different_contents(check: Check) -> None:
    store, inner = built()

    async def law(access: Access) -> None:
        text, data = await access.write("text", LARGE), await access.write("bytes", LARGE.encode())
        assert (copies(inner, LARGE), copies(inner, LARGE.encode())) == (1, 1)
        assert [type(await access.read(reference)) for reference in (text, data)] == [str, bytes]

    check(store, law)


def test_small_contents_are_kept_as_they_are(check: Check) -> None:
    store, inner = built()

    async def law(access: Access) -> None:
        for content in ("small", "x" * 4_095, "é" * 2_047, b"small"):
            assert inner.read(await access.write("key", content)) == content
        for content in ("é" * 2_048, "hb:c1:", "hb:c1:s", b"hb:c1:", b"hb:c1:s" + b"x" * 52):
            reference = await access.write("key", content)
            assert inner.read(reference) != content
            read = await access.read(reference)
            assert (type(read), read) == (type(content), content)

    check(store, law)


def test_scopes_share_nothing(check: Check) -> None:
    store, inner = built()

    async def law(access: Access) -> None:
        for scope in ("a", "b", "a/b"):
            await access.to(store.scoped(scope)).write("key", LARGE)
        assert copies(inner) == 3
        await access.to(store.scoped("a")).delete([store.scoped("a").reference("key")])
        assert await access.to(store.scoped("b")).read(store.scoped("b").reference("key")) == LARGE

    check(store, law)


def test_a_scope_that_is_removed_takes_its_contents_along() -> None:
    store, inner = built()
    for scope in ("a", "b"):
        store.scoped(scope).write(key="key", content=LARGE)
    store.scoped("a").delete_scope()
    assert copies(inner) == 1
    again = store.scoped("a")
    assert again.read(again.write(key="new", content=LARGE)) == LARGE
    asyncio.run(store.delete_scope_async())
    assert len(inner) == 0
    assert store.read(store.write(key="new", content=LARGE)) == LARGE


def test_an_entry_that_is_replaced_gives_up_what_it_held(check: Check) -> None:
    store, inner = built()

    async def law(access: Access) -> None:
        for content in (LARGE, SECOND, SECOND, "small", LARGE, LARGE):
            reference = await access.write("key", content)
            assert await access.read(reference) == content
            assert (copies(inner), copies(inner, SECOND)) == (content == LARGE, content == SECOND)
        await access.delete([reference])
        assert len(inner) == 0

    check(store, law)


def test_another_process_reads_and_deletes_what_this_one_shares(check: Check) -> None:
    inner = InMemoryToolResultStore()

    async def law(access: Access) -> None:
        one, other = access, access.to(ContentAddressedStore(inner))
        references = [await one.write(str(number), LARGE) for number in range(3)]
        await other.delete(references[:1])
        assert await one.read(references[1]) == LARGE
        references.append(await one.write("later", LARGE))
        await other.delete(references[1:3])
        assert await other.read(references[3]) == LARGE
        await other.delete(references[3:])
        assert len(inner) == 0

    check(ContentAddressedStore(inner), law)


@pytest.mark.anyio
async def test_of_many_writers_of_the_same_at_once_one_writes_it() -> None:
    inner = InMemoryToolResultStore()
    faulty = FaultyStore(inner, every_write=Fault(before=0.001))
    store = ContentAddressedStore(faulty)
    references = await asyncio.gather(*(store.write_async(key=str(number), content=LARGE) for number in range(200)))
    assert copies(inner) == 1
    assert set(await asyncio.gather(*(store.read_async(reference) for reference in references))) == {LARGE}
    await store.delete_async(references)
    assert len(inner) == 0


def test_a_content_that_cannot_be_written_is_an_outcome_of_its_entries_only(check: Check) -> None:
    inner = InMemoryToolResultStore()
    full = StoreFullError("full")
    faulty = FaultyStore(inner, writes={2: Fault(error=full)}, limit=1)
    entries = [StoreEntry("a", LARGE), StoreEntry("b", LARGE), StoreEntry("c", SECOND), StoreEntry("d", "small")]

    async def law(access: Access) -> None:
        # The first write is the mark of a, the second the content of a and b.
        outcomes = await access.write_many(entries)
        assert outcomes == [full, full, inner.reference("c"), inner.reference("d")]
        for key, content in (("c", SECOND), ("d", "small")):
            assert await access.read(inner.reference(key)) == content
        assert await access.write_many(entries) == [inner.reference(entry.key) for entry in entries]
        assert await access.read(inner.reference("b")) == LARGE

    check(ContentAddressedStore(faulty), law)


def test_a_record_that_cannot_be_written_leaves_no_content(check: Check) -> None:
    inner = InMemoryToolResultStore()
    faulty = FaultyStore(inner, writes={3: Fault(error=StoreFullError("full"))}, limit=1)

    async def law(access: Access) -> None:
        with pytest.raises(StoreFullError):
            await access.write("key", LARGE)
        assert len(inner) == 0

    check(ContentAddressedStore(faulty), law)


@pytest.mark.parametrize("arrives", [False, True])
def test_a_record_of_which_nobody_knows_whether_it_was_written_keeps_its_content(check: Check, arrives: bool) -> None:
    inner = InMemoryToolResultStore()
    lost = Fault(result=_late) if arrives else Fault(error=StoreTimeoutError("late"))
    store = ContentAddressedStore(FaultyStore(inner, writes={3: lost}, limit=1))

    async def law(access: Access) -> None:
        with pytest.raises(StoreTimeoutError):
            await access.write("key", LARGE)
        other = await access.write("other", LARGE)
        await access.delete([other])
        if arrives:
            assert await access.read(store.reference("key")) == LARGE
        await access.delete([store.reference("key")])  # as hooks do with what they wrote in vain
        assert len(inner) == 0

    check(store, law)


def _late(reference: str) -> Any:
    raise StoreTimeoutError("written, but the answer was lost")


def test_a_store_that_is_away_is_never_taken_for_an_absent_entry(check: Check) -> None:
    inner = InMemoryToolResultStore()
    reference = ContentAddressedStore(inner).write(key="key", content=LARGE)
    down = Fault(error=StoreUnavailableError("down"))

    async def law(access: Access) -> None:
        for number in (1, 2):  # the record, and the content
            faulty = FaultyStore(inner, reads={number: down})
            with pytest.raises(StoreUnavailableError):
                await access.to(ContentAddressedStore(faulty)).read(reference)
        for number in range(1, 13):  # the record, and all marks that there may be
            faulty = FaultyStore(inner, reads={number: down})
            with pytest.raises(StoreUnavailableError):
                await access.to(ContentAddressedStore(faulty)).delete([reference])
        await access.delete([reference])
        assert len(inner) == 0

    check(ContentAddressedStore(inner), law)


def test_a_content_that_is_not_what_was_written_is_damage_and_shared_no_further(check: Check) -> None:
    store, inner = built()

    async def law(access: Access) -> None:
        reference = await access.write("key", LARGE)
        (path,) = [path for path, held in inner._entries.items() if held.content == LARGE]
        inner._entries[path].content = SECOND
        with pytest.raises(CorruptEntryError):
            await access.read(reference)
        assert await access.read(await access.write("key", LARGE)) == LARGE

    check(store, law)


@pytest.mark.parametrize("stored", [b"hb:c1:", b"hb:c1:s", b"hb:c1:?" + b"x" * 52, b"hb:c1:s" + b"x" * 53], ids=str)
def test_a_record_that_is_none_is_damage_and_can_be_deleted(check: Check, stored: bytes) -> None:
    store, inner = built()
    reference = inner.write(key="key", content=stored)

    async def law(access: Access) -> None:
        with pytest.raises(CorruptEntryError):
            await access.read(reference)
        await access.delete([reference])
        assert len(inner) == 0

    check(store, law)


def test_a_page_is_that_of_the_content(check: Check) -> None:
    store, _ = built()

    async def law(access: Access) -> None:
        for content in (LARGE, "small"):
            reference = await access.write("key", content)
            page = await access.call(
                access.colour.reads,
                lambda: store.read_page(reference, offset=-4, limit=3),  # noqa: B023 - called at once
                lambda: store.read_page_async(reference, offset=-4, limit=3),  # noqa: B023
            )
            assert (page.content, page.offset, page.total) == (content[-4:-1], len(content) - 4, len(content))

    check(store, law)


def test_a_content_has_no_more_holds_than_can_be_counted(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_index, "MOST_HOLDS", 10)
    store, inner = built()

    async def law(access: Access) -> None:
        references = [await access.write(str(number), LARGE) for number in range(25)]
        assert copies(inner) == 3
        await access.delete(references[:20])
        assert [await access.read(reference) for reference in references[20:]] == [LARGE] * 5
        await access.delete(references[20:])
        assert len(inner) == 0

    check(store, law)


def test_what_is_remembered_is_bounded_and_forgetting_costs_only_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_index, "_MOST", 3)
    store, inner = built()
    contents = [f"{number} {LARGE}" for number in range(10)]
    references = [store.write(key=f"{n} {m}", content=content) for m in range(2) for n, content in enumerate(contents)]
    index = store._index
    assert [len(part) for part in (index._contents, index._places, index._sure)] == [3, 3, 3]
    assert [store.read(reference) for reference in references] == contents * 2
    store.delete(references)
    assert len(inner) == 0


@pytest.mark.parametrize("number", [0, 1, 3, 4, 15, 16, 63, 64, 255, 256, holds.MOST_HOLDS - 1])
def test_the_level_of_a_hold_tells_that_there_may_be_one_of_its_number(number: int) -> None:
    hold = Hold(b"c" * 16, number, b"d" * 32)
    levels = [level for level, key in enumerate(holds.level_keys(hold.content), 1) if key in hold.marks]
    assert number in holds.numbers_below(max(levels, default=0))
    assert len(levels) <= 1
    assert Hold.unpack(hold.pack()) == hold


# The order of things


@pytest.fixture
def turns_store(monkeypatch: pytest.MonkeyPatch) -> TurnsStore:
    store = TurnsStore()

    def opened(gate: Any) -> Effect[bool]:
        def wait() -> bool:
            while not gate.wait(0):
                store.turns.take()
            return True

        return Effect(wait, gate.wait_async)

    monkeypatch.setattr(content_sharing, "_opened", opened)
    return store


def drive(store: TurnsStore, actors: dict[str, Callable[[], Any]], seed: int, **crashes: int) -> dict[str, Any]:
    """Run actors in an order that the seed says; in one of three, one of them hurries ahead for a while."""
    choice = random.Random(seed)
    favourite = ""

    def choose(names: list[str]) -> str:
        nonlocal favourite
        if seed % 3 == 0:
            if favourite not in names or choice.random() < 0.1:
                favourite = choice.choice(names)
            return favourite
        return choice.choice(names)

    store.turns = Turns(choose)
    store.turns.crashes = crashes
    try:
        return store.turns.run(actors)
    finally:
        store.turns = Turns(lambda names: names[0])


def read(store: Any, reference: str) -> Any:
    try:
        return store.read(reference)
    except StoreError as error:
        return type(error)


@pytest.mark.parametrize("seed", range(60))
def test_in_any_order_every_entry_keeps_its_content_and_nothing_stays_behind(
    turns_store: TurnsStore, seed: int
) -> None:
    here, there = ContentAddressedStore(turns_store), ContentAddressedStore(turns_store)
    first, second = (here.write(key=key, content=LARGE) for key in ("first", "second"))
    results = drive(
        turns_store,
        {
            "sharer": lambda: here.write(key="third", content=LARGE),
            "another": lambda: here.write_many([StoreEntry(key, LARGE) for key in ("fourth", "fifth")]),
            "deleter": lambda: there.delete([first]),
            "last": lambda: (there, here)[seed % 2].delete([second]),
            "stranger": lambda: there.write(key="sixth", content=LARGE),
        },
        seed,
    )
    assert not any(isinstance(result, BaseException) for result in results.values()), results
    fresh = ContentAddressedStore(turns_store)
    kept = [results["sharer"], *results["another"], results["stranger"]]
    assert [read(fresh, reference) for reference in kept] == [LARGE] * 4
    assert [read(fresh, reference) for reference in (first, second)] == [ReferenceNotFoundError] * 2
    fresh.delete(kept)
    assert turns_store.contents == []


@pytest.mark.parametrize("seed", range(90))
def test_whoever_crashes_in_between_takes_nobody_elses_content_along(turns_store: TurnsStore, seed: int) -> None:
    here, there = ContentAddressedStore(turns_store), ContentAddressedStore(turns_store)
    first, second = (here.write(key=key, content=LARGE) for key in ("first", "second"))
    victim = ("sharer", "deleter", "replacer")[seed % 3]
    results = drive(
        turns_store,
        {
            "sharer": lambda: here.write(key="third", content=LARGE),
            "deleter": lambda: there.delete([first]),
            "replacer": lambda: here.write(key="second", content=SECOND),
        },
        seed,
        **{victim: 1 + seed // 3 % 30},
    )
    fresh = ContentAddressedStore(turns_store)
    crashed = isinstance(results[victim], Crash)
    assert all(not isinstance(result, BaseException) for name, result in results.items() if name != victim), results
    third = read(fresh, here.reference("third"))
    assert third == LARGE or (crashed and victim == "sharer" and third is ReferenceNotFoundError)
    replaced = read(fresh, second)
    assert replaced == SECOND or (crashed and victim == "replacer" and replaced == LARGE)
    deleted = read(fresh, first)
    assert deleted is ReferenceNotFoundError or (crashed and victim == "deleter" and deleted == LARGE)
    # Whoever comes after a crash can do everything again.
    assert fresh.read(fresh.write(key="third", content=LARGE)) == LARGE
    fresh.delete([first, second, fresh.reference("third")])
    for reference in (first, second, fresh.reference("third")):
        assert read(fresh, reference) is ReferenceNotFoundError


@pytest.mark.parametrize("seed", range(30))
def test_writers_of_the_same_key_leave_one_of_their_contents(turns_store: TurnsStore, seed: int) -> None:
    here, there = ContentAddressedStore(turns_store), ContentAddressedStore(turns_store)
    reference = here.write(key="key", content=LARGE)
    kept = here.write(key="kept", content=LARGE)
    results = drive(
        turns_store,
        {
            "one": lambda: here.write(key="key", content=SECOND),
            "two": lambda: (here, there)[seed % 2].write(key="key", content=LARGE),
            "three": lambda: here.write(key="key", content="small"),
        },
        seed,
    )
    assert set(results.values()) == {reference}
    fresh = ContentAddressedStore(turns_store)
    assert fresh.read(reference) in {LARGE, SECOND, "small"}
    assert fresh.read(kept) == LARGE


def test_a_write_cancelled_anywhere_leaves_what_a_deletion_removes() -> None:
    slow = Fault(before=0.001, after=0.001)
    for step in range(1, 12):
        inner = InMemoryToolResultStore()
        store = ContentAddressedStore(FaultyStore(inner, every_write=slow, every_read=slow))
        cancel_at(lambda: store.write_async(key="key", content=LARGE), step=step, by=Cancellation.TASK)  # noqa: B023
        assert read(store, store.reference("key")) in {LARGE, ReferenceNotFoundError}
        store.delete([store.reference("key")])
        assert len(inner) == 0, step


class Own:
    supports_binary_content = True

    def write(self, *, key: str, content: str) -> str:
        raise NotImplementedError

    def read(self, reference: str) -> str:
        raise NotImplementedError


def test_a_store_that_lacks_what_it_takes_is_refused() -> None:
    own: Any = Own()
    with pytest.raises(ConfigurationError, match="reference"):
        ContentAddressedStore(own)
    with pytest.raises(ConfigurationError, match="min_bytes"):
        ContentAddressedStore(InMemoryToolResultStore(), min_bytes=-1)
