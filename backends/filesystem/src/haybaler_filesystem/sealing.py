"""The folder of the seals: made, found and cleared away."""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from xxhash import xxh3_64_intdigest

from haybaler.errors import CorruptEntryError
from haybaler.stores.driver import Content
from haybaler.stores.inventory import StoredEntry
from haybaler_filesystem.folders import NO_LINKS, Folder
from haybaler_filesystem.seals import UNLINKED, Seal

SEALS = ".seals"


class SealFolder:
    """
    The seals of the entries of one folder.

    A seal is a second name of the entry's own file, because that is the cheapest thing to make; only its name counts.
    Thus a seal's file has two names while the entry stands or is about to appear, and one name from then on.

    :param folder: Where they are.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def add(self, entries: Folder, temporary: str, seal: Seal) -> None:
        """
        Make a seal.

        :param entries: The folder of the entries.
        :param temporary: The complete file in it.
        :param seal: What to say about it.
        """
        try:
            self._link(entries, temporary, seal.file_name)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            with suppress(FileExistsError):
                os.close(self._folder.create(replace(seal, inode=UNLINKED).file_name, 0o600)[0])

    def remove(self, seal: Seal) -> None:
        """Remove the seal of a file that never became an entry. One that is not a link may serve another write."""
        self._remove_alone(seal.file_name)

    def exact(self, name: str, data: bytes, inode: int) -> Seal | None:
        """
        Return the seal that this very file was written with.

        :param name: The name of the entry.
        :param data: The bytes of its file.
        :param inode: Its inode number.
        :returns: The seal, or None if there is none.
        """
        contents: list[Content] = [data]
        with suppress(UnicodeDecodeError):
            contents.insert(0, data.decode("utf-8", "surrogatepass"))
        possible = (Seal.of(name, content, data, inode) for content in contents)
        return next((seal for seal in possible if self._folder.has(seal.file_name)), None)

    def similar(self, name: str, size: int, data: bytes | None) -> list[Seal]:
        """
        Return the seals that fit a file by what is known about it, found by listing the folder.

        :param name: The name of the entry.
        :param size: The size of its file in bytes.
        :param data: The bytes of its file; None if they are not known.
        :returns: The seals, the latest first.
        """
        checksum = None if data is None else xxh3_64_intdigest(data)
        seals = [seal for seal in self._of({name}) if seal.size == size and checksum in {None, seal.checksum}]
        return sorted(seals, key=self._written, reverse=True) if len(seals) > 1 else seals

    def clear(self, names: Collection[str], *, unlinked: bool) -> None:
        """
        Remove the seals of entries that were removed or replaced; those of entries that stand or will appear stay.

        :param names: The names of the entries.
        :param unlinked: Whether to remove also the seals that are not links, from which that cannot be told.
        """
        for seal in self._of(names):
            if seal.inode != UNLINKED:
                self._remove_alone(seal.file_name)
            elif unlinked:
                self._folder.remove(seal.file_name)

    def clear_all(self, entries: Folder, temporary: str) -> None:
        """
        Remove every seal except those of entries that stand or will appear, which somebody is writing meanwhile.

        :param entries: The folder of the entries.
        :param temporary: What the name of an unfinished file begins with.
        """
        names = self._folder.names()
        # Looked at after the seals: whoever had made one of them has the file under one of its two names by now.
        beside = set(entries.names())
        unfinished = any(name.startswith(temporary) for name in beside)
        for name in names:
            seal = Seal.parse(name)
            if seal is not None and seal.inode != UNLINKED:
                self._remove_alone(name)
            elif seal is None or not (unfinished or seal.name in beside):
                self._folder.remove(name)

    def clear_strays(self, entries: Folder, is_old: Callable[[os.stat_result], bool]) -> list[int]:
        """
        Remove the seals that belong to no entry, and of which none will appear.

        :param entries: The folder of the entries.
        :param is_old: Whether what looks unfinished was left behind.
        :returns: The bytes that each of them held.
        """
        seals = [seal for seal in map(Seal.parse, self._folder.names()) if seal is not None]
        known = {(seal.name, seal.inode) for seal in seals}
        sizes = []
        for seal in seals:
            with suppress(FileNotFoundError), self._folder.held(seal.file_name) as status:
                if seal.inode == UNLINKED:
                    stray = is_old(status) and not entries.has(seal.name)
                elif status.st_nlink > 1:
                    stray = False
                else:
                    # In a tree that was copied, the seals are files of their own, and the only ones. Its entries may
                    # have got the numbers that were theirs before.
                    inode = entries.status(seal.name).st_ino if entries.has(seal.name) else None
                    stray = inode is None or (inode != seal.inode and (seal.name, inode) in known)
                if stray and self._folder.remove(seal.file_name):
                    sizes.append(status.st_size)
        return sizes

    def synchronize(self) -> None:
        """Wait until the seals would survive a loss of power."""
        self._folder.synchronize()

    def _link(self, entries: Folder, temporary: str, file_name: str) -> None:
        try:
            entries.link(temporary, self._folder, file_name)
        except FileExistsError:  # a file of its own, in a tree that was copied, where an entry may still need it
            entries.link(temporary, self._folder, temporary)
            self._folder.replace(temporary, file_name)

    def _remove_alone(self, file_name: str) -> None:
        with suppress(FileNotFoundError), self._folder.held(file_name) as status:
            if status.st_nlink == 1:
                self._folder.remove(file_name)

    def _of(self, names: Collection[str]) -> list[Seal]:
        parsed = map(Seal.parse, self._folder.names())
        return [seal for seal in parsed if seal is not None and seal.name in names]

    def _written(self, seal: Seal) -> int:
        try:
            return self._folder.status(seal.file_name).st_mtime_ns
        except FileNotFoundError:
            return 0


class Kinds:
    """
    Which kind each entry of a folder is, as the names of the seals say at one moment.

    :param folder: The folder of the entries.
    :param only: The name of the only entry that is asked for; None for all.
    """

    def __init__(self, folder: Folder, only: str | None = None) -> None:
        self._seals: dict[tuple[str, int], Seal] = {}
        begin = "" if only is None else f"{only}."
        with suppress(FileNotFoundError, CorruptEntryError), folder.child(SEALS, create=False) as seals:
            parsed = (Seal.parse(name) for name in seals.names() if name.startswith(begin))
            self._seals.update(((seal.name, seal.inode), seal) for seal in parsed if seal is not None)

    def described(self, path: str, status: os.stat_result) -> StoredEntry:
        """
        Tell what one entry is.

        :param path: Its path.
        :param status: The status of its file.
        :returns: The entry.
        """
        name = path.rpartition("/")[2]
        seal = self._seals.get((name, status.st_ino)) or self._seals.get((name, UNLINKED))
        written = datetime.fromtimestamp(status.st_mtime, UTC)
        return StoredEntry(path, status.st_size, written, seal.says if seal else None)
