"""Which bytes of a file make a page of its content; pure, so that both colours of a read share it."""

import codecs
from typing import Any

from haybaler.stores.driver import page_start
from haybaler.stores.protocol import StorePage
from haybaler_filesystem.seals import BINARY, Seal, corrupt

CHUNK_BYTES = 256 * 1024  # one read: about a quarter of a millisecond to decode
_MAX_CHARACTER_BYTES = 4
_CONTINUATION = bytes(range(0x80, 0xC0))  # in UTF-8, the bytes that never begin a character


class PageScan:
    """
    The reads that a page needs, one after another.

    As long as `wanted` is not None, its bytes are given to `feed`; then `page` is complete. Where characters have
    different widths, a page near the end is counted from there, any other from the beginning.

    :param seal: The entry's seal.
    :param offset: Where the page begins, in characters or bytes; negative counts from the end.
    :param limit: The most characters or bytes in the page.
    """

    def __init__(self, seal: Seal, offset: int, limit: int) -> None:
        self._seal = seal
        self._start = page_start(offset, seal.length)
        self._missing = min(max(limit, 0), seal.length - self._start)
        self._position, self._skip = (self._start, 0) if seal.fixed_width else (0, self._start)
        self._tail = min((seal.length - self._start) * _MAX_CHARACTER_BYTES, seal.size)
        if seal.fixed_width or self._tail > CHUNK_BYTES:
            self._tail = 0
        self._pieces: list[Any] = []
        encoding = "ascii" if seal.fixed_width else "utf-8"
        self._decoder = codecs.getincrementaldecoder(encoding)("strict" if seal.fixed_width else "surrogatepass")

    @property
    def wanted(self) -> tuple[int, int] | None:
        """The position and the number of the bytes to be fed next; None when the page is complete."""
        if not self._missing:
            return None
        if self._tail:
            return self._seal.size - self._tail, self._tail
        most = self._missing if self._seal.fixed_width else CHUNK_BYTES
        return self._position, min(CHUNK_BYTES, most, self._seal.size - self._position)

    def feed(self, data: bytes) -> None:
        """
        Take the bytes that were wanted.

        :param data: Exactly those bytes.
        :raises CorruptEntryError: If they are fewer, or not what the seal says.
        """
        if self.wanted is None or len(data) != self.wanted[1] or not data:
            raise corrupt()
        piece = self._content(data)
        if self._tail:
            self._skip, self._tail = len(piece) - (self._seal.length - self._start), 0
            if self._skip < 0:
                raise corrupt()
        self._position += len(data)
        taken = piece[self._skip : self._skip + self._missing]
        self._skip = max(self._skip - len(piece), 0)
        self._missing -= len(taken)
        self._pieces.append(taken)

    def page(self) -> StorePage:
        """
        Return the page.

        :returns: The page, once `wanted` is None.
        """
        join = b"".join if self._seal.kind == BINARY else "".join
        return StorePage(join(self._pieces), self._start, self._seal.length)

    def _content(self, data: bytes) -> str | bytes:
        if self._seal.kind == BINARY:
            return data
        if self._tail:
            data = data.lstrip(_CONTINUATION)
        try:
            return self._decoder.decode(data)
        except UnicodeDecodeError as error:
            raise corrupt() from error
