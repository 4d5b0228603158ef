"""Crashes, cancellations, full disks, too few descriptors and many writers at once: entries are whole or absent."""

import asyncio
import contextlib
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from haybaler.errors import ReferenceNotFoundError, StoreError, StoreFullError, StoreUnavailableError
from haybaler.stores.protocol import StoreEntry
from haybaler.workers import run_in_worker
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_filesystem.entries import EntryFolder, Writing

WRITER = """
import asyncio, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that starts the tests in the background ignores it
from haybaler_filesystem import FileSystemToolResultStore
from haybaler.stores.protocol import StoreEntry
store = FileSystemToolResultStore(sys.argv[1], fsync=sys.argv[2] == "fsync")
print("ready", flush=True)
"""


def _temporary(root: Path) -> list[Path]:
    return list(root.rglob(".haybaler-tmp-*"))


def _names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if not path.name.startswith(".")}


def _writer(root: Path, script: str, mode: str = "plain") -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER + script, str(root), mode], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("mode", ["plain", "fsync"])
@pytest.mark.parametrize("entries", [1, 11])
def test_a_killed_writer_leaves_each_entry_whole_or_absent(tmp_path: Path, entries: int, mode: str) -> None:
    store = FileSystemToolResultStore(tmp_path)
    contents = {f"key {number}": f"{number} é " * 300_000 for number in range(30)}
    script = """
batch = [StoreEntry(f"key {number}", f"{number} é " * 300_000) for number in range(30)]
asyncio.run(store.write_many_async(batch))
"""
    with _writer(tmp_path, script, mode) as process:
        while len(_names(tmp_path)) < entries and process.poll() is None:
            time.sleep(0.0005)
        process.kill()
    whole = 0
    for key, content in contents.items():
        with contextlib.suppress(ReferenceNotFoundError):
            assert store.read(store.reference(key)) == content
            whole += 1
    assert whole >= entries
    assert store.write_many([StoreEntry(key, content) for key, content in contents.items()])
    assert [store.read(store.reference(key)) for key in contents] == list(contents.values())


def test_writers_of_one_key_in_several_processes_never_mix(tmp_path: Path) -> None:
    script = """
for number in range(70):
    store.write(key="key", content=sys.argv[2] * (1 + number % 7 * 9000))
"""
    store = FileSystemToolResultStore(tmp_path)
    reference = store.write(key="key", content="a")
    with contextlib.ExitStack() as processes:
        running = [processes.enter_context(_writer(tmp_path, script, letter)) for letter in "abc"]
        while any(process.poll() is None for process in running):
            content = store.read(reference)
            assert isinstance(content, str)
            assert len(set(content)) == 1
            assert len(content) % 9000 == 1
    assert [process.returncode for process in running] == [0, 0, 0]
    assert _temporary(tmp_path) == []


def test_writers_and_deleters_of_one_key_in_several_threads_never_mix(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path)
    reference = store.reference("key")
    contents: list[str | bytes] = ["same", b"same", "other " * 20_000, b"\xff" * 30_000]
    done = threading.Event()

    def write(content: str | bytes) -> None:
        # The first of them makes the folders while others look.
        for _ in range(150):
            store.write(key="key", content=content)

    def delete() -> None:
        while not done.is_set():
            store.delete([reference])

    def read() -> None:
        while not done.is_set():
            with contextlib.suppress(ReferenceNotFoundError):
                content = store.read(reference)
                assert any(content == other and type(content) is type(other) for other in contents)

    with ThreadPoolExecutor(8) as threads:
        others: list[Future[None]] = [threads.submit(job) for job in (delete, read, read)]
        writers = [threads.submit(write, content) for content in contents]
        try:
            for writer in writers:
                writer.result()
        finally:
            done.set()
        for other in others:
            other.result()
    store.write(key="key", content="last")
    assert store.read(reference) == "last"
    store.delete([reference])
    assert list((tmp_path / ".seals").iterdir()) == []


@pytest.mark.anyio
@pytest.mark.parametrize("by", ["task", "scope", "timeout"])
@pytest.mark.parametrize("fsync", [False, True])
async def test_nothing_appears_after_a_batch_was_cancelled(tmp_path: Path, by: str, fsync: bool) -> None:
    store = FileSystemToolResultStore(tmp_path / "root", fsync=fsync)
    await store.write_async(key="before", content="makes the folders")
    batch = [StoreEntry(f"key {number}", f"{number:09} " * 2_000) for number in range(3_000)]

    def wait_for_an_entry() -> None:
        while len(_names(tmp_path / "root")) < 2:
            time.sleep(0.0005)

    if by == "scope":
        async with anyio.create_task_group() as group:
            group.start_soon(store.write_many_async, batch)
            await run_in_worker(wait_for_an_entry)
            group.cancel_scope.cancel()
    else:
        task = asyncio.create_task(store.write_many_async(batch))
        waiting = asyncio.create_task(asyncio.wait_for(task, 1_000)) if by == "timeout" else task
        await run_in_worker(wait_for_an_entry)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    left = await run_in_worker(_names, tmp_path / "root")
    assert 1 < len(left) < len(batch)
    assert await run_in_worker(_temporary, tmp_path) == []
    await run_in_worker(store._pool.shutdown)
    assert await run_in_worker(_names, tmp_path / "root") == left
    written = [entry for entry in batch if store.reference(entry.key).rpartition("/")[2] in left]
    assert len(written) == len(left) - 1
    for entry in written:
        assert await store.read_async(store.reference(entry.key)) == entry.content


