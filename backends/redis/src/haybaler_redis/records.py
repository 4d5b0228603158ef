"""
What stands under a key: a header that proves what it is, and the content.

Redis knows neither text nor bytes, nor whether a value is whole, nor whose it is. The header says all that; its first
bytes suffice to read a page without the rest.
"""

import codecs
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from xxhash import xxh3_64, xxh3_64_intdigest

from haybaler.errors import CorruptEntryError
from haybaler.stores.driver import Content

_LAYOUT = struct.Struct(">3scQQQQQ")
_MAGIC = b"hb2"  # haybaler, second layout
_TEXT = b"t"
_BINARY = b"b"

HEADER_BYTES = _LAYOUT.size
# The longest string of Redis, less the header of a record.
LARGEST = 512 * 1024 * 1024 - 1024
# Text is encoded and decoded in slices of this many characters or bytes: each takes well under a millisecond, so that
# other threads get the interpreter in between.
SLICE = 1024 * 1024
_MAX_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Header:
    """
    The header of a record.

    :param binary: Whether the content is bytes; otherwise it is text in UTF-8.
    :param tag: The XXH3 of the key, so that the record of another key is not taken for this one's.
    :param checksum: The XXH3 of the content, with the tag as its seed. It costs a tenth of a CRC-32, which takes
        as long as sending the content.
    :param size: The size of the content in bytes.
    :param length: The size of the content in characters (text) or bytes.
    :param written: When it was written, in milliseconds since 1970, by the clock of whoever wrote it.
    """

    binary: bool
    tag: int
    checksum: int
    size: int
    length: int
    written: int

    @classmethod
    def parse(cls, data: bytes, key: bytes) -> Self:
        """
        Read the header of a record.

        :param data: The record, or its beginning.
        :param key: The key under which it stands.
        :returns: The header.
        :raises CorruptEntryError: If it is not the header of a record of this key.
        """
        try:
            magic, kind, tag, checksum, size, length, written = _LAYOUT.unpack_from(data)
        except struct.error as error:
            raise corrupt() from error
        widest = 1 if kind == _BINARY else _MAX_CHARACTER_BYTES
        if (
            magic != _MAGIC
            or kind not in {_TEXT, _BINARY}
            or tag != xxh3_64_intdigest(key)
            or not length <= size <= min(widest * length, LARGEST)
        ):
            raise corrupt()
        return cls(kind == _BINARY, tag, checksum, size, length, written)

    def pack(self) -> bytes:
        """Return the bytes of the header."""
        kind = _BINARY if self.binary else _TEXT
        return _LAYOUT.pack(_MAGIC, kind, self.tag, self.checksum, self.size, self.length, self.written)

    def content(self, pieces: Sequence[bytes]) -> Content:
        """
        Return the content, checked.

        :param pieces: Its bytes, cut anywhere.
        :returns: The text or the bytes that were written.
        :raises CorruptEntryError: If they are not what was written.
        """
        if _checksum(pieces, self.tag) != self.checksum or sum(map(len, pieces)) != self.size:
            raise corrupt()
        if self.binary:
            return b"".join(pieces)
        decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
        try:
            text = "".join(decoder.decode(part) for piece in pieces for part in _slices(piece))
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise corrupt() from error
        if len(text) != self.length:
            raise corrupt()
        return text


def records(items: Sequence[tuple[bytes, Content]]) -> list[tuple[bytes, tuple[bytes, bytes]]]:
    """
    Return the records of entries.

    :param items: The keys under which they are to stand, and their contents: text or bytes, a few megabytes in all.
    :returns: For each item its key, and header and content.
    """
    digest, pack, made, now = xxh3_64_intdigest, _LAYOUT.pack, [], _now()
    for key, content in items:
        if isinstance(content, str):
            data, kind = content.encode("utf-8", "surrogatepass"), _TEXT
        else:
            data, kind = content, _BINARY
        tag = digest(key)
        made.append((key, (pack(_MAGIC, kind, tag, digest(data, tag), len(data), len(content), now), data)))
    return made


def record_in_pieces(key: bytes, content: Content) -> list[bytes]:
    """
    Return the record of an entry of any size.

    :param key: The key under which it is to stand.
    :param content: Text or bytes.
    :returns: The header, then the content in pieces of at most 4 MB.
    """
    slices = _slices(content)
    pieces = [part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in slices]
    tag = xxh3_64_intdigest(key)
    size = sum(map(len, pieces))
    kind = _BINARY if isinstance(content, bytes) else _TEXT
    return [_LAYOUT.pack(_MAGIC, kind, tag, _checksum(pieces, tag), size, len(content), _now()), *pieces]


def corrupt() -> CorruptEntryError:
    """Return the error for an entry that is not what was written."""
    return CorruptEntryError("What is stored under the reference is not what was written.")


def _checksum(pieces: Sequence[bytes], tag: int) -> int:
    digest = xxh3_64(seed=tag)
    for piece in pieces:
        digest.update(piece)
    return digest.intdigest()


def _now() -> int:
    return time.time_ns() // 1_000_000


def _slices(content: Any) -> list[Any]:
    return [content[start : start + SLICE] for start in range(0, len(content), SLICE)]
