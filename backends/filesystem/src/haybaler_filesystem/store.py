"""The store that keeps tool results in files."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Literal, Self

from aiofiles.threadpool import wrap
from xxhash import xxh3_64

from haybaler.errors import ConfigurationError, StoreError, store_error
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content, page_of, write_failure
from haybaler.stores.limits import most_bytes_allowed, time_to_live
from haybaler.stores.page_scan import PageScan
from haybaler.stores.protocol import StorePage
from haybaler.stores.url import boolean, parse_store_url
from haybaler.workers import map_bounded
from haybaler_filesystem.entries import EntryFolder, OpenEntry, Writing, name_of
from haybaler_filesystem.hops import split_hops
from haybaler_filesystem.housekeeping import FileHousekeeping
from haybaler_filesystem.lifetime import Lifetime
from haybaler_filesystem.pool import WorkerPool
from haybaler_filesystem.seals import BINARY, Seal, corrupt

# Up to this size, a page is cut from the whole file, which costs less than finding its seal in a full folder.
WHOLE_BYTES = 256 * 1024


class FileSystemToolResultStore(FileHousekeeping, BaseToolResultStore):
    """
    Keeps each tool result in a file of its own.

    Text is stored as UTF-8 and binary content as it is, so that a person or a shell tool can read the files. Hidden
    folders named `.seals` hold what the files cannot say themselves. Any number of processes may use one root.

    ```python
    from haybaler_filesystem import FileSystemToolResultStore

    store = FileSystemToolResultStore("tool_results")
    reference = store.write(key="search_1.txt", content="...")
    store.read(reference)
    ```

    :param root: The folder for the files; made, with mode 0700, by the first write. A relative path is completed with
        the working directory right away.
    :param references: What a reference looks like: the absolute path of the file ("absolute"), or its path inside
        `root` ("relative"), which keeps the machine's paths out of prompts and survives a move of `root`.
    :param fsync: Whether a write waits until the file would survive a loss of power. Without it, such a loss may
        leave entries that read as absent or raise `CorruptEntryError`.
    :param file_mode: The permissions of the files, whatever the umask.
    :param max_workers: The most threads that serve asynchronous callers, those of scoped stores included.
    :param ttl: How long an entry lives from its last write or read on, in seconds; None for ever. What has expired
        reads as absent, and goes with the next `sweep`. It is no part of the files: another store of the same root has
        its own.
    :param max_bytes: The largest content that is stored, in bytes; None for any size.
    :param max_scope_bytes: As for `BaseToolResultStore`.
    :raises ConfigurationError: If a parameter is not usable.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        references: Literal["absolute", "relative"] = "absolute",
        fsync: bool = False,
        file_mode: int = 0o600,
        max_workers: int = 4,
        ttl: float | timedelta | None = None,
        max_bytes: int | None = None,
        max_scope_bytes: int | None = None,
    ) -> None:
        if not os.fspath(root) or "\0" in os.fspath(root):
            raise ConfigurationError("`root` must be the path of a folder.")
        if references not in {"absolute", "relative"}:
            raise ConfigurationError(f'`references` must be "absolute" or "relative", not {references!r}.')
        if not 0 <= file_mode <= 0o777 or file_mode & 0o600 != 0o600:
            raise ConfigurationError("`file_mode` must let the owner read and write, and have no bits beyond 0o777.")
        if max_workers < 1:
            raise ConfigurationError(f"`max_workers` must be at least 1, not {max_workers}.")
        # Lexical, since a constructor does no I/O: whether `root` exists or is a link is not asked.
        absolute = root if Path(root).is_absolute() else Path(os.fsdecode(os.getcwdb()), root)  # noqa: PTH109
        self.root = os.path.normpath(absolute)
        self._references = references
        self._writing = Writing(
            mode=file_mode,
            fsync=fsync,
            max_bytes=most_bytes_allowed("max_bytes", max_bytes),
            lifetime=Lifetime(time_to_live(ttl)),
        )
        self._max_workers = max_workers
        self._pool = WorkerPool(max_workers)
        location = Path(self.root).as_posix().rstrip("/") + "/"
        super().__init__(location=location if references == "absolute" else "", max_scope_bytes=max_scope_bytes)

    def _settings(self) -> dict[str, Any]:
        return {
            "root": self.root,
            "references": self._references,
            "fsync": self._writing.fsync,
            "file_mode": self._writing.mode,
            "max_workers": self._max_workers,
            "ttl": self._writing.lifetime.seconds,
            "max_bytes": self._writing.max_bytes,
            "max_scope_bytes": self._max_scope_bytes,
        }

    @classmethod
    def from_url(cls, url: str) -> Self:
        """
        Build a store from a URL, for example `file:///var/lib/results?references=relative&fsync=true`.

        :param url: Its path is `root`, absolute; all parameters may follow as options, `file_mode` in octal.
        :returns: The store.
        :raises ConfigurationError: If the URL is not one of this kind.
        """
        parts = parse_store_url(
            url,
            schemes=["file"],
            options={
                "references": str,
                "fsync": boolean,
                "file_mode": partial(int, base=8),
                "ttl": float,
                **dict.fromkeys(("max_workers", "max_bytes", "max_scope_bytes"), int),
            },
        )
        if parts.authority or not parts.path.startswith("/"):
            raise ConfigurationError("The URL of a file store has three slashes and an absolute path: file:///path.")
        return cls(parts.path, **parts.options)

    def _folder(self, *, create: bool = False) -> EntryFolder:
        return EntryFolder(self.root, self._scope, self._writing, create=create)

    def _put(self, path: str, content: Content) -> None:
        for error in self._put_many([(path, content)]):
            if error is not None:
                raise error

    def _put_many(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        return self._write(items, Event())

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        stop = Event()

        async def write(part: slice) -> list[StoreError | None]:
            return await self._pool.run(self._write, items[part], stop, stop=stop)

        # Waiting for the disk is what fsync costs, so then the hops of one batch run side by side.
        hops_at_once = self._max_workers if self._writing.fsync else 1
        parts = split_hops([len(content) for _, content in items], at_least=hops_at_once)
        return [error for errors in await map_bounded(write, parts, limit=hops_at_once) for error in errors]

    def _write(self, items: Sequence[tuple[str, Content]], stop: Event) -> list[StoreError | None]:
        outcomes = self._written(items, stop)
        # A sweep removes the folder of a scope that nobody has used for long, perhaps at this very moment.
        gone = [i for i, outcome in enumerate(outcomes) if outcome and isinstance(outcome.__cause__, FileNotFoundError)]
        again = self._written([items[index] for index in gone], stop) if gone else []
        for index, outcome in zip(gone, again, strict=True):
            outcomes[index] = outcome
        return outcomes

    def _written(self, items: Sequence[tuple[str, Content]], stop: Event) -> list[StoreError | None]:
        outcomes: list[StoreError | None] = []
        replaced = set()
        try:
            with self._folder(create=True) as folder:
                for path, content in items:
                    name = name_of(path)
                    try:
                        if folder.write(name, content, stopped=stop.is_set):
                            replaced.add(name)
                    except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
                        outcomes.append(write_failure(error))
                    else:
                        outcomes.append(None)
                folder.finish(replaced)
        except Exception as error:  # noqa: BLE001 - what concerns the folder concerns all its entries
            return [write_failure(error)] * len(items)
        return outcomes

    def _get(self, path: str) -> Content:
        with self._folder() as folder:
            return folder.read(name_of(path))

    async def _get_async(self, path: str) -> Content:
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._get, path)

    def _open(self, path: str, whole: int) -> OpenEntry:
        with self._folder() as folder:
            entry = folder.open(name_of(path), whole=whole)
        if entry.data:
            entry.file.close()
        return entry

    @asynccontextmanager
    async def _opened(self, path: str, whole: int) -> AsyncIterator[OpenEntry]:
        opened: list[OpenEntry] = []
        try:
            await self._pool.run(lambda: opened.append(self._open(path, whole)), stop=Event())
            yield opened[0]
        finally:
            for entry in opened:
                if not entry.file.closed:
                    await self._pool.finish(entry.file.close)

    def _get_page(self, path: str, offset: int, limit: int) -> StorePage:
        entry = self._open(path, WHOLE_BYTES)
        with closing(entry.file) as file:
            if entry.is_whole:
                return page_of(entry.content(), offset, limit)
            scan = _page_scan(entry.seal, offset, limit)
            while scan.wanted:
                position, size = scan.wanted
                file.seek(position)
                scan.feed(file.read(size))
        return scan.page()

    async def _get_page_async(self, path: str, offset: int, limit: int) -> StorePage:
        async with self._opened(path, WHOLE_BYTES) as entry:
            if entry.is_whole:
                return page_of(entry.content(), offset, limit)
            file = wrap(entry.file, executor=self._pool)
            scan = _page_scan(entry.seal, offset, limit)
            while scan.wanted:
                position, size = scan.wanted
                await file.seek(position)
                scan.feed(await file.read(size))
        return scan.page()

    async def stream_async(self, reference: str, *, chunk_bytes: int = 64 * 1024) -> AsyncGenerator[bytes, None]:
        """
        Return the bytes of an entry piece by piece, for entries that should not be in memory as a whole.

        :param reference: A reference of this store and scope.
        :param chunk_bytes: The size of a piece in bytes; only the last one is smaller.
        :returns: The bytes of the file, in order: those of binary content, or text in UTF-8.
        :raises StoreError: As `read`; damage is noticed after the last piece.
        """
        digest = xxh3_64()
        try:
            async with self._opened(self._path(reference), whole=-1) as entry:
                file = wrap(entry.file, executor=self._pool)
                while piece := await file.read(chunk_bytes):
                    digest.update(piece)
                    yield piece
        except OSError as error:
            raise store_error(error, action="read an entry") from error
        if digest.intdigest() != entry.seal.checksum:
            raise corrupt()

    def _remove(self, path: str) -> None:
        self._remove_many([path])

    def _remove_many(self, paths: Sequence[str]) -> None:
        self._delete(paths, Event())

    async def _remove_many_async(self, paths: Sequence[str]) -> None:
        stop = Event()
        await self._pool.run(self._delete, paths, stop, stop=stop)

    def _delete(self, paths: Sequence[str], stop: Event) -> None:
        with suppress(FileNotFoundError), self._folder() as folder:
            folder.remove([name_of(path) for path in paths], stopped=stop.is_set)

    def close(self) -> None:
        """End the idle threads. The next use starts new ones."""
        self._pool.shutdown(wait=False)

    async def close_async(self) -> None:
        """End the idle threads. The next use starts new ones."""
        self._pool.shutdown(wait=False)


def _page_scan(seal: Seal, offset: int, limit: int) -> PageScan:
    return PageScan(binary=seal.kind == BINARY, size=seal.size, length=seal.length, offset=offset, limit=limit)
