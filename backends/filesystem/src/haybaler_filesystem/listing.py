"""Listing the entries of a scope, folder by folder, without reading any."""

import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from haybaler.errors import CorruptEntryError
from haybaler.stores.inventory import EntryPage, StoredEntry
from haybaler.stores.names import is_name, is_scope_name
from haybaler_filesystem.folders import Folder, opened
from haybaler_filesystem.lifetime import Lifetime
from haybaler_filesystem.sealing import Kinds

# Names of one page. Looking at its files takes some ten milliseconds.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Walk:
    """
    How far a listing has come. It holds no folder open.

    :param scopes: The folders that come next, from the root on, the last one first, each with what is inside.
    :param scope: The one that is being looked at.
    :param names: What is still to be looked at in it.
    :param kinds: Which kinds they are.
    """

    scopes: list[tuple[str, ...]]
    scope: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)
    kinds: Kinds | None = None

    @classmethod
    def of(cls, scope: tuple[str, ...]) -> Self:
        """Begin with a scope."""
        return cls([scope])


def page_of_walk(root: str, walk: Walk, lifetime: Lifetime) -> EntryPage:
    """
    Look at some of the entries.

    :param root: The absolute path of the store's root.
    :param walk: How far the listing has come.
    :param lifetime: How long entries live.
    :returns: The entries, and the walk that goes on; None at the end.
    """
    entries: list[StoredEntry] = []
    looked = 0
    while looked < PAGE and (walk.names or walk.scopes):
        if not walk.names:
            walk = _entered(root, walk)
        part, rest = walk.names[: PAGE - looked], walk.names[PAGE - looked :]
        entries += _described(root, walk, part, lifetime)
        looked += len(part) + 1
        walk = Walk(walk.scopes, walk.scope, rest, walk.kinds)
    return EntryPage(entries, walk if walk.names or walk.scopes else None)


def _entered(root: str, walk: Walk) -> Walk:
    *scopes, scope = walk.scopes
    # Somebody else has removed the folder meanwhile, or it is a link that somebody planted, and leads nowhere.
    with suppress(FileNotFoundError, CorruptEntryError), opened(root, scope) as folder:
        names = folder.names()
        inner = [(*scope, name) for name in names if is_scope_name(name)]
        entries = [name for name in names if is_name(name)]
        # Looked at after the entries: each has its seal from the beginning.
        return Walk([*scopes, *inner], scope, entries, Kinds(folder) if entries else None)
    return Walk(scopes)


def _described(root: str, walk: Walk, names: list[str], lifetime: Lifetime) -> Iterator[StoredEntry]:
    if names and walk.kinds:
        path = "".join(f"{name}/" for name in walk.scope)
        with suppress(FileNotFoundError, CorruptEntryError), opened(root, walk.scope) as folder:
            yield from _there(folder, walk.kinds, path, names, lifetime)


def _there(folder: Folder, kinds: Kinds, path: str, names: list[str], lifetime: Lifetime) -> Iterator[StoredEntry]:
    for name in names:
        with suppress(FileNotFoundError):
            status = folder.status(name)
            if stat.S_ISREG(status.st_mode) and not lifetime.is_over(status):
                yield kinds.described(path + name, status)
