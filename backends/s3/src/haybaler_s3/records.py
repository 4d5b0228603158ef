"""
What an object's metadata says of its content.

Objects hold the content and nothing else, so that any other tool can open them. Whether that was text or bytes, and
whether it is whole, stands in one metadata entry: an object without it is not one that haybaler wrote.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from zlib import crc32

from haybaler.errors import CorruptEntryError
from haybaler.stores.driver import Content

METADATA = "haybaler"

TEXT = "t"
BINARY = "b"
_CONTENT_TYPES = {TEXT: "text/plain; charset=utf-8", BINARY: "application/octet-stream"}


@dataclass(frozen=True, slots=True)
class Record:
    """
    What was written.

    :param kind: `TEXT` or `BINARY`.
    :param size: The size of the object in bytes.
    :param length: The size of the content: characters of text, bytes of binary content.
    :param checksum: The CRC-32 of the object's bytes.
    """

    kind: str
    size: int
    length: int
    checksum: int

    @classmethod
    def of(cls, content: Content, data: bytes) -> Self:
        """Return the record of `content`, whose bytes are `data`."""
        return cls(TEXT if isinstance(content, str) else BINARY, len(data), len(content), crc32(data))

    @classmethod
    def parse(cls, metadata: Mapping[str, str]) -> Self:
        """
        Read the record of an object.

        :param metadata: The object's own metadata; servers differ in the case of its names.
        :returns: The record.
        :raises CorruptEntryError: If there is none.
        """
        values = [value for name, value in metadata.items() if name.lower() == METADATA]
        fields = values[0].split(".") if values else []
        if len(fields) != 4 or fields[0] not in _CONTENT_TYPES:
            raise corrupt()
        try:
            return cls(fields[0], int(fields[1]), int(fields[2]), int(fields[3], 16))
        except ValueError:
            raise corrupt() from None

    @property
    def parameters(self) -> dict[str, object]:
        """What a request that creates the object says of it."""
        value = f"{self.kind}.{self.size}.{self.length}.{self.checksum:08x}"
        return {"Metadata": {METADATA: value}, "ContentType": _CONTENT_TYPES[self.kind]}

    @property
    def fixed_width(self) -> bool:
        """Whether position i of the content is byte i of the object: binary content and ASCII text."""
        return self.size == self.length

    def content(self, data: bytes) -> Content:
        """
        Return the content of the whole object.

        :param data: The object's bytes.
        :returns: What was written.
        :raises CorruptEntryError: If these are not the bytes that were written.
        """
        if len(data) != self.size or crc32(data) != self.checksum:
            raise corrupt()
        return self.decoded(data)

    def decoded(self, data: bytes) -> Content:
        """
        Return the content of whole characters of the object.

        :param data: Some of the object's bytes.
        :returns: Text or bytes.
        :raises CorruptEntryError: If they are no text although they should be.
        """
        if self.kind == BINARY:
            return data
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise corrupt() from error


def encoded(content: Content) -> bytes:
    """Return the bytes of the object that holds `content`."""
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


def corrupt() -> CorruptEntryError:
    """Return the error for an entry that is not what was written."""
    return CorruptEntryError("What is stored under the reference is not what was written.")
