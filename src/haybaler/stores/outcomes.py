"""Writing a batch to any store, and its outcomes, of which nothing is trusted."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Self, cast

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


def write_now(store: Any, entries: Sequence[StoreEntry], done: dict[int, Outcome]) -> list[Outcome]:
    """
    Write a batch for synchronous callers.

    :param store: The store.
    :param entries: What to write.
    :param done: Gets the outcome of each entry, by its index, as soon as it is known.
    :returns: Outcome i belongs to entry i.
    """
    with _Outcomes(len(entries), done) as outcomes:
        if has_synchronous(store, "write_many"):
            outcomes.take_all(store.write_many(entries))
        else:
            write = synchronous(store, "write")
            for index, entry in enumerate(entries):
                _write_one(write, entry, index, outcomes)
    return outcomes.of_entries


async def write_async(
    store: Any,
    entries: Sequence[StoreEntry],
    method_of: Callable[[Any, str], Callable[..., Awaitable[Any]]],
    done: dict[int, Outcome],
) -> list[Outcome]:
    """
    Write a batch for asynchronous callers.

    :param store: The store.
    :param entries: What to write.
    :param method_of: Returns a method of the store, by its name without `_async`, as it is to be called.
    :param done: Gets the outcome of each entry, by its index, as soon as it is known.
    :returns: Outcome i belongs to entry i.
    """
    with _Outcomes(len(entries), done) as outcomes:
        if has(store, "write_many"):
            outcomes.take_all(await method_of(store, "write_many")(entries))
        else:
            write_one = partial(_write_one_async, method_of(store, "write"), outcomes)
            await map_bounded(write_one, enumerate(entries), limit=SINGLE_CALLS)
    return outcomes.of_entries


class _Outcomes:
    """
    The outcomes of a batch: what the store returned if it kept its contract, or what it raised.

    :param count: How many entries there are.
    :param done: Where the outcomes go.
    """

    def __init__(self, count: int, done: dict[int, Outcome]) -> None:
        self._count = count
        self._done = done

    @property
    def of_entries(self) -> list[Outcome]:
        return [self._done[index] for index in range(self._count)]

    def take(self, index: int, outcome: object) -> None:
        is_known = (isinstance(outcome, str) and outcome) or isinstance(outcome, StoreError)
        self._done[index] = cast("Outcome", outcome) if is_known else _no_reference(outcome)

    def take_all(self, outcomes: object) -> None:
        if not isinstance(outcomes, (list, tuple)):
            raise _no_reference(outcomes)
        if len(outcomes) != self._count:
            raise StoreError(f"The store gave {len(outcomes)} outcomes for {self._count} entries.")
        for index, outcome in enumerate(outcomes):
            self.take(index, outcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            failure = write_failure(error)
            self._done.update((index, failure) for index in range(self._count) if index not in self._done)
        return isinstance(error, Exception)


def _no_reference(outcome: object) -> StoreError:
    return StoreError(f"The store gave {type(outcome).__name__} instead of a reference.")


def _write_one(write: Callable[..., object], entry: StoreEntry, index: int, outcomes: _Outcomes) -> None:
    try:
        outcomes.take(index, write(key=entry.key, content=entry.content))
    except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
        outcomes.take(index, write_failure(error))


async def _write_one_async(
    write: Callable[..., Awaitable[object]], outcomes: _Outcomes, numbered: tuple[int, StoreEntry]
) -> None:
    index, entry = numbered
    try:
        outcomes.take(index, await write(key=entry.key, content=entry.content))
    except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
        outcomes.take(index, write_failure(error))
