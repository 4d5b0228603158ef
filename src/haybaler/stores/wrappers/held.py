"""Entries on their way through a wrapper, which can be read already."""

from collections.abc import Iterable, Iterator

from haybaler.stores.driver import Content
from haybaler.stores.unwritten import Contents, Unwritten

Scope = tuple[str, ...]


class HeldEntries:
    """
    What a wrapper and all its scopes hold, each for itself: no scope can tell from a reference whether it is its own.

    As in `Unwritten`, each method is made of single steps of dictionaries.
    """

    def __init__(self) -> None:
        self._batches: dict[int, tuple[Scope, Unwritten]] = {}

    def __len__(self) -> int:
        return sum(len(held) for _, held in list(self._batches.values()))

    def __reduce__(self) -> tuple[type["HeldEntries"], tuple[()]]:
        """As for `Unwritten`: nobody could tell a copy what is confirmed."""
        return HeldEntries, ()

    def add(self, scope: Scope, batch: Contents) -> None:
        """
        Hold a batch.

        :param scope: Whose it is.
        :param batch: Its contents by reference.
        """
        held = Unwritten()
        held.add(batch)
        self._batches[id(batch)] = (scope, held)

    def remove(self, batch: Contents) -> None:
        """
        Let go of a batch.

        :param batch: The very object that was added; one that is not held is passed over.
        """
        self._batches.pop(id(batch), None)

    def get(self, scope: Scope, reference: object) -> Content | None:
        """
        Return a content.

        :param scope: Who asks.
        :param reference: Its reference.
        :returns: The content, or None if it is not held there.
        """
        if self._batches:
            for held in self._of(scope):
                if (content := held.get(reference)) is not None:
                    return content
        return None

    def discard(self, scope: Scope, references: Iterable[str]) -> None:
        """
        Let go of single contents.

        :param scope: Whose they are.
        :param references: Their references; those that are not held are passed over.
        """
        for held in self._of(scope):
            held.discard(references)

    def discard_under(self, scope: Scope) -> None:
        """
        Let go of everything in a scope, and in the scopes inside it.

        :param scope: The scope.
        """
        for own, held in list(self._batches.values()):
            if own[: len(scope)] == scope:
                held.discard_under("")

    def _of(self, scope: Scope) -> Iterator[Unwritten]:
        return (held for own, held in list(self._batches.values()) if own == scope)
