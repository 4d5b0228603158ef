"""
Removing an entry only if it has expired, although somebody may replace it at the same moment, and without a lock.

No file system removes a name on a condition. So a sweep gives the file another name in a hidden folder, `.aside`, looks
at it there, where nobody can replace it, and removes it or puts it back. Meanwhile a reader finds it there, and a sweep
that is killed leaves it there for the next one.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from secrets import token_hex

from haybaler.errors import CorruptEntryError
from haybaler.stores.names import is_name
from haybaler_filesystem.folders import NO_LINKS, Folder

ASIDE = ".aside"

IsOver = Callable[[os.stat_result], bool]


@contextmanager
def _aside(folder: Folder, *, create: bool = False) -> Iterator[Folder]:
    try:
        child = folder.child(ASIDE, create=create)
    except CorruptEntryError:  # a link that somebody planted leads nowhere
        raise FileNotFoundError from None
    with child:
        yield child


def remove_if(folder: Folder, name: str, is_over: IsOver) -> os.stat_result | None:
    """
    Remove an entry, unless it turns out to be another one by now.

    :param folder: Its folder.
    :param name: Its name.
    :param is_over: Whether a file with this status is to go.
    :returns: The status of what was removed; None if nothing was.
    """
    # A name of its own, which no other sweep can take for one of its own.
    new_name = f"{token_hex(8)}.{name}"
    with _aside(folder, create=True) as aside:
        try:
            folder.move(name, aside, new_name)
        except FileNotFoundError:
            return None
        return _settle(folder, aside, new_name, is_over)


def _settle(folder: Folder, aside: Folder, name: str, is_over: IsOver) -> os.stat_result | None:
    with suppress(FileNotFoundError):  # somebody deletes the entry, or another sweep has settled it
        status = aside.status(name)
        if not is_over(status):
            _put_back(folder, aside, name)
        elif aside.remove(name):
            return status
    return None


def _put_back(folder: Folder, aside: Folder, name: str) -> None:
    try:
        aside.link(name, folder, _entry(name))
    except FileExistsError:  # written anew meanwhile: then this is the old one
        pass
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if not folder.has(_entry(name)):
            aside.move(name, folder, _entry(name))
    aside.remove(name)


def settle_all(folder: Folder, is_over: IsOver) -> list[tuple[str, os.stat_result]]:
    """
    Go on where sweeps were killed: remove what is aside, or put it back.

    :param folder: The folder of the entries.
    :param is_over: Whether a file with this status is to go.
    :returns: The names of the entries that were removed, each with the status of its file.
    """
    with suppress(FileNotFoundError), _aside(folder) as aside:
        names = [name for name in aside.names() if is_name(_entry(name))]
        settled = [(_entry(name), _settle(folder, aside, name, is_over)) for name in names]
        return [(name, status) for name, status in settled if status is not None]
    return []


def open_aside(folder: Folder, name: str) -> BufferedReader:
    """
    Open an entry that is aside for a moment, or was.

    :param folder: Its folder.
    :param name: Its name, which no file has.
    :returns: The open file.
    :raises FileNotFoundError: If there is none.
    """
    with _aside(folder) as aside:
        for found in _of(aside, {name}):
            with suppress(FileNotFoundError):
                return aside.open_to_read(found)
    return folder.open_to_read(name)


def remove_aside(folder: Folder, names: Collection[str]) -> None:
    """
    Remove entries for good that were removed under their names already, but may be aside, or were put back.

    :param folder: Their folder.
    :param names: Their names.
    """
    with suppress(FileNotFoundError), _aside(folder) as aside:
        for found in _of(aside, set(names)):
            aside.remove(found)
        for name in names:
            folder.remove(name)


def clear_aside(folder: Folder) -> bool:
    """
    Remove whatever is aside.

    :param folder: The folder of the entries.
    :returns: Whether anything may have been aside since the names in the folder were listed.
    """
    with suppress(FileNotFoundError):
        with _aside(folder) as aside:
            for name in aside.names():
                aside.remove(name)
        with suppress(OSError):
            folder.remove_folder(ASIDE)
        return True
    return False


def _of(aside: Folder, names: Collection[str]) -> list[str]:
    return [found for found in aside.names() if _entry(found) in names]


def _entry(name_aside: str) -> str:
    return name_aside.partition(".")[2]
