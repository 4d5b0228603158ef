"""One batch of writes: checked before any I/O, and its outcomes put back in the order of its entries."""

from collections.abc import Sequence

from haybaler.errors import StoreError
from haybaler.stores.driver import Content, write_failure
from haybaler.stores.names import encode_name, encode_names
from haybaler.stores.protocol import StoreEntry


class WriteBatch:
    """
    A batch on its way through a store.

    Entries with equal keys are one item, with the last content: a batch never races with itself. An entry whose
    content the store cannot hold fails alone, before anything is written.

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
        self._outcomes: list[str | StoreError] = []
        self._paths: list[str | None] = []
        self._contents: dict[str, Content] = {}
        # Nearly all batches are like this; for a thousand entries, looking at each takes as long as sending them.
        if set(map(type, entries)) == {StoreEntry}:
            keys, contents = [entry.key for entry in entries], [entry.content for entry in entries]
            if set(map(type, keys)) == set(map(type, contents)) == {str}:
                names = encode_names(keys)
                self._outcomes += [prefix + name for name in names]
                paths = [folder + name for name in names]
                self._paths += paths
                self._contents.update(zip(paths, contents, strict=True))
                return
        for entry in entries:
            if (refusal := _refusal(entry, binary=binary)) is not None:
                self._outcomes.append(refusal)
                self._paths.append(None)
                continue
            name = encode_name(entry.key)
            path = folder + name
            self._outcomes.append(prefix + name)
            self._paths.append(path)
            self._contents[path] = _exact(entry.content)

    @property
    def items(self) -> list[tuple[str, Content]]:
        """What is to be written: paths, all different, and contents."""
        return list(self._contents.items())

    def outcomes(self, errors: Sequence[StoreError | None]) -> list[str | StoreError]:
        """
        Return one outcome for each entry.

        :param errors: Error i belongs to item i of `items`: None, or why it was not stored.
        :returns: Outcome i belongs to entry i: its reference, or why it was not stored.
        """
        if len(errors) == len(self._contents) and not any(errors):
            return self._outcomes.copy()
        of_path = dict(zip(self._contents, errors, strict=True))
        return [
            (of_path[path] if path is not None else None) or outcome
            for path, outcome in zip(self._paths, self._outcomes, strict=True)
        ]

    def failed(self, error: Exception) -> list[str | StoreError]:
        """
        Return the outcomes of a batch that failed as a whole.

        :param error: What stopped it.
        :returns: Outcome i belongs to entry i.
        """
        return self.outcomes([write_failure(error)] * len(self._contents))


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


def _exact(content: Content) -> Content:
    # An instance of a subclass may be mutable, or present itself as something else (an enumeration's member).
    if isinstance(content, str):
        return content if type(content) is str else str.__str__(content)
    return content if type(content) is bytes else bytes(memoryview(content))


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
