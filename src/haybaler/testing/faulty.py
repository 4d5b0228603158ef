"""A store that fails, waits and hangs by a script, for tests of whatever uses a store."""

import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar, cast

from haystack.core.serialization import default_from_dict, default_to_dict

from haybaler.errors import StoreError
from haybaler.gates import Gate
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.lifetime import StoreLifetime
from haybaler.stores.protocol import DeletedScope, StoreEntry, ToolResultStore
from haybaler.stores.unwritten import Contents
from haybaler.stores.writing import hold_contents, release_contents
from haybaler.testing.access import drive
from haybaler.testing.faults import Fault, Script
from haybaler.workers import map_bounded

T = TypeVar("T")

_PASSED_ON = {"list", "list_async", "stat", "stat_async", "sweep", "sweep_async", "scope_of"}


class FaultyStore(StoreLifetime):
    """
    A wrapper around any store that makes single operations fail, wait or hang.

    Each entry of a batch is one write; the entries of a batch are written at most `limit` at a time (asynchronous) or
    one after another (synchronous).

    ```python
    store = FaultyStore(InMemoryToolResultStore(), writes={2: Fault(error=StoreUnavailableError("down"))})
    store.write(key="a", content="first")   # works
    store.write(key="b", content="second")  # raises StoreUnavailableError
    store.write(key="b", content="third")   # works
    ```

    :param store: The store to wrap.
    :param writes: The fault of the n-th write, counted from 1.
    :param reads: The fault of the n-th read, counted from 1.
    :param every_write: The fault of every other write.
    :param every_read: The fault of every other read.
    :param limit: The most writes of one batch in flight.
    """

    def __init__(
        self,
        store: ToolResultStore,
        *,
        writes: Mapping[int, Fault] | None = None,
        reads: Mapping[int, Fault] | None = None,
        every_write: Fault | None = None,
        every_read: Fault | None = None,
        limit: int = 16,
    ) -> None:
        self.store = store
        self.supports_binary_content = store.supports_binary_content
        self._limit = limit
        self._script = Script(
            writes=writes or {},
            reads=reads or {},
            every_write=every_write or Fault(),
            every_read=every_read or Fault(),
        )

    @property
    def calls(self) -> Counter[str]:
        """How often each method was called, by its name; also those that are passed on as they are."""
        return self._script.calls

    @property
    def in_flight(self) -> int:
        """How many reads and writes have begun and not ended, in all scopes."""
        return self._script.in_flight

    @property
    def most_in_flight(self) -> int:
        """The most reads and writes that were in flight at once."""
        return self._script.most_in_flight

    @property
    def hanging(self) -> Gate:
        """Open from the moment when the first operation hangs."""
        return self._script.hanging

    def release(self) -> None:
        """Let everything go on that hangs; nothing hangs any more."""
        self._script.released.open()

    def reference(self, key: str) -> str:
        """As `ToolResultStore.reference`."""
        return self.store.reference(key)

    def hold_entries(self, contents: Contents) -> None:
        """As `BaseToolResultStore.hold_entries`, where the wrapped store has it."""
        hold_contents(self.store, contents)

    def release_entries(self, contents: Contents) -> None:
        """As `BaseToolResultStore.release_entries`, where the wrapped store has it."""
        release_contents(self.store, contents)

    def write(self, *, key: str, content: str | bytes) -> str:
        """As `ToolResultStore.write`, with the fault of this write."""
        return drive(
            self._operate("write", partial(_called, self.store.write, key=key, content=content), self._script.pause)
        )

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        """As `ToolResultStore.write_async`, with the fault of this write."""
        return await self._operate(
            "write_async", partial(self.store.write_async, key=key, content=content), self._script.pause_async
        )

    def write_many(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """As `ToolResultStore.write_many`; each entry is one write with its own fault."""
        self._script.count("write_many")
        return [
            drive(_outcome(partial(_called, self.write, key=entry.key, content=entry.content))) for entry in entries
        ]

    async def write_many_async(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """As `ToolResultStore.write_many_async`; each entry is one write with its own fault."""
        self._script.count("write_many_async")

        async def write(entry: StoreEntry) -> str | StoreError:
            return await _outcome(partial(self.write_async, key=entry.key, content=entry.content))

        return await map_bounded(write, entries, limit=self._limit)

    def read(self, reference: str) -> str | bytes:
        """As `ToolResultStore.read`, with the fault of this read."""
        return drive(self._operate("read", partial(_called, self.store.read, reference), self._script.pause))

    async def read_async(self, reference: str) -> str | bytes:
        """As `ToolResultStore.read_async`, with the fault of this read."""
        return await self._operate("read_async", partial(self.store.read_async, reference), self._script.pause_async)

    def delete(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete`; passed on."""
        self._script.count("delete")
        self.store.delete(references)

    async def delete_async(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete_async`; passed on."""
        self._script.count("delete_async")
        await self.store.delete_async(references)

    def delete_scope(self) -> DeletedScope:
        """As `BaseToolResultStore.delete_scope`; passed on to a store that has it."""
        self._script.count("delete_scope")
        return cast("BaseToolResultStore", self.store).delete_scope()

    async def delete_scope_async(self) -> DeletedScope:
        """As `BaseToolResultStore.delete_scope_async`; passed on to a store that has it."""
        self._script.count("delete_scope_async")
        return await cast("BaseToolResultStore", self.store).delete_scope_async()

    def __getattr__(self, name: str) -> Any:
        """Pass on what only some stores have, such as `list`, `stat` and `sweep`."""
        if name not in _PASSED_ON:
            raise AttributeError(name)
        found = getattr(self.store, name)
        self._script.count(name)
        return found

    def scoped(self, scope: str) -> Self:
        """As `ToolResultStore.scoped`; the scope shares the script and the counts."""
        inner = copy.copy(self)
        inner.store = self.store.scoped(scope)
        return inner

    def warm_up(self) -> None:
        """As `ToolResultStore.warm_up`; passed on."""
        self._script.count("warm_up")
        self.store.warm_up()

    async def warm_up_async(self) -> None:
        """As `ToolResultStore.warm_up_async`; passed on."""
        self._script.count("warm_up_async")
        await self.store.warm_up_async()

    def close(self) -> None:
        """As `ToolResultStore.close`; passed on."""
        self._script.count("close")
        self.store.close()

    async def close_async(self) -> None:
        """As `ToolResultStore.close_async`; passed on."""
        self._script.count("close_async")
        await self.store.close_async()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the store itself, as every store does."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """As `ToolResultStore.to_dict`: the wrapped store. A script is no setting, so it is left out."""
        return default_to_dict(self, store=self.store.to_dict(), limit=self._limit)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """As `ToolResultStore.from_dict`: a store without faults."""
        return default_from_dict(cls, data)

    async def _operate(
        self, method: str, call: Callable[[], Awaitable[T]], pause: Callable[[float, bool], Awaitable[None]]
    ) -> T:
        with self._script.operation(method) as fault:
            await pause(fault.before, fault.hang_before)
            if fault.error is not None:
                raise fault.error
            result = await call()
            await pause(fault.after, fault.hang_after)
            return result if fault.result is None else cast("T", fault.result(result))


async def _called(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return function(*args, **kwargs)


async def _outcome(write: Callable[[], Awaitable[str]]) -> str | StoreError:
    try:
        return await write()
    except StoreError as error:
        return error
