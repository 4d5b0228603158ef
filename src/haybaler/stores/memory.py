"""A store in the memory of the process, for tests and for short runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from threading import Lock
from time import monotonic
from typing import Any, Self

from haybaler.errors import ConfigurationError, ReferenceNotFoundError, StoreError
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content, page_of
from haybaler.stores.inventory import EntryPage, Kind, StoredEntry, SweepReport
from haybaler.stores.limits import check_size, most_bytes_allowed, size_of, time_to_live
from haybaler.stores.protocol import DeletedScope, StorePage
from haybaler.stores.url import parse_store_url

# Entries of one page of a listing.
PAGE = 1000


@dataclass(slots=True)
class _Held:
    content: Content
    written: datetime
    used: float  # by the monotonic clock, which no correction of the time of day moves


class InMemoryToolResultStore(BaseToolResultStore):
    """
    Keeps entries in a dictionary of this process. They are gone with the last copy of the store.

    Its references carry a random part, so that those of another instance are refused.

    :param ttl: How long an entry lives from its last write or read on, in seconds; None for ever. `sweep` frees the
        memory of what has expired.
    :param max_bytes: The largest content that is stored, in bytes; None for any size.
    :param max_scope_bytes: As for `BaseToolResultStore`.
    :raises ConfigurationError: If a parameter is not usable.
    """

    def __init__(
        self, *, ttl: float | timedelta | None = None, max_bytes: int | None = None, max_scope_bytes: int | None = None
    ) -> None:
        self._ttl = time_to_live(ttl)
        self._max_bytes = most_bytes_allowed("max_bytes", max_bytes)
        self._entries: dict[str, _Held] = {}
        self._lock = _Lock()
        super().__init__(location=f"memory:{token_hex(4)}/", max_scope_bytes=max_scope_bytes)

    def _settings(self) -> dict[str, Any]:
        given = {"ttl": self._ttl, "max_bytes": self._max_bytes, "max_scope_bytes": self._max_scope_bytes}
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def from_url(cls, url: str) -> Self:
        """
        Build an empty store.

        :param url: `memory://`; all parameters may follow as options.
        :returns: The store.
        :raises ConfigurationError: If anything else follows.
        """
        parts = parse_store_url(
            url, schemes=("memory",), options={"ttl": float, "max_bytes": int, "max_scope_bytes": int}
        )
        if parts.authority or parts.path:
            raise ConfigurationError("Nothing but options may follow in `memory://`.")
        return cls(**parts.options)

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return True

    def _put(self, path: str, content: Content) -> None:
        check_size(content, self._max_bytes)
        with self._lock.taken:
            self._entries[path] = _Held(content, datetime.now(UTC), monotonic())

    def _found(self, path: str) -> _Held:
        held = self._entries.get(path)
        if held is None or self._is_over(held):
            raise ReferenceNotFoundError("Nothing is stored under the reference.")
        return held

    def _is_over(self, held: _Held) -> bool:
        return self._ttl is not None and monotonic() - held.used > self._ttl

    def _get(self, path: str) -> Content:
        held = self._found(path)
        held.used = monotonic()
        return held.content

    def _remove(self, path: str) -> None:
        self._entries.pop(path, None)

    def _remove_scope(self, folder: str) -> DeletedScope:
        found = (self._entries.pop(path, None) for path in list(self._entries) if path.startswith(folder))
        removed = [held for held in found if held is not None]  # other threads remove entries, too
        return DeletedScope(len(removed), sum(size_of(held.content) for held in removed))

    def _stat(self, path: str) -> StoredEntry:
        return _described(path, self._found(path))

    def _list(self, folder: str, after: object) -> EntryPage:
        paths = after if isinstance(after, list) else [path for path in list(self._entries) if path.startswith(folder)]
        there = [(path, held) for path in paths[:PAGE] if (held := self._entries.get(path)) is not None]
        entries = [_described(path, held) for path, held in there if not self._is_over(held)]
        return EntryPage(entries, paths[PAGE:] or None)

    def _sweep(self, folder: str, safe_age: float) -> SweepReport:  # noqa: ARG002 - no writer leaves anything behind
        report = SweepReport()
        for path in list(self._entries):
            # Together, so that no entry is removed that was written in between.
            with self._lock.taken:
                held = self._entries.get(path) if path.startswith(folder) else None
                if held is not None and self._is_over(held):
                    self._entries.pop(path, None)
                    report += SweepReport(expired=1, bytes=size_of(held.content))
        return report

    # Nothing here waits for anything, so asynchronous callers need no worker thread.

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        return self._put_many(items)

    async def _get_async(self, path: str) -> Content:
        return self._get(path)

    async def _get_page_async(self, path: str, offset: int, limit: int) -> StorePage:
        return page_of(self._get(path), offset, limit)

    async def _remove_many_async(self, paths: Sequence[str]) -> None:
        self._remove_many(paths)

    async def _remove_scope_async(self, folder: str) -> DeletedScope:
        return self._remove_scope(folder)

    async def _stat_async(self, path: str) -> StoredEntry:
        return self._stat(path)

    async def _list_async(self, folder: str, after: object) -> EntryPage:
        return self._list(folder, after)


def _described(path: str, held: _Held) -> StoredEntry:
    kind: Kind = "text" if isinstance(held.content, str) else "binary"
    return StoredEntry(path, size_of(held.content), held.written, kind)


class _Lock:
    """A lock of which a pickled copy gets one of its own."""

    def __init__(self) -> None:
        self.taken = Lock()

    def __reduce__(self) -> tuple[type["_Lock"], tuple[()]]:
        return _Lock, ()
