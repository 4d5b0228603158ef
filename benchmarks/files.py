"""Writing a batch of entries into files."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import aiofiles
import anyio
from haystack.hooks.tool_result_offloading import FileSystemToolResultStore as HaystackFileStore

from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, TIME, Group
from benchmarks.timing import Action, Case, measure
from haybaler import StoreEntry
from haybaler_filesystem import FileSystemToolResultStore

ENTRIES = 1_000

Write = Callable[[Path, list[StoreEntry]], Awaitable[None]]


async def _haybaler(folder: Path, entries: list[StoreEntry]) -> None:
    outcomes = await FileSystemToolResultStore(folder).write_many_async(entries)
    assert all(isinstance(outcome, str) for outcome in outcomes), "an entry was not written"


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


def _writing(write: Write, entries: list[StoreEntry]) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        folder = Path(tempfile.mkdtemp(prefix="haybaler-bench-"))
        try:
            yield partial(write, folder, entries)
        finally:
            shutil.rmtree(folder)

    return prepare


async def files(*, repetitions: int, quick: bool) -> Group:
    """Time batches of small, middling and big entries."""
    cases: list[Case] = []
    for kilobytes in [10] if quick else [1, 10, 100]:
        line = "A line of a result, as long as lines are in text.\n"
        text = (line * (kilobytes * 1024 // len(line) + 1))[: kilobytes * 1024]
        entries = [StoreEntry(f"1_read_file_{number}.txt", f"{number:06}{text[6:]}") for number in range(ENTRIES)]
        subject = f"{ENTRIES:,} x {kilobytes} KB"
        cases += [
            Case(subject, HAYBALER, _writing(_haybaler, entries)),
            Case(subject, f"{HAYSTACK}, in a thread", _writing(_haystack, entries)),
            Case(subject, "aiofiles, gathered", _writing(_aiofiles_gathered, entries)),
            Case(subject, "aiofiles, one by one", _writing(_aiofiles_in_turn, entries)),
            Case(subject, RAW, _writing(_raw, entries)),
        ]
    await measure(cases, repetitions=repetitions)
    target = (
        "Target: 1.3 x the floor, and the loop stands still for at most 10 ms. "
        "The floor: temporary file and rename, all in one thread."
    )
    return Group("files", "FileSystemToolResultStore.write_many_async", target, [TIME, *LOOP], cases)
