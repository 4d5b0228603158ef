"""What a content that several entries share looks like in a store."""

import struct
from dataclasses import dataclass
from typing import Self

from haybaler.stores.wrappers.octets import corrupt

# A content is held by numbered entries. How many there may be is not written anywhere, since a number that several
# writers raise could be lowered by a late one. Instead, from the 4th, 16th, 64th... on, each also puts up a mark of
# its level, so that whoever wants to know which numbers there may be finds the highest level.
_LEVELS = 7
MOST_HOLDS = 4 ** (_LEVELS + 1)
_LAYOUT = struct.Struct(">16sI32s")


@dataclass(frozen=True, slots=True)
class Hold:
    """
    The hold that one entry has on a content.

    :param content: The content's random name, 16 bytes.
    :param number: Which of its holds it is, counted from 0.
    :param digest: The SHA-256 of the content.
    """

    content: bytes
    number: int
    digest: bytes

    def pack(self) -> bytes:
        """Return what the entry's record says of it."""
        return _LAYOUT.pack(self.content, self.number, self.digest)

    @classmethod
    def unpack(cls, data: bytes | memoryview) -> Self:
        """
        Read a record.

        :param data: What `pack` returned.
        :returns: The hold.
        :raises CorruptEntryError: If it is something else.
        """
        if len(data) != _LAYOUT.size:
            raise corrupt()
        return cls(*_LAYOUT.unpack(data))

    @property
    def content_key(self) -> str:
        """The key of the content."""
        return content_key(self.content)

    @property
    def marks(self) -> list[str]:
        """The keys of what the entry puts up beside the content: its mark, and that of its level."""
        level = max(self.number.bit_length() - 1, 0) // 2
        return [mark_key(self.content, self.number), *([_level_key(self.content, level)] if level else [])]


def content_key(content: bytes) -> str:
    """Return the key of a content."""
    return f"{content.hex()}.content"


def retired_key(content: bytes) -> str:
    """Return the key of the mark that says that a content may be about to be removed."""
    return f"{content.hex()}.retired"


def mark_key(content: bytes, number: int) -> str:
    """Return the key of the mark that says that an entry holds a content."""
    return f"{content.hex()}.held-{number}"


def level_keys(content: bytes) -> list[str]:
    """Return the keys of the marks of all levels but the lowest, which needs none, in order."""
    return [_level_key(content, level) for level in range(1, _LEVELS + 1)]


def numbers_below(levels: int) -> range:
    """
    Return which holds there may be.

    :param levels: The highest level that has a mark, or 0.
    :returns: Their numbers.
    """
    return range(4 ** (levels + 1))


def _level_key(content: bytes, level: int) -> str:
    return f"{content.hex()}.level-{level}"
