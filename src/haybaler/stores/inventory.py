"""What a store tells of what it holds: the values that pass through `list`, `stat` and `sweep`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Self

Kind = Literal["text", "binary"]


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """
    An entry as it stands in a store, without its content.

    :param reference: Its reference; between the author of a store and the base class, its path.
    :param bytes: The size of its content in bytes, of text in UTF-8, without what the backend adds.
    :param written: When it was written, in UTC; None where the store does not know. A file store with a `ttl` knows
        when the entry was last written or read.
    :param kind: Whether it is text or bytes; None where that would have to be found out entry by entry.
    """

    reference: str
    bytes: int
    written: datetime | None = None
    kind: Kind | None = None

    def at(self, location: str) -> Self:
        """Return the same entry with its reference in place of its path."""
        return replace(self, reference=location + self.reference)


@dataclass(frozen=True, slots=True)
class EntryPage:
    """
    Some of the entries of a scope.

    :param entries: The entries, in no order, with their paths as references.
    :param after: Whatever the store needs to go on, in the same process; None at the end. It holds nothing open.
    """

    entries: Sequence[StoredEntry]
    after: object = None

    def at(self, location: str) -> list[StoredEntry]:
        """Return the entries with their references in place of their paths."""
        return [entry.at(location) for entry in self.entries]


@dataclass(frozen=True, slots=True)
class SweepReport:
    """
    What a sweep removed.

    :param expired: Entries whose time to live was over.
    :param leftovers: Things that no entry needs, left behind by writers that were killed: temporary files and seals,
        staged values, unfinished uploads.
    :param bytes: The size of all that, as far as the backend tells.
    :param elsewhere: Whether another sweep of the same scope was at work, and this one left it to it.
    """

    expired: int = 0
    leftovers: int = 0
    bytes: int = 0
    elsewhere: bool = False

    def __add__(self, other: "SweepReport") -> "SweepReport":
        return SweepReport(
            self.expired + other.expired,
            self.leftovers + other.leftovers,
            self.bytes + other.bytes,
            self.elsewhere or other.elsewhere,
        )
