"""
Entries in one folder: each a plain file, with a seal beside it.

A write makes a temporary file, gives it its seal, and renames it to its final name. So an entry never appears without
its seal, writers need no lock, and a reader either finds both or knows that something is wrong.
"""

import errno
import logging
import os
from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import count
from secrets import token_hex
from types import TracebackType
from typing import Self

from haybaler.errors import StoreError, StoreUnavailableError
from haybaler.stores.driver import Content
from haybaler.stores.inventory import StoredEntry
from haybaler.stores.limits import check_size
from haybaler_filesystem.aside import open_aside, remove_aside
from haybaler_filesystem.folders import Folder
from haybaler_filesystem.lifetime import Lifetime
from haybaler_filesystem.sealing import SEALS, Kinds, SealFolder
from haybaler_filesystem.seals import Seal, corrupt, decoded, encoded

logger = logging.getLogger(__name__)

TEMPORARY = ".haybaler-tmp-"  # what the name of an unfinished file begins with

# A reader begins again when a writer replaced what it was reading. That often in a row, it is not the writers' doing.
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Writing:
    """
    How files are written, and how long they are entries.

    :param mode: Their permissions.
    :param fsync: Whether to wait until they would survive a loss of power.
    :param max_bytes: The most bytes of one; None for any number.
    :param lifetime: How long they live.
    """

    mode: int
    fsync: bool
    max_bytes: int | None = None
    lifetime: Lifetime = field(default_factory=Lifetime)


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """
    An entry that is being read.

    :param file: Its open file.
    :param seal: What the entry is.
    :param data: The bytes of the file, compared with the seal; empty where they were not read.
    """

    file: BufferedReader
    seal: Seal
    data: bytes

    @property
    def is_whole(self) -> bool:
        """Whether `data` is all there is."""
        return len(self.data) == self.seal.size

    def content(self) -> Content:
        """Return the content of `data`."""
        return decoded(self.data, self.seal.kind)


