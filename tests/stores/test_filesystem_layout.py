"""What a person, a shell tool or another program sees of the store's files."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from haystack.hooks.tool_result_offloading import FileSystemToolResultStore as StockStore

from haybaler.errors import (
    ConfigurationError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from haybaler.stores.protocol import StoreEntry
from haybaler.stores.registry import store_from_url
from haybaler_filesystem import FileSystemToolResultStore, folders


@pytest.fixture(params=[True, False], ids=["descriptors", "paths"], autouse=True)
def _way_of_access(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "DESCRIPTORS", request.param and folders.DESCRIPTORS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "some" / "root"


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def _seals(root: Path) -> list[Path]:
    return sorted((root / ".seals").iterdir())


@pytest.mark.parametrize("text", ["", "plain", "line\r\nline\n\0", "Grüße 世界 🎉", "lone \ud800 surrogate"])
def test_a_text_file_holds_exactly_the_text(root: Path, text: str) -> None:
    store = FileSystemToolResultStore(root)
    reference = store.write(key="result.txt", content=text)
    assert (root / "result.txt").read_bytes() == text.encode("utf-8", "surrogatepass")
    assert store.read(reference) == text


def test_a_binary_file_holds_exactly_the_bytes(root: Path) -> None:
    store = FileSystemToolResultStore(root)
    reference = store.write(key="image.png", content=b"\x89PNG\r\n\0")
    assert (root / "image.png").read_bytes() == b"\x89PNG\r\n\0"
    assert store.read(reference) == b"\x89PNG\r\n\0"


def test_a_shell_tool_reads_what_an_absolute_reference_names(root: Path) -> None:
    reference = FileSystemToolResultStore(root).write(key="../../Odd Key?", content="found")
    assert subprocess.run(["cat", reference], check=True, capture_output=True).stdout == b"found"


def test_haystacks_own_store_reads_the_files(root: Path) -> None:
    store = FileSystemToolResultStore(root)
    stock = StockStore(root)
    assert stock.read(store.write(key="0_search.txt", content="text")) == "text"
    assert stock.read(store.write(key="0_image.png", content=b"\xff\xd8")) == b"\xff\xd8"


def test_constructing_reading_and_deleting_make_no_folder(root: Path) -> None:
    store = FileSystemToolResultStore(root)
    with store:
        assert store.scoped("a/b").reference("key")
        with pytest.raises(ReferenceNotFoundError):
            store.read(store.reference("key"))
        store.delete([store.reference("key")])
    assert not root.parent.exists()
    store.write(key="key", content="content")
    assert _mode(root) == 0o700
    assert _mode(root / ".seals") == 0o700


def test_a_file_has_the_stated_mode_whatever_the_umask(root: Path) -> None:
    FileSystemToolResultStore(root).write(key="before", content="makes the folders")
    script = """
import os, sys
from haybaler_filesystem import FileSystemToolResultStore
for umask in (0, 0o022, 0o077, 0o177):
    for mode in (0o600, 0o640, 0o644):
        os.umask(umask)
        FileSystemToolResultStore(sys.argv[1], file_mode=mode).write(key=f"{umask}-{mode:o}", content="content")
        assert os.umask(umask) == umask
