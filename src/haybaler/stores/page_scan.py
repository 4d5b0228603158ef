"""Which bytes of a stored entry make a page of its content; pure, so that both colours of a read share it."""

import codecs
from typing import Any

from haybaler.errors import CorruptEntryError
from haybaler.stores.driver import page_start
from haybaler.stores.protocol import StorePage

CHUNK_BYTES = 256 * 1024  # one read: about a quarter of a millisecond to decode
_MAX_CHARACTER_BYTES = 4
_CONTINUATION = bytes(range(0x80, 0xC0))  # in UTF-8, the bytes that never begin a character


class PageScan:
    """
    The reads that a page needs, one after another.

    As long as `wanted` is not None, its bytes are given to `feed`; then `page` is complete. Where characters have
    different widths, a page near the end is counted from there, any other from the beginning.

    :param binary: Whether the content is bytes; otherwise it is text in UTF-8, lone surrogates included.
    :param size: The size of the content in bytes.
    :param length: The size of the content in characters or bytes.
    :param offset: Where the page begins, in characters or bytes; negative counts from the end.
    :param limit: The most characters or bytes in the page.
    :raises CorruptEntryError: If no content has both sizes.
    """

    def __init__(self, *, binary: bool, size: int, length: int, offset: int, limit: int) -> None:
        if not length <= size <= length * (1 if binary else _MAX_CHARACTER_BYTES):
            raise _corrupt()
        self._binary = binary
        self._size = size
        self._length = length
        self._start = page_start(offset, length)
        self._missing = min(max(limit, 0), length - self._start)
        self._fixed_width = size == length  # position i of the content is byte i
        self._position, self._skip = (self._start, 0) if self._fixed_width else (0, self._start)
        self._tail = min((length - self._start) * _MAX_CHARACTER_BYTES, size)
        if self._fixed_width or self._tail > CHUNK_BYTES:
            self._tail = 0
        self._pieces: list[Any] = []
        encoding = "ascii" if self._fixed_width else "utf-8"
        self._decoder = codecs.getincrementaldecoder(encoding)("strict" if self._fixed_width else "surrogatepass")

    @property
    def wanted(self) -> tuple[int, int] | None:
        """The position and the number of the bytes to be fed next; None when the page is complete."""
        if not self._missing:
            return None
        if self._tail:
            return self._size - self._tail, self._tail
        most = self._missing if self._fixed_width else (self._skip + self._missing) * _MAX_CHARACTER_BYTES
        return self._position, min(CHUNK_BYTES, most, self._size - self._position)

    def feed(self, data: bytes) -> None:
        """
        Take the bytes that were wanted.

        :param data: Exactly those bytes.
        :raises CorruptEntryError: If they are fewer, or not what the sizes say.
        """
        if self.wanted is None or len(data) != self.wanted[1] or not data:
            raise _corrupt()
        piece = self._content(data)
        if self._tail:
            self._skip, self._tail = len(piece) - (self._length - self._start), 0
            if self._skip < 0:
                raise _corrupt()
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
        join = b"".join if self._binary else "".join
        return StorePage(join(self._pieces), self._start, self._length)

    def _content(self, data: bytes) -> str | bytes:
        if self._binary:
            return data
        if self._tail:
            data = data.lstrip(_CONTINUATION)
        try:
            return self._decoder.decode(data)
        except UnicodeDecodeError as error:
            raise _corrupt() from error


def _corrupt() -> CorruptEntryError:
    return CorruptEntryError("What is stored under the reference is not what was written.")
