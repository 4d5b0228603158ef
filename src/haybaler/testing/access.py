"""
The colours in which a store can be used, so that each law is written once.

A law is a coroutine function over an `Access`. In a synchronous colour nothing in it ever suspends, and it is driven
without any event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from haybaler.errors import StoreError
from haybaler.stores.inventory import StoredEntry, SweepReport
from haybaler.stores.protocol import DeletedScope, StoreEntry, ToolResultStore
from haybaler.workers import run_in_worker

T = TypeVar("T")


class Way(Enum):
    """How one call reaches the store."""

    CALLED = "the synchronous method"
    AWAITED = "the asynchronous method, all calls in one event loop"
    OWN_LOOP = "the asynchronous method, each call in an event loop of its own"


@dataclass(frozen=True)
class Colour:
    """
    How the calls of one law reach the store.

    :param name: For the test's name.
    :param writes: How entries are written and deleted.
    :param reads: How entries are read.
    """

    name: str
    writes: Way
    reads: Way

    @property
    def uses_sync(self) -> bool:
        """Whether a synchronous method is called."""
        return Way.CALLED in {self.writes, self.reads}

    @property
    def needs_loop(self) -> bool:
        """Whether the law runs inside an event loop."""
        return Way.AWAITED in {self.writes, self.reads}


SYNC: Final = Colour("sync", writes=Way.CALLED, reads=Way.CALLED)
ASYNC: Final = Colour("async", writes=Way.AWAITED, reads=Way.AWAITED)
COLOURS: Final = (
    SYNC,
    ASYNC,
    Colour("written_async_read_sync", writes=Way.OWN_LOOP, reads=Way.CALLED),
    Colour("written_sync_read_async", writes=Way.CALLED, reads=Way.OWN_LOOP),
)


class Access:
    """
    A store, used in one colour.

    :param store: The store.
    :param colour: The colour.
    """

    def __init__(self, store: ToolResultStore, colour: Colour) -> None:
        self.store = store
        self.colour = colour

    def to(self, store: ToolResultStore) -> "Access":
        """Return the access to another store in the same colour."""
        return Access(store, self.colour)

    async def write(self, key: str, content: str | bytes) -> str:
        """Write one entry."""
        return await self.call(
            self.colour.writes,
            lambda: self.store.write(key=key, content=content),
            lambda: self.store.write_async(key=key, content=content),
        )

    async def write_many(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        """Write a batch."""
        return await self.call(
            self.colour.writes, lambda: self.store.write_many(entries), lambda: self.store.write_many_async(entries)
        )

    async def delete(self, references: Sequence[str]) -> None:
        """Delete entries."""
        await self.call(
            self.colour.writes, lambda: self.store.delete(references), lambda: self.store.delete_async(references)
        )

    async def delete_scope(self) -> DeletedScope | None:
        """Remove the whole scope; None for a store that cannot."""
        deleted: DeletedScope | None = await self._optional("delete_scope")
        return deleted

    async def listed(self, scope: str | None = None) -> list[StoredEntry] | None:
        """List the entries of a scope; None for a store that cannot."""
        store: Any = self.store

        async def awaited() -> list[StoredEntry]:
            return [entry async for entry in store.list_async(scope)]

        return await self._where_it_can("list", lambda: [*store.list(scope)], awaited)

    async def stat(self, reference: str) -> StoredEntry | None:
        """Tell what one entry is; None for a store that cannot."""
        told: StoredEntry | None = await self._optional("stat", reference)
        return told

    async def sweep(self, **options: float) -> SweepReport | None:
        """Sweep the scope; None for a store that cannot."""
        report: SweepReport | None = await self._optional("sweep", **options)
        return report

    def of(self, reference: str) -> "Access":
        """Return the access to the scope of a reference, of a store that can list."""
        store: Any = self.store
        return self.to(store.scope_of(reference))

    async def _optional(self, name: str, *args: object, **options: object) -> Any:
        store: Any = self.store
        return await self._where_it_can(
            name,
            lambda: getattr(store, name)(*args, **options),
            lambda: getattr(store, f"{name}_async")(*args, **options),
        )

    async def _where_it_can(self, name: str, called: Callable[[], T], awaited: Callable[[], Awaitable[T]]) -> T | None:
        if not hasattr(self.store, name):
            return None
        try:
            return await self.call(self.colour.writes, called, awaited)
        except StoreError as error:
            if type(error) is not StoreError:
                raise
            return None

    async def read(self, reference: str) -> str | bytes:
        """Read one entry."""
        return await self.call(
            self.colour.reads, lambda: self.store.read(reference), lambda: self.store.read_async(reference)
        )

    async def outside(self, function: Callable[[], T]) -> T:
        """Call a function that may block, such as one that damages an entry, where it does not stall an event loop."""
        return await run_in_worker(function) if self.colour.needs_loop else function()

    async def close(self) -> None:
        """Close the store, in every way in which the law can have opened it."""
        for way in {self.colour.writes, self.colour.reads} - {Way.OWN_LOOP}:
            await self.call(way, self.store.close, self.store.close_async)

    async def call(self, way: Way, called: Callable[[], T], awaited: Callable[[], Awaitable[T]]) -> T:
        """
        Make one call.

        :param way: How it reaches the store.
        :param called: Calls the synchronous method.
        :param awaited: Calls the asynchronous method.
        :returns: What the method returned.
        """
        if way is Way.CALLED:
            return called()
        if way is Way.AWAITED:
            return await awaited()
        return asyncio.run(self._call_and_close(awaited))

    async def _call_and_close(self, awaited: Callable[[], Awaitable[T]]) -> T:
        try:
            return await awaited()
        finally:
            await self.store.close_async()


Law = Callable[[Access], Coroutine[Any, Any, None]]


def run_law(law: Law, store: ToolResultStore, colour: Colour) -> None:
    """
    Check one law in one colour and close the store.

    :param law: The law.
    :param store: The store.
    :param colour: The colour.
    :raises AssertionError: If the law is broken.
    """
    if colour.needs_loop:
        asyncio.run(_checked(law, Access(store, colour)))
    else:
        drive(_checked(law, Access(store, colour)))


async def _checked(law: Law, access: Access) -> None:
    try:
        await law(access)
    finally:
        await access.close()


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """
    Run a coroutine that never suspends, without an event loop.

    :param coroutine: The coroutine.
    :returns: Its result.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise AssertionError("A synchronous call must not wait for an event loop.")