class EntryFolder:
    """
    The entries of one scope, for the length of a `with` block.

    :param root: The absolute path of the store's root.
    :param scope: The folders from there on, outermost first.
    :param writing: How files are written.
    :param create: Whether to make folders that are missing; needed for writing.
    """

    def __init__(self, root: str, scope: tuple[str, ...], writing: Writing, *, create: bool = False) -> None:
        self._writing = writing
        self._create = create
        self._seals: SealFolder | None = None
        self._opened_seals = ExitStack()
        token = token_hex(8)
        self._temporaries = (f"{TEMPORARY}{token}-{number}" for number in count())
        with ExitStack() as opened:
            self._folder = opened.enter_context(Folder.root(root, create=create))
            for name in scope:
                self._folder = opened.enter_context(self._folder.child(name, create=create))
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close_seals()
        self._opened.close()

    def _close_seals(self) -> None:
        self._seals = None
        self._opened_seals.close()

    def _sealed(self) -> SealFolder:
        # Not before it is needed: a reader who looked before the first entry appeared would miss it.
        if self._seals is None:
            self._seals = SealFolder(self._opened_seals.enter_context(self._folder.child(SEALS, create=self._create)))
        return self._seals

    def write(self, name: str, content: Content, *, stopped: Callable[[], bool]) -> bool:
        """
        Write an entry, whole or not at all.

        :param name: Its name.
        :param content: Its content.
        :param stopped: Asked before the entry appears; true means that it must not appear any more.
        :returns: Whether it replaced another.
        :raises OSError: If it could not be written.
        :raises StoreError: If it was stopped, is too large, or if something that is not a file has its name.
        """
        _go_on(stopped)
        check_size(content, self._writing.max_bytes)
        data = encoded(content)
        temporary = next(self._temporaries)
        seal: Seal | None = None
        try:
            inode = self._fill(temporary, data)
            seal = Seal.of(name, content, data, inode)
            self._sealed().add(self._folder, temporary, seal)
            _go_on(stopped)
            replaced = self._folder.has(name)
            self._folder.replace(temporary, name)
        except BaseException:
            with suppress(OSError, StoreError):
                # Where the temporary file is gone, the entry has appeared and needs its seal.
                if self._folder.remove(temporary) and seal:
                    self._sealed().remove(seal)
            raise
        return replaced

    def _fill(self, name: str, data: bytes) -> int:
        descriptor, inode = self._folder.create(name, self._writing.mode)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if self._writing.fsync:
                os.fsync(descriptor)
            return inode
        finally:
            os.close(descriptor)

    def finish(self, replaced: Collection[str]) -> None:
        """
        Do once what several writes need.

        :param replaced: The names whose entries were replaced.
        :raises OSError: If it is not certain that the entries would survive a loss of power.
        """
        if self._writing.fsync:
            self._sealed().synchronize()
            self._folder.synchronize()
        if replaced:
            with suppress(OSError):  # what stays takes room, and goes with the next write or removal of the entry
                self._sealed().clear(replaced, unlinked=False)

    def read(self, name: str) -> Content:
        """
        Return an entry.

        :param name: Its name.
        :returns: What was written.
        :raises FileNotFoundError: If there is none.
        :raises CorruptEntryError: If it is not what was written.
        """
        entry = self.open(name)
        entry.file.close()
        return entry.content()

    def open(self, name: str, *, whole: int | None = None) -> OpenEntry:
        """
        Open an entry.

        :param name: Its name.
        :param whole: Up to how many bytes a file is read at once and compared with its seal; None for any number.
        :returns: The open entry; the caller closes its file.
        :raises FileNotFoundError: If there is none.
        :raises CorruptEntryError: If it is not what was written.
        """
        for _ in range(_ATTEMPTS):
            file = self._open_to_read(name)
            try:
                entry = self._opened_entry(name, file, whole)
            except BaseException:
                file.close()
                raise
            if entry is not None:
                self._renew(name, file)
                return entry
            file.close()
            self._close_seals()  # their folder may be another by now, too: that of a scope that was deleted goes
        raise corrupt()

    def _open_to_read(self, name: str) -> BufferedReader:
        try:
            return self._folder.open_to_read(name)
        except FileNotFoundError:
            return open_aside(self._folder, name)

    def _opened_entry(self, name: str, file: BufferedReader, whole: int | None) -> OpenEntry | None:
        status = self._alive(file)
        data = file.read() if whole is None or status.st_size <= whole else None
        seals = self._seals_for(name, status, data)
        for seal in seals:
            if seal.inode == status.st_ino:
                return OpenEntry(file, seal, data or b"")
        if not os.path.samestat(self._folder.status(name), status):
            return None  # replaced since it was opened, and its seal cleared away
        if not seals:
            raise corrupt()
        # The tree was copied, or the file system has no hard links: the latest write tells text from bytes.
        return OpenEntry(file, seals[0], data or b"")

    def _alive(self, file: BufferedReader) -> os.stat_result:
        status = os.fstat(file.fileno())
        if self._writing.lifetime.is_over(status):
            raise FileNotFoundError(errno.ENOENT, "It has expired")
        return status

    def _renew(self, name: str, file: BufferedReader) -> None:
        if self._writing.lifetime.seconds is not None:
            try:
                self._folder.date(name, file.fileno())
            except OSError as error:  # somebody else's file, or a place that cannot be written: it can be read
                logger.warning(
                    "The time to live of an entry could not be renewed.", extra={"error": type(error).__name__}
                )

    def _seals_for(self, name: str, status: os.stat_result, data: bytes | None) -> list[Seal]:
        try:
            sealed = self._sealed()
        except FileNotFoundError:
            return []
        if data is not None and (seal := sealed.exact(name, data, status.st_ino)):
            return [seal]
        return sealed.similar(name, status.st_size, data)

    def remove(self, names: Collection[str], *, stopped: Callable[[], bool]) -> None:
        """
        Remove entries and their seals.

        :param names: The names of the entries; one that is not there counts as removed.
        :param stopped: Asked before each removal; true means that nothing more must be removed.
        :raises OSError: If one could not be removed.
        """
        try:
            for name in names:
                _go_on(stopped)
                self._folder.remove(name)
            remove_aside(self._folder, names)
        finally:
            with suppress(FileNotFoundError):
                self._sealed().clear(names, unlinked=True)

    def described(self, path: str) -> StoredEntry:
        """
        Tell what an entry is, without reading it.

        :param path: Its path.
        :returns: The entry.
        :raises FileNotFoundError: If there is none.
        :raises CorruptEntryError: If something else has its name.
        """
        name = name_of(path)
        with self._open_to_read(name) as file:
            status = self._alive(file)
        return Kinds(self._folder, only=name).described(path, status)


def _go_on(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise StoreUnavailableError("The operation was cancelled.")


def name_of(path: str) -> str:
    """Return the name of an entry in its folder."""
    return path.rpartition("/")[2]
