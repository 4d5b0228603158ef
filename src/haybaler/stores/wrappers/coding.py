"""The base class of wrappers that store their entries in another form, such as compressed."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence

from haybaler.effects import Steps, await_effect, computed
from haybaler.errors import StoreError
from haybaler.stores import calling
from haybaler.stores.driver import Content, page_of, write_failure
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import StoreEntry, StorePage
from haybaler.stores.wrappers.base import INLINE, StoreWrapper

# How much of a batch is encoded at once, in characters or bytes: it is in memory twice until it is written.
_PART = 32 * 1024 * 1024

# What the form of an entry costs beside its length: about as much as so many characters or bytes of it.
_EACH = 1024


class CodingStore(StoreWrapper):
    """A store around one other, in which each entry has another form. A subclass knows the form."""

    @abstractmethod
    def _encoded(self, name: str, content: Content) -> Content:
        """
        Return what is stored for an entry. Called in a worker thread for long content.

        :param name: What `_name` gave for the entry.
        :param content: The content.
        :raises StoreError: If it cannot be stored.
        """

    @abstractmethod
    def _decoded(self, name: str, stored: Content) -> Content:
        """
        Return the content of an entry. Called in a worker thread for long content.

        :param name: What `_name` gave when the entry was written.
        :param stored: What stands in the wrapped store.
        :raises StoreError: If it is damaged, or cannot be read.
        """

    def _effort(self, stored: Content) -> int:
        """Return how much `_decoded` will have to work on, in characters or bytes."""
        return len(stored)

    def _name(self, key: str) -> str:  # noqa: ARG002 - for subclasses that need one
        """Return what an entry's form depends on, other than its content."""
        return ""

    def _outer(self, name: str, reference: str) -> Outcome:  # noqa: ARG002 - for subclasses that need it
        """Return the reference of an entry that has one in the wrapped store, or why it cannot be used."""
        return reference

    def _inner(self, reference: str) -> tuple[str, str]:
        """Return the entry's name, and its reference in the wrapped store."""
        return "", reference

    def _write(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        outcomes: list[Outcome] = []
        for part in _parts(entries):
            size = sum(len(entry.content) + _EACH for entry in part)
            names = [self._name(entry.key) for entry in part]
            encoded = yield from computed(self._all_encoded, part, names, size=size, inline=INLINE)
            written = iter((yield from self._write_encoded([e for e in encoded if isinstance(e, StoreEntry)])))
            for name, entry in zip(names, encoded, strict=True):
                outcome = next(written) if isinstance(entry, StoreEntry) else entry
                outcomes.append(self._outer(name, outcome) if isinstance(outcome, str) else outcome)
        return outcomes

    def _write_encoded(self, entries: list[StoreEntry]) -> Steps[list[Outcome]]:
        return (yield from await_effect(calling.write(self._first, entries))) if entries else []

    def _all_encoded(self, entries: Sequence[StoreEntry], names: Sequence[str]) -> list[StoreEntry | StoreError]:
        encoded: list[StoreEntry | StoreError] = []
        for entry, name in zip(entries, names, strict=True):
            try:
                encoded.append(StoreEntry(entry.key, self._encoded(name, entry.content)))
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
                encoded.append(write_failure(error))
        return encoded

    def _read(self, reference: str) -> Steps[Content]:
        name, inner = self._inner(reference)
        stored = yield from await_effect(calling.read(self._first, inner))
        return (yield from computed(self._decoded, name, stored, size=self._effort(stored), inline=INLINE))

    def _read_page(self, reference: str, offset: int, limit: int) -> Steps[StorePage]:
        return page_of((yield from self._read(reference)), offset, limit)


def _parts(entries: Sequence[StoreEntry]) -> Iterator[list[StoreEntry]]:
    """Yield a batch in parts of at most `_PART`, or of one entry."""
    part: list[StoreEntry] = []
    size = 0
    for entry in entries:
        if part and size + len(entry.content) > _PART:
            yield part
            part, size = [], 0
        part.append(entry)
        size += len(entry.content)
    yield part
