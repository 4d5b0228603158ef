"""Removing a whole scope from a file store."""

from pathlib import Path

import pytest

from haybaler.errors import ReferenceNotFoundError
from haybaler.stores.protocol import DeletedScope
from haybaler_filesystem import FileSystemToolResultStore


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
