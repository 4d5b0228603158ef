"""Writing a batch to any store, and its outcomes, of which nothing is trusted."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Self

from haybaler.errors import StoreError
from haybaler.interop import has_synchronous, synchronous
from haybaler.stores.driver import write_failure
from haybaler.stores.protocol import StoreEntry
from haybaler.workers import map_bounded

Outcome = str | StoreError

# Calls in flight at once for one batch, where a store has no batches of its own.
SINGLE_CALLS = 16


def has(store: object, name: str) -> bool:
    """
    Whether a store has a method in any form.

    :param store: The store.
    :param name: The method's name, without `_async`.
    :returns: True for a method of that name, or `name_async`.
    """
    return callable(getattr(store, name, None)) or callable(getattr(store, f"{name}_async", None))


def write_now(store: Any, entries: Sequence[StoreEntry]) -> list[Outcome]:
    """
    Write a batch for synchronous callers.

    :param store: The store.
    :param entries: What to write.
    :returns: Outcome i belongs to entry i.
    """
    with _Outcomes(len(entries)) as outcomes:
        if has_synchronous(store, "write_many"):
            outcomes.take(store.write_many(entries))
        else:
            write = synchronous(store, "write")
            outcomes.take([_write_one(write, entry) for entry in entries])
    return outcomes.of_entries


async def write_async(
    store: Any, entries: Sequence[StoreEntry], method_of: Callable[[Any, str], Callable[..., Awaitable[Any]]]
) -> list[Outcome]:
    """
    Write a batch for asynchronous callers.

    :param store: The store.
    :param entries: What to write.
    :param method_of: Returns a method of the store, by its name without `_async`, as it is to be called.
    :returns: Outcome i belongs to entry i.
    """
    with _Outcomes(len(entries)) as outcomes:
        if has(store, "write_many"):
            outcomes.take(await method_of(store, "write_many")(entries))
        else:
            write = partial(_write_one_async, method_of(store, "write"))
            outcomes.take(await map_bounded(write, entries, limit=SINGLE_CALLS))
    return outcomes.of_entries


class _Outcomes:
    """The outcomes of a batch: what the store returned if it kept its contract, or what it raised."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.of_entries: list[Outcome] = []

    def take(self, outcomes: object) -> None:
        if not isinstance(outcomes, (list, tuple)):
            raise _no_reference(outcomes)
        if len(outcomes) != self._count:
            raise StoreError(f"The store gave {len(outcomes)} outcomes for {self._count} entries.")
        self.of_entries = [
            outcome
            if isinstance(outcome, StoreError) or (isinstance(outcome, str) and outcome)
            else _no_reference(outcome)
            for outcome in outcomes
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self.of_entries = [write_failure(error)] * self._count
        return isinstance(error, Exception)


def _no_reference(outcome: object) -> StoreError:
    return StoreError(f"The store gave {type(outcome).__name__} instead of a reference.")


def _write_one(write: Callable[..., object], entry: StoreEntry) -> object:
    try:
        return write(key=entry.key, content=entry.content)
    except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
        return write_failure(error)


async def _write_one_async(write: Callable[..., Awaitable[object]], entry: StoreEntry) -> object:
    try:
        return await write(key=entry.key, content=entry.content)
    except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
        return write_failure(error)
