"""Entries that are on their way into a store, so that reading never depends on how far their write has come."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from haybaler.stores.driver import Content


class Unwritten:
    """
    Contents by name, a reference or a path, from before their write begins until it is confirmed.

    Each method is one step of a dictionary, so threads and event loops may share an object.
    """

    def __init__(self) -> None:
        self._contents: dict[str, Content] = {}

    def __len__(self) -> int:
        return len(self._contents)

    def add(self, contents: Mapping[str, Content]) -> None:
        """
        Hold contents.

        :param contents: Content by name; one that is held already is replaced.
        """
        self._contents.update(contents)

    def discard(self, names: Iterable[str]) -> None:
        """
        Let go of contents.

        :param names: Their names; those that are not held are passed over.
        """
        for name in names:
            self._contents.pop(name, None)

    def discard_folder(self, folder: str) -> None:
        """
        Let go of every content whose name begins in a certain way.

        :param folder: What the names begin with.
        """
        self.discard([name for name in list(self._contents) if name.startswith(folder)])

    def get(self, name: object) -> Content | None:
        """
        Return a content.

        :param name: Its name.
        :returns: The content, or None if it is not held.
        """
        return self._contents.get(name) if isinstance(name, str) else None


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
