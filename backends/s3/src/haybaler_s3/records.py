"""
What an object's metadata says of its content.

Objects hold the content and nothing else, so that any other tool can open them. Whether that was text or bytes, and
whether it is whole, stands in one metadata entry: an object without it is not one that haybaler wrote.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from xxhash import xxh3_64, xxh3_64_intdigest

from haybaler.errors import CorruptEntryError
from haybaler.stores.driver import Content
from haybaler.stores.inventory import Kind

METADATA = "haybaler"

_PIECE = 1024 * 1024

TEXT = "t"
BINARY = "b"
_CONTENT_TYPES = {TEXT: "text/plain; charset=utf-8", BINARY: "application/octet-stream"}
_WIDEST = {TEXT: 4, BINARY: 1}  # the most bytes of a character, and of a byte


@dataclass(frozen=True, slots=True)
class Record:
    """
    What was written.

    :param kind: `TEXT` or `BINARY`.
    :param size: The size of the object in bytes.
    :param length: The size of the content: characters of text, bytes of binary content.
    :param checksum: The XXH3 of the object's bytes.
    """

    kind: str
    size: int
    length: int
    checksum: int

    @classmethod
    def of(cls, content: Content) -> Self:
        """Return the record of `content`."""
        size, digest = 0, xxh3_64()
        for piece in pieces(content):
            size += len(piece)
            digest.update(piece)
        return cls(TEXT if isinstance(content, str) else BINARY, size, len(content), digest.intdigest())

    @classmethod
    def parse(cls, metadata: Mapping[str, str]) -> Self:
        """
        Read the record of an object.

        :param metadata: The object's own metadata; servers differ in the case of its names.
        :returns: The record.
        :raises CorruptEntryError: If there is none, or none that haybaler would write.
        """
        value = next((value for name, value in metadata.items() if name.lower() == METADATA), "")
        kind, *numbers = value.split(".")
        try:
            size, length, checksum = (int(number, base) for number, base in zip(numbers, (10, 10, 16), strict=True))
        except ValueError:
            raise corrupt() from None
        record = cls(kind, size, length, checksum)
        # Python reads numbers in more forms than one.
        if kind not in _CONTENT_TYPES or record.text != value or not length <= size <= length * _WIDEST[kind]:
            raise corrupt()
        return record

    @property
    def text(self) -> str:
        """The record as it stands in the metadata."""
        return f"{self.kind}.{self.size}.{self.length}.{self.checksum:016x}"

    @property
    def parameters(self) -> dict[str, object]:
        """What a request that creates the object says of it."""
        return {"Metadata": {METADATA: self.text}, "ContentType": _CONTENT_TYPES[self.kind]}

    @property
    def says(self) -> Kind:
        """What kind of entry it is, in the words of a listing."""
        return "text" if self.kind == TEXT else "binary"

    @property
    def fixed_width(self) -> bool:
        """Whether position i of the content is byte i of the object: binary content and ASCII text."""
        return self.size == self.length

    def content(self, chunks: Sequence[bytes]) -> Content:
        """
        Return the content of the whole object.

        :param chunks: The object's bytes, in any number of chunks.
        :returns: What was written.
        :raises CorruptEntryError: If these are not the bytes that were written.
        """
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if len(data) != self.size or xxh3_64_intdigest(data) != self.checksum:
            raise corrupt()
        if self.kind == BINARY:
            return data
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise corrupt() from error


def pieces(content: Content) -> Iterator[bytes | memoryview]:
    """
    Return the bytes of the object that holds `content`, piece by piece.

    :param content: The content.
    :returns: Pieces of a MiB, of text up to four; together they are what `encoded` returns.
    """
    for start in range(0, len(content), _PIECE):
        if isinstance(content, str):
            yield content[start : start + _PIECE].encode("utf-8", "surrogatepass")
        else:
            yield memoryview(content)[start : start + _PIECE]


def parts(content: Content, size: int) -> Iterator[bytes]:
    """
    Return the same bytes in parts of one size, as servers demand it.

    :param content: The content.
    :param size: The size of each part but the last.
    :returns: The parts, none of them made before it is asked for.
    """
    held = bytearray()
    for piece in pieces(content):
        held += piece
        while len(held) >= size:
            with memoryview(held) as view:
                part = bytes(view[:size])
            del held[:size]
            yield part
    if held:
        yield bytes(held)


def encoded(content: Content) -> bytes:
    """Return the bytes of the object that holds `content`."""
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


def corrupt() -> CorruptEntryError:
    """Return the error for an entry that is not what was written."""
    return CorruptEntryError("What is stored under the reference is not what was written.")
