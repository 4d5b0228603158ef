"""Removing entries: single ones by key, a scope by looking for its keys in small steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from haybaler.effects import Steps
from haybaler.errors import StoreUnavailableError
from haybaler.stores.protocol import DeletedScope
from haybaler_redis.attempts import answered, carried_out
from haybaler_redis.clients import Clients
from haybaler_redis.commands import BULK_KEYS, FLUSH_COMMANDS, size_of, unlink
from haybaler_redis.exchange import nodes
from haybaler_redis.failures import mapped
from haybaler_redis.records import HEADER_BYTES
from haybaler_redis.scanning import pattern_of, process_of, scan, sorted_out


@dataclass(frozen=True, slots=True)
class Removing:
    """
    How entries are removed.

    :param clients: The clients.
    :param retries: The most further attempts of each round trip.
    """

    clients: Clients
    retries: int

    def remove(self, keys: Sequence[bytes]) -> Steps[None]:
        """
        Remove entries.

        :param keys: Their keys, in any number; one that is not there counts as removed.
        :raises StoreError: If some could not be removed.
        """
        together = 1 if self.clients.clustered else BULK_KEYS
        commands = [unlink(keys[start : start + together]) for start in range(0, len(keys), together)]
        for start in range(0, len(commands), FLUSH_COMMANDS):
            part = commands[start : start + FLUSH_COMMANDS]
            for reply in (yield from carried_out(self.clients, part, retries=self.retries, writes=True)):
                if isinstance(reply, Exception):
                    raise mapped(reply, action="delete entries")

    def remove_folder(self, start: bytes) -> Steps[DeletedScope]:
        """
        Remove every entry whose key begins in one way, and what unfinished writes have staged for one.

        :param start: How the keys begin.
        :returns: What was removed; what was only staged is no entry.
        :raises StoreError: If it could not be done to the end.
        """
        pattern = pattern_of(start)
        removed = DeletedScope(0, 0)
        for node in (yield from self._asked(nodes)):
            process = yield from self._asked(partial(process_of, node))
            for _ in range(self.retries + 1):
                found = yield from self._scanned(node, pattern, start)
                removed = DeletedScope(removed.entries + found.entries, removed.bytes + found.bytes)
                begun, process = process, (yield from self._asked(partial(process_of, node)))
                if process == begun:
                    break
            else:
                raise StoreUnavailableError("The server was started again and again while a scope was removed.")
        return removed

    def _scanned(self, node: dict[str, Any], pattern: bytes, start: bytes) -> Steps[DeletedScope]:
        entries = size = cursor = 0
        while True:
            cursor, found = yield from self._asked(partial(scan, node, cursor, pattern))
            keys, staged = sorted_out(found, start)
            for first in range(0, len(keys), FLUSH_COMMANDS):
                freed = yield from self._freed(keys[first : first + FLUSH_COMMANDS])
                entries, size = entries + freed.entries, size + freed.bytes
            yield from self.remove(staged)
            if not cursor:
                return DeletedScope(entries, size)

    def _freed(self, keys: Sequence[bytes]) -> Steps[DeletedScope]:
        sizes = yield from carried_out(self.clients, [size_of(key) for key in keys], retries=self.retries)
        unlinked = [unlink([key]) for key in keys]
        removed = yield from carried_out(self.clients, unlinked, retries=self.retries, writes=True)
        for reply in removed:
            if isinstance(reply, Exception):
                raise mapped(reply, action="delete a scope")
        # What is not even a string is removed as well; it has no size.
        sized = [size if isinstance(size, int) and gone else 0 for size, gone in zip(sizes, removed, strict=True)]
        return DeletedScope(sum(removed), sum(max(size - HEADER_BYTES, 0) for size in sized))

    def _asked(self, request: Any) -> Steps[Any]:
        effect = self.clients.request(request)
        return (yield from answered(self.clients, effect, retries=self.retries, action="delete a scope"))