"""
    subprocess.run([sys.executable, "-c", script, str(root)], check=True)
    files = [path for path in root.iterdir() if "-" in path.name]
    assert len(files) == 12
    assert all(f"{_mode(path):o}" == path.name.partition("-")[2] for path in files)


def test_a_relative_reference_says_nothing_about_the_machine_and_survives_a_move(root: Path) -> None:
    store = FileSystemToolResultStore(root, references="relative")
    reference = store.scoped("run").write(key="key", content="content")
    assert reference == "@run/key"
    moved = root.rename(root.with_name("moved"))
    assert FileSystemToolResultStore(moved, references="relative").scoped("run").read(reference) == "content"
    with pytest.raises(ReferenceNotFoundError):
        store.scoped("run").read(reference)


def test_an_absolute_reference_of_another_root_is_refused(root: Path) -> None:
    reference = FileSystemToolResultStore(root).write(key="key", content="content")
    moved = FileSystemToolResultStore(root.rename(root.with_name("moved")))
    with pytest.raises(InvalidReferenceError):
        moved.read(reference)
    assert moved.read(moved.reference("key")) == "content"


def test_a_tree_that_was_copied_without_its_links_keeps_text_and_bytes_apart(root: Path) -> None:
    store = FileSystemToolResultStore(root, references="relative")
    store.write(key="key", content=b"same")
    os.utime(root / "key", ns=(1, 1))
    reference = store.write(key="key", content="same")
    copy = root.with_name("copy")
    subprocess.run(["cp", "-r", "--preserve=timestamps", str(root), str(copy)], check=True)
    copied = FileSystemToolResultStore(copy, references="relative")
    assert copied.read(reference) == "same"
    copied.write(key="key", content="new")
    assert copied.read(reference) == "new"
    copied.delete([reference])
    assert _seals(copy) == []


def test_a_relative_root_is_fixed_at_construction(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.mkdir(parents=True)
    monkeypatch.chdir(root)
    store = FileSystemToolResultStore("results")
    monkeypatch.chdir("/")
    assert store.write(key="key", content="content") == str(root / "results" / "key")
    assert FileSystemToolResultStore.from_dict(store.to_dict()).read(store.reference("key")) == "content"


def test_a_link_may_lead_to_the_root(root: Path) -> None:
    root.mkdir(parents=True)
    link = root.with_name("link")
    link.symlink_to(root)
    store = FileSystemToolResultStore(link)
    assert store.read(store.write(key="key", content="content")) == "content"
    assert (root / "key").exists()


def test_a_deleted_entry_leaves_nothing(root: Path) -> None:
    store = FileSystemToolResultStore(root)
    references = [store.write(key=f"key {number}", content="content") for number in range(3)]
    for content in ("", "again", b"again"):
        store.write(key="key 0", content=content)
    store.delete(references)
    assert [path.name for path in root.iterdir()] == [".seals"]
    assert _seals(root) == []


def test_a_replaced_entry_takes_no_room(root: Path) -> None:
    store = FileSystemToolResultStore(root)
    for number in range(20):
        store.write(key="key", content=str(number) * 1000)
    outcomes = store.write_many([StoreEntry("key", "x"), StoreEntry("other", "y"), StoreEntry("key", b"z")])
    assert outcomes == [store.reference("key"), store.reference("other"), store.reference("key")]
    assert len(_seals(root)) == 2
    assert store.read(store.reference("key")) == b"z"


def test_keys_that_look_like_seals_of_other_keys_are_kept_apart(root: Path) -> None:
    store = FileSystemToolResultStore(root)
    store.write(key="key", content="content")
    (seal,) = _seals(root)
    keys = [seal.name, f"{seal.name}.t.1.1.0.0", "key.t", "key.t.7.7"]
    for key in keys:
        store.write(key=key, content=key)
    store.delete([store.reference("key")])
    assert [store.read(store.reference(key)) for key in keys] == keys


def test_without_hard_links_seals_are_files_of_their_own(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_settings: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    store = FileSystemToolResultStore(root)
    reference = store.write(key="key", content="first")
    for content in (b"first", "second", "second", ""):
        assert store.write(key="key", content=content) == reference
        assert store.read(reference) == content
    assert all(seal.stat().st_size == 0 for seal in _seals(root))
    store.delete([reference])
    assert _seals(root) == []


def test_what_stands_in_the_way_of_the_root_makes_the_store_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    for root in (tmp_path / "file", tmp_path / "file" / "root"):
        store = FileSystemToolResultStore(root)
        with pytest.raises(StoreUnavailableError):
            store.write(key="key", content="content")
        with pytest.raises(StoreError):
            store.read(store.reference("key"))


@pytest.mark.parametrize(
    "settings",
    [
        {"root": ""},
        {"root": "a\0b"},
        {"root": "/new\nline"},
        {"root": "/" + "long/" * 100},
        {"references": "other"},
        {"file_mode": 0o1600},
        {"file_mode": 0o400},
        {"max_workers": 0},
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        FileSystemToolResultStore(**{"root": "/results", **settings})


def test_a_url_gives_the_store_its_settings(root: Path) -> None:
    url = f"file://{root}?references=relative&fsync=true&file_mode=640&max_workers=2"
    settings = FileSystemToolResultStore(root, references="relative", fsync=True, file_mode=0o640, max_workers=2)
    store = store_from_url(url)
    assert isinstance(store, FileSystemToolResultStore)
    assert store.to_dict() == settings.to_dict()
    for refused in ("file://host/path", "file://", "file:///path?file_mode=9", "file:///path?unknown=1"):
        with pytest.raises(ConfigurationError):
            store_from_url(refused)
