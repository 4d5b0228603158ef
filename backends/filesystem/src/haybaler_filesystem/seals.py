"""
What the name of a seal says about an entry.

A file says nothing about itself: neither whether it was text or bytes, nor whether it is whole. So each write leaves a
second directory entry, whose name states all that. It is made before the entry appears and never changes.
"""

from dataclasses import dataclass
from typing import Self

from xxhash import xxh3_64_intdigest

from haybaler.errors import CorruptEntryError
from haybaler.stores.driver import Content
from haybaler.stores.inventory import Kind

TEXT = "t"
BINARY = "b"
UNLINKED = 0  # stands for the inode where the file system has no hard links

_FIELDS = 5
_MAX_CHARACTER_BYTES = 4


@dataclass(frozen=True, slots=True)
class Seal:
    """
    One write of one entry.

    :param name: The name of the entry.
    :param kind: `TEXT` or `BINARY`.
    :param size: The size of the file in bytes.
    :param length: The size of the content: characters of text, bytes of binary content.
    :param checksum: The XXH3 of the bytes of the file, as `xxhsum -H3` prints it.
    :param inode: The file's inode number, so that no two files that exist have the same seal; `UNLINKED` if it says
        nothing.
    """

    name: str
    kind: str
    size: int
    length: int
    checksum: int
    inode: int

    @classmethod
    def of(cls, name: str, content: Content, data: bytes, inode: int) -> Self:
        """Return the seal of `content`, whose bytes are `data`."""
        kind = TEXT if isinstance(content, str) else BINARY
        return cls(name, kind, len(data), len(content), xxh3_64_intdigest(data), inode)

    @classmethod
    def parse(cls, file_name: str) -> Self | None:
        """Return the seal that has this file name, or None where something else has it."""
        name, *fields = file_name.rsplit(".", _FIELDS)
        if len(fields) != _FIELDS or fields[0] not in {TEXT, BINARY}:
            return None
        kind, size, length, checksum, inode = fields
        try:
            seal = cls(name, kind, int(size), int(length), int(checksum, 16), int(inode, 16))
        except ValueError:
            return None
        # Python reads numbers in more forms than one; and the sizes have to be those of some content.
        widest = _MAX_CHARACTER_BYTES if kind == TEXT else 1
        return seal if seal.file_name == file_name and seal.length <= seal.size <= widest * seal.length else None

    @property
    def says(self) -> Kind:
        """What kind of entry it is, in the words of a listing."""
        return "text" if self.kind == TEXT else "binary"

    @property
    def file_name(self) -> str:
        """The name of the seal's directory entry."""
        return f"{self.name}.{self.kind}.{self.size}.{self.length}.{self.checksum:016x}.{self.inode:x}"


def encoded(content: Content) -> bytes:
    """Return the bytes of the file that holds `content`."""
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content


def decoded(data: bytes, kind: str) -> Content:
    """
    Return the content of a file, the inverse of `encoded`.

    :param data: The bytes of the file.
    :param kind: `TEXT` or `BINARY`.
    :returns: The content.
    :raises CorruptEntryError: If text was expected and the bytes are not UTF-8.
    """
    if kind == BINARY:
        return data
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise corrupt() from error


def corrupt() -> CorruptEntryError:
    """Return the error for an entry that is not what was written."""
    return CorruptEntryError("What is stored under the reference is not what was written.")
