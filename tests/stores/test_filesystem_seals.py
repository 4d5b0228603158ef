"""Seals while several writers and cleaners meet: an entry that stands keeps its seal, whichever number its file has."""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from haybaler.errors import ReferenceNotFoundError, StoreError
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_filesystem.entries import EntryFolder
from haybaler_filesystem.folders import Folder
from haybaler_filesystem.seals import Seal

Clean = Callable[[FileSystemToolResultStore], object]


def _seals(root: Path) -> list[Path]:
    return [path for path in (root / ".seals").iterdir() if Seal.parse(path.name)]


def _use_up_numbers(folder: Path, wanted: int) -> None:
    """Make files until the next new one gets the number `wanted`, where the file system gives numbers out again."""
    for number in range(500):
        filler = folder / f"filler-{number}"
        filler.touch()
        if filler.stat().st_ino == wanted:
            filler.unlink()
            return


def _copied(root: Path) -> tuple[FileSystemToolResultStore, str, Path]:
    """Return a store with one entry, as copying leaves it: its seal is a file of its own."""
    store = FileSystemToolResultStore(root)
    reference = store.write(key="key", content="content")
    [seal] = _seals(root)
    copy = root / "copy"
    shutil.copy(seal, copy)
    copy.replace(seal)
    return store, reference, seal


def _replace(store: FileSystemToolResultStore) -> None:
    store.write(key="key", content="other")


def _delete(store: FileSystemToolResultStore) -> None:
    store.delete([store.reference("key")])


def _delete_scope(store: FileSystemToolResultStore) -> None:
    store.delete_scope()


def _sweep(store: FileSystemToolResultStore) -> None:
    Path(store.reference("key")).unlink()  # as a deleter leaves it that is killed half-way
    store.sweep()


@pytest.mark.parametrize("clean", [_replace, _delete, _delete_scope, _sweep])
def test_a_seal_that_is_made_again_while_one_like_it_is_cleared_away_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Clean
) -> None:
    store = FileSystemToolResultStore(tmp_path)
    reference = store.write(key="key", content="same")
    [old] = _seals(tmp_path)
    remove = Folder.remove
    met: list[bool] = []

    def meet(folder: Folder, name: str) -> bool:
        if name == old.name and not met:
            # Somebody else was quicker, and a third one writes the same once more.
            met.append(remove(folder, name))
            _use_up_numbers(tmp_path, old_number)
            store.write(key="key", content="same")
        return remove(folder, name)

    old_number = old.stat().st_ino
    monkeypatch.setattr(Folder, "remove", meet)
    clean(store)
    monkeypatch.undo()
    assert met == [True]
    assert store.read(reference) == "same"


def test_a_write_that_fails_leaves_a_seal_that_somebody_else_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileSystemToolResultStore(tmp_path)
    remove, replace = Folder.remove, Folder.replace
    failed: list[str] = []

    def fail(folder: Folder, name: str, new_name: str) -> None:
        if failed:
            return replace(folder, name, new_name)
        failed.extend(path.name for path in _seals(tmp_path))
        raise OSError

    def meet(folder: Folder, name: str) -> bool:
        if failed[:1] == [name] and failed.count("met") == 0:
            failed.append("met")
            number = (tmp_path / ".seals" / name).stat().st_ino
            remove(folder, name)
            _use_up_numbers(tmp_path, number)
            store.write(key="key", content="same")
        return remove(folder, name)

    monkeypatch.setattr(Folder, "replace", fail)
    monkeypatch.setattr(Folder, "remove", meet)
    with pytest.raises(StoreError):
        store.write(key="key", content="same")
    monkeypatch.undo()
    assert failed[1:] == ["met"]
    assert store.read(store.reference("key")) == "same"


