"""Writing a batch of entries into files."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiofiles
import anyio
from haystack.hooks.tool_result_offloading import FileSystemToolResultStore as HaystackFileStore

from benchmarks.batches import Write, batch_cases, write_all
from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, TIME, Group
from benchmarks.timing import measure
from haybaler import StoreEntry
from haybaler_filesystem import FileSystemToolResultStore


async def _haybaler(folder: Path, entries: list[StoreEntry]) -> None:
    await write_all(FileSystemToolResultStore(folder), entries)


async def _haystack(folder: Path, entries: list[StoreEntry]) -> None:
    def write_all() -> None:
        store = HaystackFileStore(folder)
        for entry in entries:
            store.write(key=entry.key, content=entry.content)

    await asyncio.to_thread(write_all)


async def _aiofiles_one(folder: Path, entry: StoreEntry) -> None:
    async with aiofiles.open(folder / entry.key, "w", encoding="utf-8") as file:
        await file.write(str(entry.content))


async def _aiofiles_gathered(folder: Path, entries: list[StoreEntry]) -> None:
    await asyncio.gather(*(_aiofiles_one(folder, entry) for entry in entries))


async def _aiofiles_in_turn(folder: Path, entries: list[StoreEntry]) -> None:
    for entry in entries:
        await _aiofiles_one(folder, entry)


async def _raw(folder: Path, entries: list[StoreEntry]) -> None:
    def write_all() -> None:
        for entry in entries:
            path = f"{folder}/{entry.key}"
            descriptor = os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, str(entry.content).encode())
            os.close(descriptor)
            os.rename(path + ".tmp", path)  # noqa: PTH104 - without the cost of Path objects

    await anyio.to_thread.run_sync(write_all)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="haybaler-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


async def files(*, repetitions: int, quick: bool) -> Group:
    """Time batches of small, middling and big entries."""
    writes: dict[str, Write[Path]] = {
        HAYBALER: _haybaler,
        f"{HAYSTACK}, in a thread": _haystack,
        "aiofiles, gathered": _aiofiles_gathered,
        "aiofiles, one by one": _aiofiles_in_turn,
        RAW: _raw,
    }
    cases = batch_cases(writes, _folder, quick=quick)
    await measure(cases, repetitions=repetitions)
    target = (
        "Target: 1.3 x the floor, and the loop stands still for at most 10 ms. "
        "The floor: temporary file and rename, all in one thread."
    )
    return Group("files", "FileSystemToolResultStore.write_many_async", target, [TIME, *LOOP], cases)
