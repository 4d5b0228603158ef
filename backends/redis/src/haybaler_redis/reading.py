"""Reading an entry or a page of it, in ranges: what is not wanted is not fetched, and no reply is large."""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from haybaler.effects import Steps, computed
from haybaler.errors import ReferenceNotFoundError, StoreUnavailableError
from haybaler.stores.driver import Content, page_of
from haybaler.stores.page_scan import PageScan
from haybaler.stores.protocol import StorePage
from haybaler_redis.attempts import carried_out
from haybaler_redis.clients import Clients
from haybaler_redis.commands import Command, expire, get_range
from haybaler_redis.effort import INLINE_BYTES
from haybaler_redis.failures import mapped
from haybaler_redis.records import HEADER_BYTES, Header, corrupt

logger = logging.getLogger(__name__)

# Bytes of one reply. A reply of this size is taken apart in about a millisecond.
RANGE_BYTES = 2 * 1024 * 1024
# Bytes that come with the header when a page is wanted: most entries are not larger, and are there at once.
FIRST_BYTES = 64 * 1024
# How often a read begins anew because the entry is being replaced meanwhile.
_ATTEMPTS = 5


class _ReplacedError(Exception):
    """The entry became another one between two ranges."""


@dataclass(frozen=True, slots=True)
class Reading:
    """
    How entries are read.

    :param clients: The clients.
    :param ttl: Milliseconds that an entry lives from its last read on, or None.
    :param retries: The most further attempts of each round trip.
    """

    clients: Clients
    ttl: int | None
    retries: int

    def read(self, key: bytes) -> Steps[Content]:
        """
        Return the content of an entry, checked.

        :param key: The key.
        :returns: The content.
        :raises StoreError: Of the kind that fits.
        """
        for _ in range(_ATTEMPTS):
            header, body = yield from self._open(key, RANGE_BYTES)
            pieces = [body]
            try:
                for start in range(len(body), header.size, RANGE_BYTES):
                    size = min(RANGE_BYTES, header.size - start)
                    pieces.append((yield from self._range(key, header, start, size)))
            except _ReplacedError:
                continue
            return (yield from computed(header.content, pieces, size=header.size, inline=INLINE_BYTES))
        raise _busy()

    def page(self, key: bytes, offset: int, limit: int) -> Steps[StorePage]:
        """
        Return a part of an entry. Of a large one, only the ranges are fetched that the part needs.

        :param key: The key.
        :param offset: Where to begin, in characters or bytes; negative counts from the end.
        :param limit: The most characters or bytes.
        :returns: The part.
        :raises StoreError: Of the kind that fits.
        """
        for _ in range(_ATTEMPTS):
            header, body = yield from self._open(key, FIRST_BYTES)
            if len(body) == header.size:
                return page_of(header.content([body]), offset, limit)
            scan = PageScan(binary=header.binary, size=header.size, length=header.length, offset=offset, limit=limit)
            try:
                while scan.wanted:
                    start, size = scan.wanted
                    inside = start + size <= len(body)
                    scan.feed(
                        body[start : start + size] if inside else (yield from self._range(key, header, start, size))
                    )
            except _ReplacedError:
                continue
            return scan.page()
        raise _busy()

    def _open(self, key: bytes, size: int) -> Steps[tuple[Header, bytes]]:
        """Return the header and the first `size` bytes of the content, and let the entry live on."""
        commands = [get_range(key, 0, HEADER_BYTES + size)]
        if self.ttl is not None:
            commands.append(expire(key, self.ttl))
        data, *refreshed = yield from self._replies(commands, optional=[1])
        if isinstance(data, Exception):
            raise mapped(data, action="read an entry")
        if not data:
            raise ReferenceNotFoundError("Nothing is stored under the reference.")
        if any(isinstance(reply, Exception) for reply in refreshed):
            # A replica, or a server that cannot save: the entry can be read all the same.
            logger.warning(
                "The time to live of an entry could not be renewed.", extra={"error": type(refreshed[0]).__name__}
            )
        header = Header.parse(data, key)
        body = data[HEADER_BYTES:]
        if len(body) != min(header.size, size):
            raise corrupt()
        return header, body

    def _range(self, key: bytes, header: Header, start: int, size: int) -> Steps[bytes]:
        # The header once more, and later than the range: if it is the same, so is what lies between.
        data, again = yield from self._replies(
            [get_range(key, HEADER_BYTES + start, size), get_range(key, 0, HEADER_BYTES)]
        )
        for reply in (data, again):
            if isinstance(reply, Exception):
                raise mapped(reply, action="read an entry")
        if again != header.pack():
            raise _ReplacedError
        result: bytes = data
        if len(result) != size:  # and would be for every further range, up to a size that is not true
            raise corrupt()
        return result

    def _replies(self, commands: Sequence[Command], *, optional: Collection[int] = ()) -> Steps[list[Any]]:
        return (yield from carried_out(self.clients, commands, retries=self.retries, optional=optional))


def _busy() -> StoreUnavailableError:
    return StoreUnavailableError("Could not read an entry: it is being replaced all the time.")
