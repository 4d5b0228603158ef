"""Damage and hostile files in the root: an error of the tree, never wrong content, never anything outside."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from haybaler.errors import CorruptEntryError, StoreError
from haybaler.stores.protocol import StoreEntry
from haybaler_filesystem import FileSystemToolResultStore, folders

TEXT = "Grüße, " * 100
SECRET = "secret of another folder"


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"], autouse=True)
def _way_of_access(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "DESCRIPTORS", request.param and folders.DESCRIPTORS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> FileSystemToolResultStore:
    return FileSystemToolResultStore(root)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "key").write_text(SECRET)
    return folder


def _assert_corrupt(store: FileSystemToolResultStore, reference: str) -> None:
    with pytest.raises(CorruptEntryError):
        store.read(reference)
    with pytest.raises(CorruptEntryError):
        store.read_page(reference, limit=10)
    with pytest.raises(CorruptEntryError):
        asyncio.run(store.read_async(reference))
    with pytest.raises(CorruptEntryError):
        asyncio.run(store.read_page_async(reference, limit=10))


def _unsealed(root: Path) -> None:
    for seal in (root / ".seals").iterdir():
        seal.unlink()


def _without_seals(root: Path) -> None:
    _unsealed(root)
    (root / ".seals").rmdir()


def _flipped(root: Path) -> None:
    data = bytearray((root / "key").read_bytes())
    data[20] ^= 1
    (root / "key").write_bytes(data)


def _replaced_by_a_folder(root: Path) -> None:
    (root / "key").unlink()
    (root / "key").mkdir()


def _replaced_by_another_entry(root: Path) -> None:
    (root / "other").replace(root / "key")


DAMAGES: list[Callable[[Path], object]] = [
    lambda root: (root / "key").write_bytes((root / "key").read_bytes()[:-7]),
    lambda root: (root / "key").write_bytes((root / "key").read_bytes() + b"\n"),
    lambda root: (root / "key").write_bytes(b""),
    lambda root: (root / "key").write_bytes(bytes((root / "key").stat().st_size)),
    _flipped,
    _unsealed,
    _without_seals,
    _replaced_by_a_folder,
    _replaced_by_another_entry,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
@pytest.mark.parametrize("content", [TEXT, TEXT.encode(), b"\xff" * 500])
def test_damage_is_noticed_and_healed_by_writing_again(
    store: FileSystemToolResultStore, root: Path, content: str | bytes, damage: Callable[[Path], object]
) -> None:
    reference = store.write(key="key", content=content)
    store.write(key="other", content="another entry")
    damage(root)
    _assert_corrupt(store, reference)
    if (root / "key").is_dir():
        with pytest.raises(CorruptEntryError):
            store.write(key="key", content=content)
        with pytest.raises(StoreError):
            store.delete([reference])
        (root / "key").rmdir()
    store.write(key="key", content=content)
    assert store.read(reference) == content
    assert [path.name for path in root.iterdir() if path.name.startswith(".haybaler-tmp-")] == []


def test_a_truncated_large_file_is_noticed_by_a_page(store: FileSystemToolResultStore, root: Path) -> None:
    reference = store.write(key="key", content="x" * 1_000_000)
    os.truncate(root / "key", 999_999)
    _assert_corrupt(store, reference)


def test_text_and_bytes_of_one_key_are_never_confused(store: FileSystemToolResultStore) -> None:
    reference = store.reference("key")
    for content in ("same", b"same", b"same", "same", "same", b"same", "same", "", b"", ""):
        store.write(key="key", content=content)
        assert store.read(reference) == content
        assert store.read_page(reference, limit=10).content == content


@pytest.mark.parametrize("links", [True, False])
def test_a_failed_write_takes_nothing_from_an_equal_entry(
    store: FileSystemToolResultStore, root: Path, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_settings: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    reference = store.write(key="key", content=TEXT)
    (root / "key").rename(root / "kept")
    (root / "key").mkdir()
    with pytest.raises(CorruptEntryError):
        store.write(key="key", content=TEXT)
    (root / "key").rmdir()
    (root / "kept").rename(root / "key")
    assert store.read(reference) == TEXT


def test_a_link_in_place_of_an_entry_leads_nowhere(store: FileSystemToolResultStore, root: Path, outside: Path) -> None:
    reference = store.write(key="key", content=SECRET)
    (root / "key").unlink()
    for target in (outside / "key", root / "nothing", outside, root / "key"):
        (root / "key").symlink_to(target)
        _assert_corrupt(store, reference)
        (root / "key").unlink()
    (root / "key").symlink_to(outside / "key")
    store.write(key="key", content="new")
    assert store.read(reference) == "new"
    assert (outside / "key").read_text() == SECRET


def test_a_hard_link_in_place_of_an_entry_is_not_read_and_not_written(
    store: FileSystemToolResultStore, root: Path, outside: Path
) -> None:
    reference = store.write(key="key", content="content")
    (root / "key").unlink()
    os.link(outside / "key", root / "key")
    _assert_corrupt(store, reference)
    store.write(key="key", content="new")
    store.delete([reference])
    assert (outside / "key").read_text() == SECRET


@pytest.mark.parametrize("folder", ["@scope", "@scope/.seals", "@scope/@inner"])
def test_a_link_in_place_of_a_folder_leads_nowhere(root: Path, outside: Path, folder: str) -> None:
    store = FileSystemToolResultStore(root).scoped("scope/inner" if "inner" in folder else "scope")
    reference = store.write(key="key", content=SECRET)
    (root / folder).rename(root / "aside")
    (root / folder).symlink_to(outside)
    _assert_corrupt(store, reference)
    outcomes = store.write_many([StoreEntry("key", "new"), StoreEntry("other", "new")])
    assert [type(outcome) for outcome in outcomes] == [CorruptEntryError, CorruptEntryError]
    with pytest.raises(CorruptEntryError):
        store.delete([reference])
    assert [path.name for path in outside.iterdir()] == ["key"]
    assert (outside / "key").read_text() == SECRET


def test_a_fifo_or_a_socket_in_place_of_an_entry_keeps_nobody_waiting(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = store.write(key="key", content="content")
    (root / "key").unlink()
    os.mkfifo(root / "key")
    _assert_corrupt(store, reference)
    (root / "key").unlink()
    monkeypatch.chdir(root)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("key")
        _assert_corrupt(store, reference)
        store.write(key="key", content="new")
        assert store.read(reference) == "new"


def test_a_fifo_in_place_of_a_folder_keeps_nobody_waiting(root: Path) -> None:
    store = FileSystemToolResultStore(root).scoped("scope")
    root.mkdir()
    os.mkfifo(root / "@scope")
    _assert_corrupt(store, store.reference("key"))
    with pytest.raises(CorruptEntryError):
        store.write(key="key", content="content")


def test_foreign_files_beside_the_seals_do_no_harm(store: FileSystemToolResultStore, root: Path) -> None:
    reference = store.write(key="key", content="content")
    names = [".t.7.7.0.0", "README", "key.q.1.1.1.1", "key.t.1.2.3", "key.t.x.x.x.x"]
    for name in names:
        (root / ".seals" / name).write_text("foreign")
    assert store.read(reference) == "content"
    assert store.read_page(store.write(key="key", content="y" * 500_000), limit=3).content == "yyy"
    store.delete([reference])
    assert sorted(path.name for path in (root / ".seals").iterdir()) == names
