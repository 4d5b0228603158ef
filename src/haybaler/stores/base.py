"""The base class for stores: references, scopes, batches and errors, the same for every backend."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

from haystack.core.serialization import default_from_dict, default_to_dict

from haybaler.effects import Effect, perform, perform_async
from haybaler.errors import ConfigurationError, StoreError, mapped
from haybaler.per_loop import PerLoop
from haybaler.stores.admission import StoreAdmission
from haybaler.stores.batch import WriteBatch, single
from haybaler.stores.driver import Content, StoreDriver, page_of
from haybaler.stores.group_commit import GroupCommit
from haybaler.stores.group_writer import GroupWriter
from haybaler.stores.housekeeping import StoreHousekeeping
from haybaler.stores.lifetime import StoreLifetime
from haybaler.stores.limits import most_bytes_allowed
from haybaler.stores.names import checked_scope
from haybaler.stores.protocol import DeletedScope, StoreEntry, StorePage
from haybaler.stores.quota import LocalCount, ScopeCount
from haybaler.stores.unwritten import Contents, Unwritten


class BaseToolResultStore(StoreAdmission, StoreHousekeeping, StoreLifetime):
    """
    Base class of stores: an author fills in the private methods of `StoreDriver`, and this class does the rest.

    What a store opens lazily must live in an object that a shallow copy shares, since `scoped` makes shallow copies.
    Nothing that is bound to an event loop may be made in the constructor (see `haybaler.workers.PerLoop`).

    :param location: What every reference of the store begins with; empty for references that are only a path.
    :param group_commit: Whether, and within which bounds, asynchronous writes of many callers share batches. For a
        store with a `_put_many_async` that costs less than single writes, and depends on nothing but its arguments.
    :param max_scope_bytes: The most bytes of the contents that lie in one scope, those of the scopes inside it not
        counted; None for any number. For a store with a `_list` of its own. An entry without room is a
        `ScopeFullError`. Each process counts for itself, once a minute anew, so that several may exceed it together.
    :raises ConfigurationError: If references would become longer than 512 characters or contain control characters, or
        if there is no `_put_many_async` for the groups or no `_list` for the bound.
    """

    supports_binary_content: bool = True

    def __init_subclass__(cls) -> None:
        """Refuse a class that has neither colour of an operation when it is defined, not at its first use."""
        super().__init_subclass__()
        for colours in (("_put", "_put_async"), ("_get", "_get_async"), ("_remove", "_remove_async")):
            if not any(_overrides(cls, name) for name in colours):
                raise ConfigurationError(f"{cls.__name__} must define `{colours[0]}` or `{colours[1]}`.")

    def __init__(
        self, *, location: str = "", group_commit: GroupCommit | None = None, max_scope_bytes: int | None = None
    ) -> None:
        if group_commit is not None and not _overrides(type(self), "_put_many_async"):
            raise ConfigurationError(f"For group commit, {type(self).__name__} needs a `_put_many_async` of its own.")
        self._groups = None if group_commit is None else PerLoop(partial(GroupWriter, group_commit))
        self._max_scope_bytes = most_bytes_allowed("max_scope_bytes", max_scope_bytes)
        if max_scope_bytes is not None and not (
            _overrides(type(self), "_list") or _overrides(type(self), "_list_async")
        ):
            raise ConfigurationError(f"For `max_scope_bytes`, {type(self).__name__} needs a `_list` of its own.")
        self._scope_count: ScopeCount = LocalCount()
        self._location = location
        self._unwritten = Unwritten()
        self._enter_scope(())

    def _batch(self, entries: Sequence[StoreEntry]) -> WriteBatch:
        return WriteBatch(entries, prefix=self._prefix, folder=self._scope_path, binary=self.supports_binary_content)

    def write(self, *, key: str, content: str | bytes) -> str:
        """As `ToolResultStore.write`."""
        return single(self.write_many([StoreEntry(key, content)]))

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        """As `ToolResultStore.write_async`."""
        return single(await self.write_many_async([StoreEntry(key, content)]))

    def write_many(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """As `ToolResultStore.write_many`: outcome i belongs to entry i."""
        batch = self._batch(entries)
        try:
            return batch.outcomes(perform(self._admitted(self._scope_path, batch.items, self._put_effect)))
        except Exception as error:  # noqa: BLE001 - the contract promises outcomes
            return batch.failed(error)

    async def write_many_async(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """As `ToolResultStore.write_many_async`: outcome i belongs to entry i; raises only when cancelled."""
        batch = self._batch(entries)
        try:
            return batch.outcomes(await perform_async(self._admitted(self._scope_path, batch.items, self._put_effect)))
        except Exception as error:  # noqa: BLE001 - the contract promises outcomes
            return batch.failed(error)

    def _put_effect(self, items: Sequence[tuple[str, Content]]) -> Effect[list[StoreError | None]]:
        return Effect(lambda: self._put_many(items), lambda: self._put_in_groups_async(items))

    async def _put_in_groups_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        if self._groups is None or not items:
            return await self._put_many_async(items)
        return [*await self._groups.get().write(self._put_many_async, items, servers_of=self._servers_of)]

    def hold_entries(self, contents: Contents) -> None:
        """
        Answer reads of entries from memory, until they are released; optional for a store.

        For whoever tells others references of entries that are only being written. A wrapper answers itself.

        :param contents: Content by reference. What the holder takes out of it is read from the backend again.
        """
        self._unwritten.add(contents)

    def release_entries(self, contents: Contents) -> None:
        """
        Read entries from the backend again; optional for a store.

        :param contents: The very object that was given to `hold_entries`.
        """
        self._unwritten.remove(contents)

    def read(self, reference: str) -> Content:
        """As `ToolResultStore.read`: what was written, in type and content."""
        path = self._path(reference)
        if (held := self._unwritten.get(reference)) is not None:
            return held
        with mapped("read an entry"):
            return self._get(path)

    async def read_async(self, reference: str) -> Content:
        """As `ToolResultStore.read_async`: what was written, in type and content."""
        path = self._path(reference)
        if (held := self._unwritten.get(reference)) is not None:
            return held
        with mapped("read an entry"):
            return await self._get_async(path)

    def read_page(self, reference: str, *, offset: int = 0, limit: int) -> StorePage:
        """
        Return a part of an entry, where the backend can without fetching the rest.

        :param reference: A reference of this store and scope.
        :param offset: Where to begin, in characters (text) or bytes (binary); negative counts from the end.
        :param limit: The most characters or bytes to return.
        :returns: The part, its position and the size of the whole.
        :raises StoreError: As `read`. Damage that leaves the size as it was may go unnoticed here.
        """
        path = self._path(reference)
        if (held := self._unwritten.get(reference)) is not None:
            return page_of(held, offset, limit)
        with mapped("read an entry"):
            return self._get_page(path, offset, limit)

    async def read_page_async(self, reference: str, *, offset: int = 0, limit: int) -> StorePage:
        """
        Return a part of an entry, as `read_page` does.

        :param reference: A reference of this store and scope.
        :param offset: Where to begin, in characters (text) or bytes (binary); negative counts from the end.
        :param limit: The most characters or bytes to return.
        :returns: The part, its position and the size of the whole.
        :raises StoreError: As `read_page`.
        """
        path = self._path(reference)
        if (held := self._unwritten.get(reference)) is not None:
            return page_of(held, offset, limit)
        with mapped("read an entry"):
            return await self._get_page_async(path, offset, limit)

    def delete(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete`: all references are checked before anything is removed."""
        paths = [self._path(reference) for reference in references]
        self._unwritten.discard(references)
        self._scope_count.forget(self._scope_path)
        with mapped("delete entries"):
            self._remove_many(paths)

    async def delete_async(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete_async`: all references are checked before anything is removed."""
        paths = [self._path(reference) for reference in references]
        self._unwritten.discard(references)
        self._scope_count.forget(self._scope_path)
        with mapped("delete entries"):
            await self._remove_many_async(paths)

    def delete_scope(self) -> DeletedScope:
        """
        Remove every entry of this scope and of the scopes inside it, where the backend can; optional for a store.

        Without a scope, that is everything that the store holds. What a run writes into it meanwhile is whole or absent
        as ever, and stays, is removed as well, or fails to be written; so end the run first, also a cancelled one.

        :returns: How many entries were removed, and how many bytes.
        :raises StoreError: If the backend cannot, or failed in the middle; calling again goes on.
        """
        self._unwritten.discard_under(self._prefix)
        self._scope_count.forget(self._scope_path, inside=True)
        with mapped("delete a scope"):
            return self._remove_scope(self._scope_path)

    async def delete_scope_async(self) -> DeletedScope:
        """
        Remove every entry of this scope, as `delete_scope` does.

        :returns: How many entries were removed, and how many bytes.
        :raises StoreError: As `delete_scope`.
        """
        self._unwritten.discard_under(self._prefix)
        self._scope_count.forget(self._scope_path, inside=True)
        with mapped("delete a scope"):
            return await self._remove_scope_async(self._scope_path)

    async def close_async(self) -> None:
        """Release what was opened for the running event loop. The base class waits for writes that share batches."""
        if self._groups is not None:
            await self._groups.get().drained()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the store itself: Haystack's Pipeline deep-copies inputs, and the caller's store must get the data."""
        return self

    @classmethod
    def from_url(cls, url: str) -> Self:  # noqa: ARG003 - for classes that can
        """
        Build a store from a URL. Override it, with `haybaler.stores.url.parse_store_url`, to allow that.

        :param url: The URL; its scheme is the name of the class's entry point in the group `haybaler.stores`.
        :returns: The store.
        :raises ConfigurationError: If the URL is not one for this class. Credentials are never part of the text.
        """
        raise ConfigurationError(f"A {cls.__name__} cannot be made from a URL; call its constructor.")

    def _settings(self) -> dict[str, Any]:
        """Return the constructor's arguments, for serialization. Override it when there are any."""
        return {}

    def to_dict(self) -> dict[str, Any]:
        """As `ToolResultStore.to_dict`; the scope is part of it."""
        return {**default_to_dict(self, **self._settings()), "scope": list(self._scope)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """As `ToolResultStore.from_dict`; the scope is restored."""
        scope = data.get("scope", [])
        store = default_from_dict(cls, {key: value for key, value in data.items() if key != "scope"})
        store._enter_scope(checked_scope(scope))  # noqa: SLF001 - its own kind
        return store


def _overrides(cls: type[StoreDriver], name: str) -> bool:
    return getattr(cls, name) is not getattr(StoreDriver, name)