def test_a_write_that_is_stopped_while_it_fills_its_file_leaves_nothing(tmp_path: Path) -> None:
    answers = iter([False, True])
    with (
        EntryFolder(str(tmp_path), (), Writing(mode=0o600, fsync=False), create=True) as folder,
        pytest.raises(StoreUnavailableError),
    ):
        folder.write("key", "content", stopped=lambda: next(answers))
    assert [path.name for path in tmp_path.rglob("*")] == [".seals"]


@contextlib.contextmanager
def _little_room(folder: Path) -> Iterator[None]:
    """A full disk where this process may mount one; otherwise a limit on the size of a file."""
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if mounted:
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_fails_one_entry_and_leaves_the_rest(tmp_path: Path) -> None:
    with _little_room(tmp_path):
        store = FileSystemToolResultStore(tmp_path / "root")
        reference = store.write(key="key", content="old")
        for write in (store.write_many, lambda batch: asyncio.run(store.write_many_async(batch))):
            outcomes = write([StoreEntry("a", "a"), StoreEntry("key", "x" * 900_000), StoreEntry("b", "b")])
            assert [type(outcome) for outcome in outcomes] == [str, StoreFullError, str]
            assert _temporary(tmp_path) == []
            assert store.read(reference) == "old"
        # What was replaced or deleted takes no room.
        for content in "123456":
            store.write(key="key", content=content * 100_000)
        store.delete([reference])
        store.write(key="other", content="y" * 190_000)


def test_few_descriptors_serve_thousands_of_writes_at_once(tmp_path: Path) -> None:
    script = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
async def main():
    references = await asyncio.gather(*(store.write_async(key=f"key {n}", content=f"{n}") for n in range(2000)))
    contents = [str(n) for n in range(2000)]
    assert await asyncio.gather(*(store.read_async(reference) for reference in references)) == contents
    pages = await asyncio.gather(*(store.read_page_async(reference, limit=9) for reference in references[:300]))
    assert [page.content for page in pages] == contents[:300]
asyncio.run(main())
"""
    with _writer(tmp_path, script) as process:
        pass
    assert process.returncode == 0


def test_no_descriptors_at_all_make_the_store_unavailable(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path)
    reference = store.write(key="key", content="content")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        outcomes = store.write_many([StoreEntry("a", "a"), StoreEntry("b", "b")])
        with pytest.raises(StoreUnavailableError):
            store.read(reference)
        with pytest.raises(StoreUnavailableError):
            store.delete([reference])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError, StoreUnavailableError]
    assert store.read(reference) == "content"


def test_a_root_that_is_removed_between_writes_is_made_again(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path / "root")
    reference = store.write(key="key", content="first")
    (tmp_path / "root").rename(tmp_path / "gone")
    with pytest.raises(ReferenceNotFoundError):
        store.read(reference)
    store.write(key="key", content="second")
    assert store.read(reference) == "second"


@pytest.mark.anyio
async def test_a_thousand_entries_in_one_batch(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path)
    batch = [StoreEntry(f"key {number}", str(number) * 100) for number in range(1000)]
    outcomes = await store.write_many_async(batch)
    assert outcomes == [store.reference(entry.key) for entry in batch]
    references = [outcome for outcome in outcomes if not isinstance(outcome, StoreError)]
    assert [await store.read_async(reference) for reference in references] == [entry.content for entry in batch]
    await store.delete_async(references)
    assert await run_in_worker(_names, tmp_path) == set()


def test_loops_in_two_threads_and_one_after_another_share_a_store(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path)

    async def work(name: str) -> None:
        for number in range(20):
            reference = await store.scoped(name).write_async(key="key", content=f"{name} {number}")
            assert await store.scoped(name).read_async(reference) == f"{name} {number}"
            await store.close_async()

    with ThreadPoolExecutor(2) as threads:
        for job in [threads.submit(asyncio.run, work(name)) for name in ("a", "b")]:
            job.result()
    asyncio.run(work("c"))


def test_an_interrupt_leaves_no_part(tmp_path: Path) -> None:
    script = """
batch = [StoreEntry(f"key {number}", f"{number} " * 500_000) for number in range(200)]
store.write_many(batch)
"""
    store = FileSystemToolResultStore(tmp_path)
    with _writer(tmp_path, script) as process:
        while not _names(tmp_path) and process.poll() is None:
            time.sleep(0.0005)
        process.send_signal(signal.SIGINT)
    assert process.returncode == -signal.SIGINT
    assert _temporary(tmp_path) == []
    names = {store.reference(f"key {number}").rpartition("/")[2]: number for number in range(200)}
    for name in _names(tmp_path):
        assert store.read(str(tmp_path / name)) == f"{names[name]} " * 500_000
    assert len(list((tmp_path / ".seals").iterdir())) == len(_names(tmp_path))
