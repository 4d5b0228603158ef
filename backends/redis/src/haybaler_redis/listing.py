"""Listing the entries of a scope, and telling what one of them is, by the headers of their records."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from haybaler.effects import Steps
from haybaler.errors import CorruptEntryError, ReferenceNotFoundError, StoreUnavailableError
from haybaler.stores.inventory import EntryPage, StoredEntry
from haybaler_redis.attempts import answered, carried_out
from haybaler_redis.clients import Clients
from haybaler_redis.commands import FLUSH_COMMANDS, get_range, size_of
from haybaler_redis.exchange import nodes
from haybaler_redis.failures import mapped
from haybaler_redis.records import HEADER_BYTES, Header, corrupt
from haybaler_redis.scanning import path_in, pattern_of, process_of, scan, sorted_out

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Position:
    """
    How far a listing has come.

    :param node: The number of the server that is being asked; 0 unless it is a cluster.
    :param cursor: Where it goes on.
    :param process: What names the server's process, to which alone the cursor means something.
    """

    node: int
    cursor: int
    process: object


@dataclass(frozen=True, slots=True)
class Listing:
    """
    How entries are listed.

    :param clients: The clients.
    :param prefix: What stands before a path in every key.
    :param retries: The most further attempts of each round trip.
    """

    clients: Clients
    prefix: bytes
    retries: int

    def stat(self, key: bytes) -> Steps[StoredEntry]:
        """
        Tell what an entry is. Its time to live is not renewed.

        :param key: The key.
        :returns: The entry.
        :raises StoreError: Of the kind that fits.
        """
        (reply,) = yield from carried_out(self.clients, [get_range(key, 0, HEADER_BYTES)], retries=self.retries)
        if isinstance(reply, Exception):
            raise mapped(reply, action="look at an entry")
        if not reply:
            raise ReferenceNotFoundError("Nothing is stored under the reference.")
        described = _described(key.removeprefix(self.prefix).decode(), Header.parse(reply, key))
        if described is None:
            raise corrupt()
        return described

    def page(self, start: bytes, position: Position | None) -> Steps[EntryPage]:
        """
        List some of the entries of a scope, those of one step of the server.

        :param start: How their keys begin.
        :param position: How far the listing has come; None to begin.
        :returns: The entries, and the position after them.
        :raises StoreError: Of the kind that fits.
        """
        servers = yield from self._asked(nodes)
        at = position or Position(0, 0, (yield from self._asked(partial(process_of, servers[0]))))
        if at.node >= len(servers):
            raise _restarted()
        node = servers[at.node]
        cursor, found = yield from self._asked(partial(scan, node, at.cursor, pattern_of(start)))
        keys, _ = sorted_out(found, start)
        entries = yield from self._entries([key for key in dict.fromkeys(keys) if path_in(key, self.prefix)])
        if cursor:
            return EntryPage(entries, Position(at.node, cursor, at.process))
        if (yield from self._asked(partial(process_of, node))) != at.process:
            raise _restarted()
        if at.node + 1 == len(servers):
            return EntryPage(entries)
        following = yield from self._asked(partial(process_of, servers[at.node + 1]))
        return EntryPage(entries, Position(at.node + 1, 0, following))

    def _entries(self, keys: Sequence[bytes]) -> Steps[list[StoredEntry]]:
        entries: list[StoredEntry] = []
        for first in range(0, len(keys), FLUSH_COMMANDS):
            part = keys[first : first + FLUSH_COMMANDS]
            commands = [get_range(key, 0, HEADER_BYTES) for key in part]
            replies = yield from carried_out(self.clients, commands, retries=self.retries)
            for key, reply in zip(part, replies, strict=True):
                if reply == b"":  # removed since it was found
                    continue
                entries.append((yield from self._entry(key, reply)))
        return entries

    def _entry(self, key: bytes, reply: Any) -> Steps[StoredEntry]:
        path = key.removeprefix(self.prefix).decode()
        try:
            if isinstance(reply, Exception):
                raise mapped(reply, action="list entries")
            if described := _described(path, Header.parse(reply, key)):
                return described
        except CorruptEntryError:
            pass
        # Damaged, or something else: it is there all the same, and can be deleted.
        (size,) = yield from carried_out(self.clients, [size_of(key)], retries=self.retries)
        return StoredEntry(path, max(size - HEADER_BYTES, 0) if isinstance(size, int) else 0)

    def _asked(self, request: Any) -> Steps[Any]:
        effect = self.clients.request(request)
        return (yield from answered(self.clients, effect, retries=self.retries, action="list entries"))


def _described(path: str, header: Header) -> StoredEntry | None:
    try:
        written = _EPOCH + timedelta(milliseconds=header.written)
    except OverflowError:  # damaged
        return None
    return StoredEntry(path, header.size, written, "binary" if header.binary else "text")


def _restarted() -> StoreUnavailableError:
    return StoreUnavailableError("The server was started again while entries were listed.")
