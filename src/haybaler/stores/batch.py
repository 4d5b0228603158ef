"""One batch of writes: checked before any I/O, and its outcomes put back in the order of its entries."""

from collections.abc import Sequence
from typing import Any

from haybaler.errors import StoreError
from haybaler.stores.driver import Content, write_failure
from haybaler.stores.names import encode_names
from haybaler.stores.protocol import StoreEntry


class EntryBatch:
    """
    A batch on its way to whatever stores it.

    Entries with equal keys are one, with the last content: a batch never races with itself. An entry whose content
    cannot be held fails alone, before anything is written.

    :param entries: What the caller wants to write.
    :param binary: Whether the store holds bytes.
    """

    def __init__(self, entries: Sequence[StoreEntry], *, binary: bool) -> None:
        self._keys: list[str | StoreError] = []
        self._entries: dict[str, StoreEntry] = {}
        if (keys := _keys_of_texts(entries)) is not None:
            self._keys += keys
            self._entries.update(zip(keys, entries, strict=True))
            return
        for given in entries:
            if (refusal := _refusal(given, binary=binary)) is not None:
                self._keys.append(refusal)
                continue
            entry = _exact(given)
            self._keys.append(entry.key)
            self._entries[entry.key] = entry

    @property
    def entries(self) -> list[StoreEntry]:
        """What is to be written; all keys are different."""
        return list(self._entries.values())

    def spread(self, outcomes: Sequence[str | StoreError]) -> list[str | StoreError]:
        """
        Return one outcome for each entry that the caller gave.

        :param outcomes: Outcome i belongs to entry i of `entries`.
        :returns: Outcome i belongs to entry i of the caller's.
        """
        if len(outcomes) == len(self._entries) == len(self._keys):
            return list(outcomes)
        of_key = dict(zip(self._entries, outcomes, strict=True))
        return [of_key[key] if isinstance(key, str) else key for key in self._keys]

    def failed(self, error: Exception) -> list[str | StoreError]:
        """
        Return the outcomes of a batch that failed as a whole.

        :param error: What stopped it.
        :returns: Outcome i belongs to entry i of the caller's.
        """
        return self.spread([write_failure(error)] * len(self._entries))


class WriteBatch(EntryBatch):
    """
    A batch on its way through a store that is made of paths.

    :param entries: What the caller wants to write.
    :param prefix: What stands before the name in a reference.
    :param folder: What stands before the name in a path.
    :param binary: Whether the store holds bytes.
    """

    def __init__(
        self,
        entries: Sequence[StoreEntry],
        *,
        prefix: str,
        folder: str,
        binary: bool,
    ) -> None:
        super().__init__(entries, binary=binary)
        names = encode_names(self._entries)
        self._references = [prefix + name for name in names]
        self._paths = [folder + name for name in names]

    @property
    def items(self) -> list[tuple[str, Content]]:
        """What is to be written: paths, all different, and contents."""
        return list(zip(self._paths, [entry.content for entry in self._entries.values()], strict=True))

    def outcomes(self, errors: Sequence[StoreError | None]) -> list[str | StoreError]:
        """
        Return one outcome for each entry.

        :param errors: Error i belongs to item i of `items`: None, or why it was not stored.
        :returns: Outcome i belongs to entry i: its reference, or why it was not stored.
        """
        if len(errors) == len(self._references) and not any(errors):
            return self.spread(self._references)
        return self.spread([error or reference for error, reference in zip(errors, self._references, strict=True)])


def _keys_of_texts(entries: Sequence[StoreEntry]) -> list[str] | None:
    """Return the keys of a batch of texts with nothing to refuse or to make plain; None for any other."""
    # Nearly all batches are like this; for a thousand entries, looking at each takes as long as sending them.
    if set(map(type, entries)) != {StoreEntry}:
        return None
    keys, contents = [entry.key for entry in entries], [entry.content for entry in entries]
    return keys if set(map(type, keys)) == set(map(type, contents)) == {str} else None


def _refusal(entry: object, *, binary: bool) -> StoreError | None:
    if not isinstance(entry, StoreEntry):
        return StoreError(f"An entry of a batch is a StoreEntry, not {type(entry).__name__}.")
    key: object = entry.key
    content: object = entry.content
    if not isinstance(key, str):
        return StoreError(f"A key is a string, not {type(key).__name__}.")
    if isinstance(content, str) or (binary and isinstance(content, bytes)):
        return None
    expected = "text or bytes" if binary else "text"
    return StoreError(f"The store holds {expected}, not {type(content).__name__}.")


def _exact(entry: StoreEntry) -> StoreEntry:
    if type(entry.key) is str and type(entry.content) in {str, bytes}:
        return entry
    return StoreEntry(_plain(entry.key), _plain(entry.content))


def _plain(value: Any) -> Any:
    # An instance of a subclass may be mutable, or present itself as something else (an enumeration's member).
    return str.__str__(value) if isinstance(value, str) else bytes(memoryview(value))


def single(outcomes: list[str | StoreError]) -> str:
    """
    Return the reference of a batch of one, or raise its error.

    :param outcomes: The batch's outcomes.
    :returns: The reference.
    :raises StoreError: If the entry was not stored.
    """
    if isinstance(outcomes[0], StoreError):
        raise outcomes[0]
    return outcomes[0]
