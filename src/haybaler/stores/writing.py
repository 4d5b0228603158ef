"""Writing to and deleting from any store, also one that somebody else wrote with fewer methods than haybaler's."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio

from haybaler.effects import Effect
from haybaler.errors import StoreError, StoreTimeoutError
from haybaler.interop import asynchronous, has_synchronous, method
from haybaler.stores.driver import write_failure
from haybaler.stores.outcomes import Outcome, has, write_async, write_now
from haybaler.stores.protocol import StoreEntry
from haybaler.stores.unwritten import Contents
from haybaler.workers import clean_up, run_or_undo

logger = logging.getLogger(__name__)

# How long the removal of entries that nobody refers to may take, also while the run is being cancelled, in seconds.
CLEAN_UP_SECONDS = 5.0


def predictor(store: Any) -> Callable[[str], str] | None:
    """
    Return a function that tells the reference of a key before it is written.

    :param store: The store.
    :returns: A function that gives what the store's own `reference` gives, or raises a `StoreError`; None for a store
        without one.
    """
    if not has_synchronous(store, "reference"):
        return None

    def predict(key: str) -> str:
        try:
            reference = store.reference(key)
        except Exception as error:
            raise write_failure(error) from error
        if not isinstance(reference, str):
            raise StoreError(f"The store told {type(reference).__name__} instead of a reference.")
        return reference

    return predict


def write_entries(
    store: Any,
    entries: Sequence[StoreEntry],
    *,
    timeout: float | None = None,
    done: dict[int, Outcome] | None = None,
) -> Effect[list[Outcome]]:
    """
    Write a batch in the best way the store has: its own batches, else single writes side by side.

    :param store: A store with `write` or `write_async`, or with haybaler's whole protocol.
    :param entries: What to write.
    :param timeout: Seconds after which asynchronous callers stop waiting; None to wait as long as the store does.
    :param done: Gets the outcome of each entry, by its index, as soon as it is known, for whoever is interrupted.
    :returns: An effect whose outcome i belongs to entry i: a reference, or why it was not stored. It raises only when
        it is cancelled.
    """
    known: dict[int, Outcome] = {} if done is None else done
    return Effect(partial(write_now, store, entries, known), partial(_write_async, store, entries, timeout, known))


async def _write_async(
    store: Any, entries: Sequence[StoreEntry], seconds: float | None, done: dict[int, Outcome]
) -> list[Outcome]:
    if seconds is None:
        return await write_async(store, entries, _writer, done)
    with anyio.move_on_after(seconds):
        return await write_async(store, entries, _writer, done)
    late = StoreTimeoutError("The store did not answer in time.")
    return [done.get(index, late) for index in range(len(entries))]


def _writer(store: Any, name: str) -> Callable[..., Awaitable[Any]]:
    """Return what writes. A worker thread that nobody waits for any more removes what it has written."""
    undoing = partial(run_or_undo, undo=partial(_take_back, store), seconds=CLEAN_UP_SECONDS)
    return asynchronous(store, name, in_worker=undoing)


def _take_back(store: Any, outcome: object) -> None:
    outcomes = outcome if isinstance(outcome, (list, tuple)) else [outcome]
    delete_quietly(store, [reference for reference in outcomes if isinstance(reference, str)]).run()


def hold_contents(store: Any, contents: Contents) -> None:
    """
    Have a store answer reads of entries that are only being written, if it can.

    :param store: Any store; one without `hold_entries` is left alone.
    :param contents: Content by reference.
    """
    if hasattr(store, "hold_entries"):
        with suppress(Exception):  # it may be somebody else's; the run's own tools know the entries anyway
            store.hold_entries(contents)


def release_contents(store: Any, contents: Contents) -> None:
    """
    Have a store read entries from its backend again.

    :param store: Any store; one without `release_entries` is left alone.
    :param contents: The very object that it was given to hold.
    """
    if hasattr(store, "release_entries"):
        with suppress(Exception):
            store.release_entries(contents)


def delete_quietly(store: Any, references: Sequence[str]) -> Effect[None]:
    """
    Remove entries that no conversation refers to, as well as the store can. Failures are logged, never raised.

    Asynchronous callers are shielded from cancellation for at most `CLEAN_UP_SECONDS`, so that a cancelled run can
    still clean up.

    :param store: Any store; without a `delete`, nothing happens.
    :param references: What to remove.
    :returns: The effect.
    """
    able = bool(references) and has(store, "delete")

    def delete() -> None:
        with _quiet(store, len(references)):
            if able:
                method(store, "delete", references).run()

    async def delete_async() -> None:
        with _quiet(store, len(references)):
            if able:
                await clean_up(method(store, "delete", references).run_async, seconds=CLEAN_UP_SECONDS)

    return Effect(delete, delete_async)


@contextmanager
def _quiet(store: object, count: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - an orphan costs space, an error here would cost the run
        logger.warning(
            "Entries that nothing refers to could not be removed from the store.",
            extra={"store": type(store).__name__, "entries": count, "error": type(error).__name__},
        )
