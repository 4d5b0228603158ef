"""Removing a whole scope: its entries, their seals, its temporary files, and the scopes inside it."""

import stat
from contextlib import ExitStack, suppress

from haybaler.errors import CorruptEntryError
from haybaler.stores.names import SCOPE_MARK, is_name
from haybaler.stores.protocol import DeletedScope
from haybaler_filesystem.aside import clear_aside
from haybaler_filesystem.entries import TEMPORARY
from haybaler_filesystem.folders import Folder
from haybaler_filesystem.sealing import SEALS, SealFolder

_NOTHING = DeletedScope(0, 0)


def clear_scope(root: str, scope: tuple[str, ...]) -> DeletedScope:
    """
    Remove everything of a scope. What haybaler did not make, such as a person's notes beside the files, stays.

    Others may write, read and remove meanwhile. What is written meanwhile stays whole, is removed, or fails to be
    written.

    :param root: The absolute path of the store's root, which stays as well.
    :param scope: The folders from there on, outermost first; empty for everything in the root.
    :returns: How many entries were removed, and the bytes of their files.
    :raises OSError: If something could not be removed; calling again goes on.
    """
    with ExitStack() as opened:
        try:
            folder = opened.enter_context(Folder.root(root, create=False))
            for name in scope[:-1]:
                folder = opened.enter_context(folder.child(name, create=False))
        except FileNotFoundError:
            return _NOTHING
        return _clear_child(folder, scope[-1]) if scope else _clear(folder)


def _clear_child(parent: Folder, name: str) -> DeletedScope:
    try:
        with parent.child(name, create=False) as folder:
            deleted = _clear(folder)
    except FileNotFoundError:  # somebody else has removed it
        return _NOTHING
    with suppress(OSError):  # somebody writes into it again, or a person keeps something there
        parent.remove_folder(name)
    return deleted


def _clear(folder: Folder) -> DeletedScope:
    entries = size = 0
    for name in folder.names():
        if is_name(name):
            removed = _remove_entry(folder, name)
        elif name.startswith(SCOPE_MARK) and is_name(name.removeprefix(SCOPE_MARK)):
            removed = _NOTHING
            with suppress(CorruptEntryError):  # a link that somebody planted leads nowhere
                removed = _clear_child(folder, name)
        else:
            removed = _NOTHING
            if name.startswith(TEMPORARY):
                folder.remove(name)
        entries, size = entries + removed.entries, size + removed.bytes
    if clear_aside(folder):
        # A sweep may have put entries back after their names were listed.
        for name in filter(is_name, folder.names()):
            removed = _remove_entry(folder, name)
            entries, size = entries + removed.entries, size + removed.bytes
    _clear_seals(folder)
    return DeletedScope(entries, size)


def _remove_entry(folder: Folder, name: str) -> DeletedScope:
    with suppress(FileNotFoundError):
        status = folder.status(name)
        if stat.S_ISREG(status.st_mode) and folder.remove(name):
            return DeletedScope(1, status.st_size)
    return _NOTHING


def _clear_seals(folder: Folder) -> None:
    with suppress(FileNotFoundError):
        with folder.child(SEALS, create=False) as seals:
            SealFolder(seals).clear_all(folder, TEMPORARY)
        with suppress(OSError):
            folder.remove_folder(SEALS)