@pytest.mark.parametrize("clean", [_replace, _delete, _delete_scope])
def test_a_reader_who_began_before_an_entry_was_removed_and_written_anew_finds_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Clean
) -> None:
    store = FileSystemToolResultStore(tmp_path)
    reference = store.write(key="key", content="old")
    seals_for = EntryFolder._seals_for
    met: list[object] = []

    def meet(folder: EntryFolder, name: str, status: os.stat_result, data: bytes | None) -> list[Seal]:
        if not met:
            met.append(folder._sealed())
            clean(store)
            store.write(key="key", content="new")
        return seals_for(folder, name, status, data)

    monkeypatch.setattr(EntryFolder, "_seals_for", meet)
    assert store.read(reference) == "new"
    assert met


@pytest.mark.parametrize("clean", [_replace, _delete, _delete_scope, _sweep])
def test_a_seal_that_somebody_else_clears_away_first_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: Clean
) -> None:
    store = FileSystemToolResultStore(tmp_path)
    store.write(key="key", content="content")
    [old] = _seals(tmp_path)
    held, found = Folder.held, []

    def meet(folder: Folder, name: str) -> AbstractContextManager[os.stat_result]:
        if name == old.name:
            found.append(folder.remove(name))
        return held(folder, name)

    monkeypatch.setattr(Folder, "held", meet)
    clean(store)
    assert found == [True]


def test_whatever_lies_among_the_seals_goes_with_the_scope(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path)
    store.write(key="key", content="content")
    (tmp_path / ".seals" / "no seal").touch()
    store.delete_scope()
    assert not (tmp_path / ".seals").exists()


def test_no_new_file_gets_the_number_of_one_that_is_held(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with Folder.root(str(tmp_path), create=False) as folder, folder.held("file") as status:
        assert folder.remove("file")
        _use_up_numbers(tmp_path, status.st_ino)
        assert status.st_ino not in {path.stat().st_ino for path in tmp_path.iterdir()}
        with pytest.raises(FileNotFoundError), folder.held("file"):
            pass


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nowhere"), lambda path: path.touch(0)])
def test_whatever_has_a_name_can_be_held(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "name")
    with Folder.root(str(tmp_path), create=False) as folder, folder.held("name") as status:
        assert os.path.samestat(status, (tmp_path / "name").lstat())


def test_a_write_whose_seal_a_copied_tree_has_already_makes_it_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileSystemToolResultStore(tmp_path)
    fill = EntryFolder._fill

    def fill_beside_a_copy(folder: EntryFolder, name: str, data: bytes) -> int:
        inode = fill(folder, name, data)
        seals = tmp_path / ".seals"
        seals.mkdir(exist_ok=True)
        shutil.copy(tmp_path / name, seals / Seal.of("key", data.decode(), data, inode).file_name)
        return inode

    monkeypatch.setattr(EntryFolder, "_fill", fill_beside_a_copy)
    reference = store.write(key="key", content="content")
    monkeypatch.undo()
    assert store.read(reference) == "content"
    [seal] = _seals(tmp_path)
    assert seal.samefile(reference)
    store.delete([reference])
    assert _seals(tmp_path) == []
    with pytest.raises(ReferenceNotFoundError):
        store.read(reference)


def test_a_copied_entry_can_be_read_while_a_write_takes_its_seal_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reference, seal = _copied(tmp_path)
    fill, link = EntryFolder._fill, Folder.link
    read: list[object] = []

    def fill_with_the_number_of_the_seal(folder: EntryFolder, name: str, data: bytes) -> int:
        inode = fill(folder, name, data)
        seal.replace(seal.with_name(Seal.of("key", "content", data, inode).file_name))
        return inode

    def read_and_link(folder: Folder, name: str, target: Folder, new_name: str) -> None:
        read.append(store.read(reference))
        link(folder, name, target, new_name)

    monkeypatch.setattr(EntryFolder, "_fill", fill_with_the_number_of_the_seal)
    monkeypatch.setattr(Folder, "link", read_and_link)
    store.write(key="key", content="content")
    assert read == ["content"] * 2
    assert store.read(reference) == "content"


def test_a_sweep_keeps_the_seal_of_a_copied_entry_that_got_its_old_number_again(tmp_path: Path) -> None:
    store, reference, _ = _copied(tmp_path)
    assert store.sweep().leftovers == 0
    assert store.read(reference) == "content"
