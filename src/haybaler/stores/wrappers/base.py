"""The base class of wrappers: everything is passed on, so that a wrapper is only its idea."""

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Self, TypeVar

from haystack.core.serialization import default_from_dict, default_to_dict

from haybaler.effects import Effect, Steps, await_effect, perform, perform_async
from haybaler.errors import StoreError
from haybaler.interop import optional_method
from haybaler.serialization import deserialize_parts, serialized
from haybaler.stores import calling
from haybaler.stores.batch import EntryBatch, single
from haybaler.stores.driver import Content, page_of
from haybaler.stores.housekeeping import SAFE_AGE, checked_age
from haybaler.stores.inventory import SweepReport
from haybaler.stores.lifetime import StoreLifetime
from haybaler.stores.names import encode_scope
from haybaler.stores.outcomes import Outcome, has
from haybaler.stores.protocol import DeletedScope, StoreEntry, StorePage
from haybaler.stores.unwritten import Contents
from haybaler.stores.wrappers.held import HeldEntries, Scope
from haybaler.stores.wrappers.passing_on import where_stores_have

R = TypeVar("R")

# Up to this many characters or bytes in all, compressing, encrypting or summing up takes less than two milliseconds,
# also for the slowest of them.
INLINE = 32 * 1024


class StoreWrapper(StoreLifetime):
    """
    A store around other stores. It has the references of the first one.

    A subclass overrides the private methods that its idea is about; each is a generator of effects, so that both
    colours share it. The wrapped stores may be anybody's, in any colour: what they lack, the wrapper lacks as well.

    :param stores: The wrapped stores, in the order of the class's `parts`.
    """

    parts: ClassVar[tuple[str, ...]] = ("store",)
    """The names of the constructor's parameters, and of the attributes, that are the wrapped stores."""

    def __init__(self, *stores: Any) -> None:
        for name, store in zip(self.parts, stores, strict=True):
            setattr(self, name, store)
        self._lacks: dict[tuple[str, ...], str | None] = {}
        self._scope: Scope = ()
        self._held = HeldEntries()  # with all scopes
        self.supports_binary_content = all(getattr(store, "supports_binary_content", False) for store in stores)

    @property
    def wrapped(self) -> list[Any]:
        """The wrapped stores."""
        return [getattr(self, name) for name in self.parts]

    def lack_of(self, *names: str) -> str | None:
        """
        Tell whether a wrapped store lacks a method.

        :param names: The methods' names, without `_async`.
        :returns: The first one that is missing, as a sentence; None if every store has them all.
        """
        if names not in self._lacks:  # towers would ask each other for ever
            lacking = ((store, name) for store in self.wrapped for name in names if not has(store, name))
            lack = next(lacking, None)
            self._lacks[names] = f"{type(lack[0]).__name__} has no `{lack[1]}`." if lack else None
        return self._lacks[names]

    @property
    def _first(self) -> Any:
        return getattr(self, self.parts[0])

    # What a subclass may override

    def _through(self, effect: Effect[R]) -> Steps[R]:
        """Have one operation of the wrapped store carried out, other than a batch of writes."""
        return (yield from await_effect(effect))

    def _write(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        """Write entries with different keys and contents that can be held; outcome i belongs to entry i."""
        return (yield from await_effect(calling.write(self._first, entries)))

    def _read(self, reference: str) -> Steps[Content]:
        return (yield from self._through(calling.read(self._first, reference)))

    def _read_page(self, reference: str, offset: int, limit: int) -> Steps[StorePage]:
        return (yield from self._through(calling.read_page(self._first, reference, offset, limit)))

    def _delete(self, references: Sequence[str]) -> Steps[None]:
        yield from self._through(calling.delete(self._first, references))

    def _delete_scope(self) -> Steps[DeletedScope]:
        removed = yield from self._of_each(calling.delete_scope)
        return DeletedScope(sum(part.entries for part in removed), sum(part.bytes for part in removed))

    def _sweep(self, safe_age: float | timedelta) -> Steps[SweepReport]:
        seconds = checked_age(safe_age)
        reports = yield from self._of_each(lambda store: calling.sweep(store, seconds))
        return sum(reports, SweepReport())

    def _of_each(self, operation: Callable[[Any], Effect[R]]) -> Steps[list[R]]:
        """Have something done with each wrapped store, also after one that fails; then its error is raised."""
        results: list[R] = []
        errors: list[StoreError] = []
        for store in self.wrapped:
            try:
                results.append((yield from self._through(operation(store))))
            except StoreError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return results

    def _warm_up(self) -> Steps[None]:
        for store in self.wrapped:
            yield from self._through(calling.warm_up(store))

    def _close(self) -> Steps[None]:
        errors: list[Exception] = []
        for store in self.wrapped:
            try:
                yield from await_effect(optional_method(store, "close"))
            except Exception as error:  # noqa: BLE001 - the others are closed first
                errors.append(error)
        if errors:
            raise errors[0]

    def _settings(self) -> dict[str, Any]:
        """Return the constructor's other arguments, for serialization."""
        return {}

    # What callers see

    @where_stores_have("reference")
    def reference(self, key: str) -> str:
        """As `ToolResultStore.reference`: pure, known before anything is written."""
        reference: str = self._first.reference(key)
        return reference

    @where_stores_have("scoped")
    def scoped(self, scope: str) -> Self:
        """As `ToolResultStore.scoped`: the same wrapper around that scope of the wrapped stores."""
        inner = copy.copy(self)
        for name in self.parts:
            setattr(inner, name, getattr(self, name).scoped(scope))
        inner._scope = (*self._scope, *encode_scope(scope))  # noqa: SLF001 - its own kind
        return inner

    # Entries that are only being written are known here, above whatever becomes of them below: below, they might be
    # encrypted, or in another store.

    def hold_entries(self, contents: Contents) -> None:
        """As `BaseToolResultStore.hold_entries`."""
        self._held.add(self._scope, contents)

    def release_entries(self, contents: Contents) -> None:
        """As `BaseToolResultStore.release_entries`."""
        self._held.remove(contents)

    def _current(self, reference: str) -> Steps[Content]:
        held = self._held.get(self._scope, reference)
        return held if held is not None else (yield from self._read(reference))

    def _current_page(self, reference: str, offset: int, limit: int) -> Steps[StorePage]:
        held = self._held.get(self._scope, reference)
        if held is not None:
            return page_of(held, offset, limit)
        return (yield from self._read_page(reference, offset, limit))

    def _removed(self, references: Sequence[str]) -> Steps[None]:
        references = list(references)
        yield from self._delete(references)
        self._held.discard(self._scope, references)

    def _removed_scope(self) -> Steps[DeletedScope]:
        self._held.discard_under(self._scope)
        return (yield from self._delete_scope())

    def _outcomes(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        batch = EntryBatch(entries, binary=self.supports_binary_content)
        try:
            return batch.spread((yield from self._write(batch.entries)) if batch.entries else [])
        except Exception as error:  # noqa: BLE001 - the contract promises outcomes
            return batch.failed(error)

    def write(self, *, key: str, content: Content) -> str:
        """As `ToolResultStore.write`."""
        return single(self.write_many([StoreEntry(key, content)]))

    async def write_async(self, *, key: str, content: Content) -> str:
        """As `ToolResultStore.write_async`."""
        return single(await self.write_many_async([StoreEntry(key, content)]))

    def write_many(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """As `ToolResultStore.write_many`: outcome i belongs to entry i."""
        return perform(self._outcomes(entries))

    async def write_many_async(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """As `ToolResultStore.write_many_async`: outcome i belongs to entry i; raises only when cancelled."""
        return await perform_async(self._outcomes(entries))

    def read(self, reference: str) -> Content:
        """As `ToolResultStore.read`: what was written, in type and content."""
        return perform(self._current(reference))

    async def read_async(self, reference: str) -> Content:
        """As `ToolResultStore.read_async`: what was written, in type and content."""
        return await perform_async(self._current(reference))

    def read_page(self, reference: str, *, offset: int = 0, limit: int) -> StorePage:
        """As `BaseToolResultStore.read_page`."""
        return perform(self._current_page(reference, offset, limit))

    async def read_page_async(self, reference: str, *, offset: int = 0, limit: int) -> StorePage:
        """As `BaseToolResultStore.read_page_async`."""
        return await perform_async(self._current_page(reference, offset, limit))

    @where_stores_have("delete")
    def delete(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete`."""
        perform(self._removed(references))

    @where_stores_have("delete")
    async def delete_async(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete_async`."""
        await perform_async(self._removed(references))

    @where_stores_have("delete_scope")
    def delete_scope(self) -> DeletedScope:
        """As `BaseToolResultStore.delete_scope`; counted as the wrapped stores do."""
        return perform(self._removed_scope())

    @where_stores_have("delete_scope")
    async def delete_scope_async(self) -> DeletedScope:
        """As `BaseToolResultStore.delete_scope_async`; counted as the wrapped stores do."""
        return await perform_async(self._removed_scope())

    @where_stores_have("sweep")
    def sweep(self, *, safe_age: float | timedelta = SAFE_AGE) -> SweepReport:
        """As `StoreHousekeeping.sweep`; counted as the wrapped stores do. To list and stat, ask these."""
        return perform(self._sweep(safe_age))

    @where_stores_have("sweep")
    async def sweep_async(self, *, safe_age: float | timedelta = SAFE_AGE) -> SweepReport:
        """As `StoreHousekeeping.sweep_async`; counted as the wrapped stores do."""
        return await perform_async(self._sweep(safe_age))

    def warm_up(self) -> None:
        """As `ToolResultStore.warm_up`."""
        perform(self._warm_up())

    async def warm_up_async(self) -> None:
        """As `ToolResultStore.warm_up_async`."""
        await perform_async(self._warm_up())

    def close(self) -> None:
        """As `ToolResultStore.close`."""
        perform(self._close())

    async def close_async(self) -> None:
        """As `ToolResultStore.close_async`."""
        await perform_async(self._close())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the store itself, as every store does."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """As `ToolResultStore.to_dict`; the wrapped stores, their scope included, are part of it."""
        stores = {name: serialized(getattr(self, name), "wrapped store") for name in self.parts}
        return default_to_dict(self, **stores, **self._settings())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """As `ToolResultStore.from_dict`."""
        data = {**data, "init_parameters": dict(data.get("init_parameters", {}))}
        deserialize_parts(data, *cls.parts)
        return default_from_dict(cls, data)
