"""Removing a whole scope from a file store."""

import errno
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from haybaler.errors import ReferenceNotFoundError, StoreError, StoreUnavailableError
from haybaler.stores.names import is_name
from haybaler.stores.protocol import DeletedScope, StoreEntry
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_filesystem.folders import Folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def store(root: Path) -> FileSystemToolResultStore:
    return FileSystemToolResultStore(root)


def test_a_scope_goes_with_the_scopes_inside_it_and_nothing_else(store: FileSystemToolResultStore, root: Path) -> None:
    user = store.scoped("user-7")
    inner = user.scoped("run-1")
    gone = [user.write(key="a.txt", content="12345"), inner.write(key="b.bin", content=b"123")]
    kept = store.scoped("user-70").write(key="a.txt", content="stays")
    top = store.write(key="a.txt", content="stays too")
    assert user.delete_scope() == DeletedScope(entries=2, bytes=8)
    assert not any(Path(reference).exists() for reference in gone)
    assert not (root / "@user-7").exists()
    assert store.scoped("user-70").read(kept) == "stays"
    assert store.read(top) == "stays too"
    with pytest.raises(ReferenceNotFoundError):
        user.read(gone[0])


@pytest.mark.anyio
async def test_an_asynchronous_caller_removes_the_same(store: FileSystemToolResultStore) -> None:
    inner = store.scoped("a/b")
    await inner.write_async(key="x", content="é")
    assert await store.scoped("a").delete_scope_async() == DeletedScope(entries=1, bytes=2)
    assert await inner.write_async(key="x", content="again") == inner.reference("x")


def test_without_a_scope_the_whole_store_is_emptied(store: FileSystemToolResultStore, root: Path) -> None:
    store.write(key="a", content="1")
    store.scoped("s").write(key="b", content="22")
    (root / ".haybaler-tmp-left").write_text("by a crash")
    assert store.delete_scope() == DeletedScope(entries=2, bytes=3)
    assert list(root.iterdir()) == []


def test_a_scope_that_was_never_written_is_nothing(store: FileSystemToolResultStore) -> None:
    assert store.scoped("nobody").delete_scope() == DeletedScope(0, 0)
    store.write(key="a", content="1")
    assert store.scoped("nobody").delete_scope() == DeletedScope(0, 0)


def test_what_haybaler_did_not_make_stays(store: FileSystemToolResultStore, root: Path) -> None:
    store.scoped("s").write(key="b", content="22")
    note = root / "@s" / "Notes of mine"
    note.write_text("keep")
    assert store.scoped("s").delete_scope().entries == 1
    assert note.read_text() == "keep"


def test_a_planted_link_leads_nowhere(store: FileSystemToolResultStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file.txt").write_text("not ours")
    store.scoped("s").write(key="b", content="22")
    (root / "@s" / "@link").symlink_to(outside)
    (root / "@s" / "entry.txt").symlink_to(outside / "file.txt")
    assert store.scoped("s").delete_scope() == DeletedScope(entries=1, bytes=2)
    assert (outside / "file.txt").read_text() == "not ours"


class Meanwhile:
    """Does something once, in the middle of a removal: after the names in a folder were listed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
        self.happened = False
        listed = Folder.names

        def names(folder: Folder) -> list[str]:
            found = listed(folder)
            if not self.happened and any(is_name(name) for name in found):
                self.happened = True
                action()
            return found

        monkeypatch.setattr(Folder, "names", names)


@pytest.mark.parametrize("links", [True, False])
def test_an_entry_that_appears_during_the_removal_has_its_seal(
    store: FileSystemToolResultStore, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """The writer has made its file and its seal after the names were listed, and renames it when all else is gone."""
    run = store.scoped("run")
    run.write(key="old", content="old")
    sealed, removed = Event(), Event()
    replace = Folder.replace

    def late(folder: Folder, name: str, new_name: str) -> None:
        sealed.set()
        assert removed.wait(30)
        replace(folder, name, new_name)

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    with ThreadPoolExecutor(1) as pool:
        written: list[Future[str]] = []

        def write() -> None:
            if not links:
                monkeypatch.setattr(os, "link", refuse)
            monkeypatch.setattr(Folder, "replace", late)
            written.append(pool.submit(run.write, key="new", content=" new "))
            assert sealed.wait(30)

        meanwhile = Meanwhile(monkeypatch, write)
        try:
            assert run.delete_scope() == DeletedScope(1, 3)
        finally:
            removed.set()
        assert run.read(written[0].result()) == " new "
    assert meanwhile.happened
    monkeypatch.undo()
    assert run.delete_scope() == DeletedScope(1, 5)
    assert not Path(store.root, "@run").exists()


def test_what_others_remove_meanwhile_does_not_end_the_removal(
    store: FileSystemToolResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.scoped("run")
    for number in range(20):
        run.write(key=f"{number}", content="12")
        run.scoped(f"step-{number}").write(key="inner", content="123")
    gone = [run.reference(f"{number}") for number in range(10)]

    def remove() -> None:
        run.delete(gone)
        for number in range(10):
            run.scoped(f"step-{number}").delete_scope()

    meanwhile = Meanwhile(monkeypatch, remove)
    assert run.delete_scope() == DeletedScope(20, 10 * 2 + 10 * 3)
    assert meanwhile.happened
    assert list(Path(store.root).iterdir()) == []


def test_a_write_whose_folder_was_removed_fails_and_the_next_one_makes_it_again(
    store: FileSystemToolResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.scoped("user-7/run-42")
    create = Folder.create

    def late(folder: Folder, name: str, mode: int) -> tuple[int, int]:
        store.scoped("user-7").delete_scope()
        return create(folder, name, mode)

    monkeypatch.setattr(Folder, "create", late)
    with pytest.raises(StoreUnavailableError):
        run.write(key="a", content="lost")
    monkeypatch.undo()
    with pytest.raises(ReferenceNotFoundError):
        run.read(run.reference("a"))
    assert run.read(run.write(key="a", content="kept")) == "kept"


def test_writers_and_removers_of_one_scope_in_several_threads_never_damage_anything(
    store: FileSystemToolResultStore,
) -> None:
    run = store.scoped("run")
    over = Event()

    def write(writer: int) -> int:
        confirmed = 0
        for number in range(300):
            for outcome in run.write_many([StoreEntry(f"{writer}-{number}-{n}", "text") for n in range(4)]):
                if isinstance(outcome, StoreError):
                    continue
                confirmed += 1
                with suppress(ReferenceNotFoundError):
                    assert run.read(outcome) == "text"
        return confirmed

    def remove() -> int:
        removed = 0
        while not over.is_set():
            removed += run.delete_scope().entries
        return removed

    with ThreadPoolExecutor(4) as pool:
        removing = [pool.submit(remove) for _ in range(2)]
        try:
            confirmed = sum(pool.map(write, range(2)))
        finally:
            over.set()
        removed = sum(job.result() for job in removing)
    assert removed + run.delete_scope().entries == confirmed > 0
