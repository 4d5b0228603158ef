"""
The operations of any store as effects, also of one that somebody else wrote with fewer methods than haybaler's.

Each uses the best form that the store has. What the store returns is checked, and what it raises becomes a member of
the tree in `haybaler.errors`.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from haybaler.effects import Effect
from haybaler.errors import CorruptEntryError, StoreError, mapped
from haybaler.interop import asynchronous, method, optional_method
from haybaler.stores.driver import Content, page_of
from haybaler.stores.inventory import SweepReport
from haybaler.stores.outcomes import SINGLE_CALLS, Outcome, has, write_async, write_now
from haybaler.stores.protocol import DeletedScope, StoreEntry, StorePage
from haybaler.workers import map_bounded, run_in_worker

R = TypeVar("R")


def write(store: Any, entries: Sequence[StoreEntry]) -> Effect[list[Outcome]]:
    """
    Write a batch in the best way the store has: its own batches, else single writes side by side.

    :param store: The store.
    :param entries: What to write.
    :returns: An effect whose outcome i belongs to entry i: a reference, or why it was not stored. It raises only when
        it is cancelled.
    """
    return Effect(lambda: write_now(store, entries, {}), lambda: write_async(store, entries, _caller, {}))


def read(store: Any, reference: str) -> Effect[Content]:
    """
    Read an entry.

    :param store: The store.
    :param reference: A reference of the store.
    :returns: An effect that returns the content and raises a `StoreError`.
    """
    return _checked(_content, "read an entry", store, "read", reference)


def each(effects: Sequence[Effect[R]]) -> Effect[list[R | StoreError]]:
    """
    Carry out several operations, side by side for asynchronous callers.

    :param effects: Operations that raise a `StoreError` where they fail.
    :returns: An effect whose outcome i belongs to operation i: its result, or why it failed.
    """

    def one(effect: Effect[R]) -> R | StoreError:
        try:
            return effect.run()
        except StoreError as error:
            return error

    async def one_async(effect: Effect[R]) -> R | StoreError:
        try:
            return await effect.run_async()
        except StoreError as error:
            return error

    return Effect(
        lambda: [one(effect) for effect in effects], lambda: map_bounded(one_async, effects, limit=SINGLE_CALLS)
    )


def read_page(store: Any, reference: str, offset: int, limit: int) -> Effect[StorePage]:
    """
    Read a part of an entry, cut out of the whole where the store cannot do better.

    :param store: The store.
    :param reference: A reference of the store.
    :param offset: Where to begin, in characters (text) or bytes (binary); negative counts from the end.
    :param limit: The most characters or bytes.
    :returns: An effect that returns the part and raises a `StoreError`.
    """
    if has(store, "read_page"):
        return _checked(_page, "read an entry", store, "read_page", reference, offset=offset, limit=limit)

    def cut(content: object) -> StorePage:
        return page_of(_content(content), offset, limit)

    return _checked(cut, "read an entry", store, "read", reference)


def delete(store: Any, references: Sequence[str]) -> Effect[None]:
    """
    Remove entries.

    :param store: A store with `delete`.
    :param references: References of the store.
    :returns: An effect that raises a `StoreError` if an entry could not be removed.
    """
    return _checked(_nothing, "delete entries", store, "delete", list(references))


def delete_scope(store: Any) -> Effect[DeletedScope]:
    """
    Remove everything in the store's scope.

    :param store: A store with `delete_scope`.
    :returns: An effect that returns how much that was and raises a `StoreError`.
    """
    return _checked(_scope, "delete a scope", store, "delete_scope")


def sweep(store: Any, safe_age: float) -> Effect[SweepReport]:
    """
    Remove what has expired in the store's scope, and what was left behind.

    :param store: A store with `sweep`.
    :param safe_age: Seconds after which what looks unfinished is taken for left behind.
    :returns: An effect that returns how much that was and raises a `StoreError`.
    """
    return _checked(_report, "sweep a scope", store, "sweep", safe_age=safe_age)


def warm_up(store: Any) -> Effect[None]:
    """
    Open early what the store can.

    :param store: The store; without a `warm_up`, nothing happens.
    :returns: An effect that raises a `StoreError`.
    """
    effect = optional_method(store, "warm_up")

    def run() -> None:
        with mapped("open the store"):
            effect.run()

    async def run_async() -> None:
        with mapped("open the store"):
            await effect.run_async()

    return Effect(run, run_async)


def _checked(check: Callable[[Any], Any], action: str, store: Any, name: str, *args: Any, **kwargs: Any) -> Effect[Any]:
    def run() -> Any:
        with mapped(action):
            return check(method(store, name, *args, **kwargs).run())

    async def run_async() -> Any:
        with mapped(action):
            return check(await _caller(store, name)(*args, **kwargs))

    return Effect(run, run_async)


def _caller(store: Any, name: str) -> Callable[..., Awaitable[Any]]:
    """Return a method as it is called from an event loop. No timeout waits for a worker thread that has begun."""
    return asynchronous(store, name, in_worker=partial(run_in_worker, abandon=True))


def _content(content: object) -> Content:
    if not isinstance(content, (str, bytes)):
        raise CorruptEntryError(f"The store returned {type(content).__name__}, neither text nor bytes.")
    return content


def _page(page: Any) -> StorePage:
    return StorePage(_content(page.content), page.offset, page.total)


def _scope(removed: Any) -> DeletedScope:
    return DeletedScope(removed.entries, removed.bytes)


def _report(swept: Any) -> SweepReport:
    return SweepReport(swept.expired, swept.leftovers, swept.bytes, swept.elsewhere)


def _nothing(result: object) -> None:
    del result
