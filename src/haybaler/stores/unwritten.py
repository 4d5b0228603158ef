"""Entries that are on their way into a store, so that reading never depends on how far their write has come."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from haybaler.stores.driver import Content

Contents = dict[str, Content]  # by reference


class Unwritten:
    """
    What is held in memory from before its write begins until it is confirmed, one dictionary for each batch.

    Taking a batch in and out costs the same whatever its size. Each method is made of single steps of dictionaries, so
    threads and event loops may share an object.
    """

    def __init__(self) -> None:
        self._batches: dict[int, Contents] = {}

    def __len__(self) -> int:
        return sum(map(len, list(self._batches.values())))

    def __reduce__(self) -> tuple[type["Unwritten"], tuple[()]]:
        """Nobody could tell a copy, in another process perhaps, what is confirmed."""
        return Unwritten, ()

    def add(self, batch: Contents) -> None:
        """
        Hold a batch.

        :param batch: Its contents. Whoever adds it takes out what is confirmed.
        """
        self._batches[id(batch)] = batch

    def remove(self, batch: Contents) -> None:
        """
        Let go of a batch.

        :param batch: The very object that was added; one that is not held is passed over.
        """
        self._batches.pop(id(batch), None)

    def discard(self, references: Iterable[str]) -> None:
        """
        Let go of single contents.

        :param references: Their references; those that are not held are passed over.
        """
        if self._batches:
            for reference in references:
                for batch in list(self._batches.values()):
                    batch.pop(reference, None)

    def discard_under(self, prefix: str) -> None:
        """
        Let go of every content whose reference begins in a certain way.

        :param prefix: What the references begin with.
        """
        for batch in list(self._batches.values()):
            self.discard([reference for reference in list(batch) if reference.startswith(prefix)])

    def get(self, reference: object) -> Content | None:
        """
        Return a content.

        :param reference: Its reference.
        :returns: The content, or None if it is not held.
        """
        if isinstance(reference, str):
            for batch in list(self._batches.values()):
                if (content := batch.get(reference)) is not None:
                    return content
        return None


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """
    Stands for a store where one entry of it is read that is held.

    :param content: The entry. Left out of the `repr`, as everywhere.
    """

    content: Content = field(repr=False)

    def read(self, reference: str) -> Content:  # noqa: ARG002 - the one entry
        """As `ToolResultStore.read`."""
        return self.content

    async def read_async(self, reference: str) -> Content:  # noqa: ARG002 - the one entry
        """As `ToolResultStore.read_async`."""
        return self.content
