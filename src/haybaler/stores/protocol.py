"""What callers may expect of a store: the protocol, and the values that pass through it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from haystack.hooks.tool_result_offloading.types import ToolResultStore as HaystackToolResultStore

from haybaler.errors import StoreError


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """
    One thing to be written.

    :param key: Any string. Equal keys mean the same entry, different keys never meet.
    :param content: Text, or bytes for a store that supports binary content. Left out of the `repr`.
    """

    key: str
    content: str | bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StorePage:
    """
    A part of an entry.

    :param content: The part itself: a string of a text entry, bytes of a binary one. Left out of the `repr`.
    :param offset: Where the part begins, counted from 0 in characters (text) or bytes (binary).
    :param total: The size of the whole entry in the same unit.
    """

    content: str | bytes = field(repr=False)
    offset: int
    total: int


@dataclass(frozen=True, slots=True)
class DeletedScope:
    """
    What the removal of a scope freed.

    :param entries: How many entries were removed.
    :param bytes: The size of their contents, without what the backend adds.
    """

    entries: int
    bytes: int


class ToolResultStore(Protocol):
    """
    Where tool results live outside the conversation.

    A reference is a short string that only the store interprets; it is known before anything is written. Every
    method with I/O has a synchronous form and a native asynchronous one (`_async`).
    """

    supports_binary_content: bool

    def reference(self, key: str) -> str:
        """
        Return the reference that writing under `key` yields. Pure: no I/O, the same answer every time.

        :param key: Any string.
        :returns: A string of at most 512 characters without control characters.
        """
        ...

    def write(self, *, key: str, content: str | bytes) -> str:
        """
        Store `content` under `key`, whole or not at all; what stood there before is replaced.

        :param key: Any string.
        :param content: Text (any `str`, lone surrogates included) or bytes.
        :returns: `reference(key)`.
        :raises StoreError: If the entry was not stored.
        """
        ...

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        """
        Store `content` under `key`, as `write` does.

        :param key: Any string.
        :param content: Text or bytes.
        :returns: `reference(key)`.
        :raises StoreError: If the entry was not stored.
        """
        ...

    def write_many(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """
        Store many entries, as cheaply as the backend can. One bad entry never spoils its neighbours.

        :param entries: The entries, in any number; of entries with equal keys the last one stands.
        :returns: One outcome for each entry; outcome i belongs to entry i: its reference, or why it was not stored.
        """
        ...

    async def write_many_async(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """
        Store many entries concurrently, within the store's bounds. Raises only when it is cancelled.

        :param entries: The entries, in any number; of entries with equal keys the last one stands.
        :returns: One outcome for each entry; outcome i belongs to entry i: its reference, or why it was not stored.
        """
        ...

    def read(self, reference: str) -> str | bytes:
        """
        Return what was written, in type and content.

        :param reference: A reference of this store and scope.
        :returns: The text or the bytes.
        :raises InvalidReferenceError: If the reference does not belong to this store and scope.
        :raises ReferenceNotFoundError: If nothing is stored under it.
        :raises CorruptEntryError: If what is stored is damaged.
        :raises StoreUnavailableError: If the store cannot be reached.
        """
        ...

    async def read_async(self, reference: str) -> str | bytes:
        """
        Return what was written, as `read` does.

        :param reference: A reference of this store and scope.
        :returns: The text or the bytes.
        :raises StoreError: As `read`.
        """
        ...

    def delete(self, references: Sequence[str]) -> None:
        """
        Remove entries. An entry that is not there counts as removed.

        :param references: References of this store and scope.
        :raises InvalidReferenceError: If one of them does not belong here; nothing is removed then.
        :raises StoreError: If an entry could not be removed.
        """
        ...

    async def delete_async(self, references: Sequence[str]) -> None:
        """
        Remove entries, as `delete` does.

        :param references: References of this store and scope.
        :raises StoreError: As `delete`.
        """
        ...

    def scoped(self, scope: str) -> "ToolResultStore":
        """
        Return a store of its own inside this one, sharing its clients. Scopes nest.

        Entries of one scope can be read, replaced and deleted through that scope only, not even through the store
        that contains it.

        :param scope: Any string, for example "user-7/run-42"; `scoped("a/b")` is `scoped("a").scoped("b")`.
        :returns: The store of that scope.
        :raises ConfigurationError: If it is no string, or references would become too long.
        """
        ...

    def warm_up(self) -> None:
        """Open what can be opened early. Optional: the first use opens it as well."""
        ...

    async def warm_up_async(self) -> None:
        """Open what can be opened early, for the running event loop."""
        ...

    def close(self) -> None:
        """Release what synchronous callers opened. May be called again; the next use reopens."""
        ...

    async def close_async(self) -> None:
        """Release what was opened for the running event loop. May be called again; the next use reopens."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the store's settings.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        ...

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a store with the same settings.

        :param data: What `to_dict` returned.
        :returns: The store.
        """
        ...


class AsyncToolResultStore(Protocol):
    """The least that a store of somebody's own needs where an Agent only runs asynchronously."""

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        """
        Store `content` under `key`.

        :param key: A file name of at most 100 ASCII characters, different for every result.
        :param content: Text, or bytes if the store has an attribute `supports_binary_content` that is true.
        :returns: The reference.
        """
        ...

    async def read_async(self, reference: str) -> str | bytes:
        """
        Return what was written.

        :param reference: What `write_async` returned.
        :returns: The text or the bytes.
        """
        ...


# What hooks, compactors and the toolset take.
AnyToolResultStore = ToolResultStore | HaystackToolResultStore | AsyncToolResultStore
