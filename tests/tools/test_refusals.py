"""Whatever goes wrong, the model gets a sentence that it can act on, and never an exception or other content."""

import errno
import logging
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from haystack.hooks.tool_result_offloading import FileSystemToolResultStore
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tools.calling import find, read, read_async
from tests.tools.stores import AsyncStore, FailingStore, NativeStore, SyncStore

import haybaler_filesystem
from haybaler.errors import (
    AsyncOnlyStoreError,
    CorruptEntryError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from haybaler.readback.arguments import quoted
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.workers import run_in_worker

GONE = 'Nothing is stored under "ref" any more. Run the tool again if you still need it.'
FOREIGN = '"ref" is not a reference of this run\'s store. Give a reference exactly as it stands in the conversation.'
DAMAGED = 'What is stored under "ref" is damaged. Run the tool again if you still need it.'
UNAVAILABLE = 'The store cannot be reached at the moment, so "ref" cannot be read. Try again later.'
UNKNOWN = '"ref" cannot be read. Run the tool again if you still need it.'
ASYNC_ONLY = 'The store can only be read in an asynchronous run. Go on without "ref".'


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ReferenceNotFoundError("secret"), GONE),
        (FileNotFoundError("secret"), GONE),
        (KeyError("secret"), GONE),
        (InvalidReferenceError("secret"), FOREIGN),
        (ValueError("secret"), FOREIGN),
        (IsADirectoryError("secret"), FOREIGN),
        (NotADirectoryError("secret"), FOREIGN),
        (OSError(errno.ENAMETOOLONG, "secret"), FOREIGN),
        (CorruptEntryError("secret"), DAMAGED),
        (UnicodeDecodeError("utf-8", b"secret", 0, 1, "secret"), DAMAGED),
        (StoreUnavailableError("secret"), UNAVAILABLE),
        (StoreTimeoutError("secret"), UNAVAILABLE),
        (StoreFullError("secret"), UNAVAILABLE),
        (ConnectionResetError("secret"), UNAVAILABLE),
        (TimeoutError("secret"), UNAVAILABLE),
        (PermissionError("secret"), UNAVAILABLE),
        (AsyncOnlyStoreError("secret"), ASYNC_ONLY),
        (StoreError("secret"), UNKNOWN),
        (RuntimeError("secret"), UNKNOWN),
        (MemoryError("secret"), UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.anyio
async def test_each_error_of_a_store_has_its_sentence_and_one_warning(
    error: Exception, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = FailingStore(error)
    assert read(store, reference="ref") == sentence
    assert find(store, reference="ref", pattern="x") == sentence
    assert await read_async(store, reference="ref") == sentence
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert caplog.records[0].__dict__["store"] == "FailingStore"
    assert caplog.records[0].__dict__["error"] == type(error).__name__
    assert "secret" not in caplog.text + repr([record.__dict__ for record in caplog.records if not record.exc_info])


@pytest.mark.anyio
async def test_an_error_that_no_coroutine_can_raise_has_a_sentence_too() -> None:
    store = FailingStore(StopIteration("secret"))
    assert read(store, reference="ref") == await read_async(store, reference="ref") == UNKNOWN


@pytest.mark.parametrize(("content", "sentence"), [(None, DAMAGED), (7, DAMAGED), (["x"], DAMAGED), ({}, DAMAGED)])
def test_what_is_neither_text_nor_bytes_counts_as_damaged(content: Any, sentence: str) -> None:
    assert read(SyncStore(ref=content), reference="ref") == sentence


def test_without_any_store_there_is_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    expected = (
        "Stored results cannot be read back, because this run has no store. "
        "Run the tool again that gave the result, if you still need it."
    )
    assert read(None, reference="ref") == expected
    assert find(None, reference="ref", pattern="x") == expected
    assert {record.__dict__["tool"] for record in caplog.records} == {"read_tool_result", "search_tool_result"}


STORES: dict[str, Any] = {
    "memory": lambda _: InMemoryToolResultStore(),
    "absolute": haybaler_filesystem.FileSystemToolResultStore,
    "relative": lambda path: haybaler_filesystem.FileSystemToolResultStore(path, references="relative"),
}
FOREIGN_SCOPES = [
    "user-7/run-41",
    "user-7/run-420",
    "user-7/run-4",
    "user-7",
    "user-7/run-42/step",
    "user-8/run-42",
    "",
]


@pytest.mark.parametrize("owner", [*FOREIGN_SCOPES, None], ids=repr)
@pytest.mark.parametrize("make_store", STORES.values(), ids=STORES)
@pytest.mark.anyio
async def test_a_reference_of_another_scope_is_refused(owner: str | None, make_store: Any, tmp_path: Path) -> None:
    """Copied from another conversation as it is, guessed, or edited so that it looks like one of this run's."""
    store = await run_in_worker(make_store, tmp_path)
    mine = store.scoped("user-7/run-42")
    own = await mine.write_async(key="own", content="mine")
    theirs = await (store if owner is None else store.scoped(owner)).write_async(key="a", content="theirs")
    guessed = store.scoped(owner or "user-9").reference("guessed")
    edited = [own.replace("run-42", "run-41"), own.replace("@user-7/", ""), own + "/../../@run-41/a", own.upper()]
    for reference in (theirs, guessed, *edited, f"{own} {theirs}", own.rpartition("/")[0] + "/../a"):
        sentence = f"{quoted(reference)} is not a reference of this run's store. "
        for answer in (
            await run_in_worker(partial(read, mine, reference=reference)),
            await run_in_worker(partial(find, mine, reference=reference, pattern="theirs")),
            await read_async(mine, reference=reference),
        ):
            assert answer == sentence + "Give a reference exactly as it stands in the conversation."
    assert "mine" in await read_async(mine, reference=own)
    in_place = mine.reference("a")  # the name of another run's entry, in this run's own scope
    assert (await read_async(mine, reference=in_place)).startswith("Nothing is stored under")


def test_a_reference_of_another_store_is_refused() -> None:
    mine, other = InMemoryToolResultStore(), InMemoryToolResultStore()
    for foreign in (other.write(key="a", content="theirs"), mine.scoped("b").write(key="a", content="theirs")):
        assert "is not a reference of this run's store" in read(mine, reference=foreign)


def test_an_entry_that_is_gone_is_said_to_be_gone() -> None:
    store = InMemoryToolResultStore()
    reference = store.write(key="a", content="x")
    store.delete([reference])
    assert read(store, reference=reference) == GONE.replace("ref", reference, 1)


@pytest.mark.parametrize(
    "reference",
    ["../outside.txt", "/etc/passwd", ".", "a\x00b", "x" * 300, "missing.txt", "\ud800", "inside.txt/deeper"],
)
def test_a_store_of_haystack_shows_nothing_but_its_own_entries(tmp_path: Path, reference: str) -> None:
    (tmp_path / "outside.txt").write_text("root:x:0:0")
    store = FileSystemToolResultStore(root=tmp_path / "root")
    store.write(key="inside.txt", content="inside")
    answer = read(store, reference=reference)
    assert answer.startswith(("Nothing is stored under", '"')), answer
    assert "root:x" not in answer
    assert "\n" not in answer


@settings(deadline=None)
@given(reference=st.text(min_size=1, max_size=400))
def test_nothing_that_a_model_writes_can_forge_an_answer(reference: str) -> None:
    for answer in (read(InMemoryToolResultStore(), reference=reference), read(SyncStore(), reference=reference)):
        assert len(answer.splitlines()) == 1
        assert answer.encode()
        assert answer.isprintable()
        assert answer.startswith(('"', "Nothing is stored under "))


def test_what_a_model_made_up_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    read(InMemoryToolResultStore(), reference="the password is 1234")
    assert [hasattr(record, "reference") for record in caplog.records] == [False]


@pytest.mark.parametrize("store", [SyncStore(ref="text"), AsyncStore(ref="text"), NativeStore(ref="text")])
@pytest.mark.anyio
async def test_stores_of_any_colour_are_read_by_asynchronous_runs(store: Any) -> None:
    assert await read_async(store, reference="ref") == "[characters 0-4 of 4; end]\ntext"


def test_a_store_without_a_synchronous_read_is_said_to_be_one() -> None:
    assert read(AsyncStore(ref="text"), reference="ref") == ASYNC_ONLY
    assert read(object(), reference="ref") == ASYNC_ONLY


@pytest.mark.anyio
async def test_a_cancelled_read_is_cancelled() -> None:
    class NeverStore:
        async def read(self, reference: str) -> str:
            await anyio.sleep_forever()
            return reference

    with anyio.move_on_after(0) as scope:
        await read_async(NeverStore(), reference="ref")
    assert scope.cancelled_caught
