"""What the measurements of single stores have in common: a thousand entries in one batch, and who writes them."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, TypeVar

from benchmarks.timing import Action, Case
from haybaler import StoreEntry

P = TypeVar("P")

ENTRIES = 1_000

# Writes the entries into a place: a folder, a server's key space.
Write = Callable[[P, list[StoreEntry]], Awaitable[None]]
Place = Callable[[], AbstractContextManager[P]]

_LINE = "A line of a result, as long as lines are in text.\n"


def batch_cases(writes: Mapping[str, Write[P]], place: Place[P], *, quick: bool, note: str = "") -> list[Case]:
    """
    Return the cases for small, middling and big entries.

    :param writes: The ways to write a batch, by name.
    :param place: Makes where a batch is written to, empty; entering and leaving it is not timed.
    :param quick: Middling entries only.
    :param note: What the subjects' names end with.
    :returns: For each size a case for each way.
    """
    return [
        Case(f"{ENTRIES:,} x {kilobytes} KB{note}", who, _writing(write, place, entries))
        for kilobytes in ([10] if quick else [1, 10, 100])
        for entries in [batch(kilobytes)]
        for who, write in writes.items()
    ]


def batch(kilobytes: int) -> list[StoreEntry]:
    """
    Return a batch of texts, all different.

    :param kilobytes: The size of each.
    :returns: The entries.
    """
    text = (_LINE * (kilobytes * 1024 // len(_LINE) + 1))[: kilobytes * 1024]
    return [StoreEntry(f"1_read_file_{number}.txt", f"{number:06}{text[6:]}") for number in range(ENTRIES)]


def _writing(
    write: Write[P], place: Place[P], entries: list[StoreEntry]
) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        with place() as where:
            yield partial(write, where, entries)

    return prepare


async def write_all(store: Any, entries: list[StoreEntry]) -> None:
    """
    Write a batch through a store of haybaler.

    :param store: The store.
    :param entries: The entries.
    """
    outcomes = await store.write_many_async(entries)
    assert all(isinstance(outcome, str) for outcome in outcomes), "an entry was not written"
