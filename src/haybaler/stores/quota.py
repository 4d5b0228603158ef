"""How many bytes a scope holds, as far as one process knows: counted by listing, then kept up to date."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from threading import Lock
from typing import Protocol

from haybaler.effects import Steps

# Seconds after which a scope is counted anew, for others write into it, too.
LASTS = 60.0
# Seconds between two counts of a scope that seems to be full, if this process has changed nothing in it meanwhile.
EVERY = 1.0
# Scopes whose count is kept; the one that was written longest ago is counted anew when it is written again.
MOST_SCOPES = 10_000

Listing = Callable[[], Steps[int]]  # counts the bytes that stand in a scope
Growth = Callable[[], Sequence[int]]  # by how many bytes each entry of a batch lets the scope grow, as far as is known


class ScopeCount(Protocol):
    """Who counts. A scope is named by what the paths of its entries begin with."""

    def take(self, folder: str, growth: Growth, most: int, listing: Listing) -> Steps[list[bool]]:
        """Take room for those entries of a batch that fit, so that nobody else does; answer i belongs to entry i."""
        ...

    def recount(self, folder: str, listing: Listing) -> Steps[bool]:
        """Count anew, unless it was done just now and would find the same; return whether it was."""
        ...

    def refund(self, folder: str, growth: int) -> Steps[None]:
        """Give back room of what was not written after all."""
        ...

    def settle(self, folder: str, growth: int) -> None:
        """Note that room for so many bytes is no longer waiting for its entries: they are written, or nobody knows."""
        ...

    def forget(self, folder: str, *, inside: bool = False) -> None:
        """Note that something was removed from a scope, or inside it as well: a count may find less than before."""
        ...


@dataclass(slots=True)
class _Tally:
    total: int  # what is there, and what is about to be written
    pending: int  # the latter alone
    taken: int  # what has ever been about to be written
    counted: float  # when all was counted, by the monotonic clock
    changed: bool  # whether anything was written or removed since


class LocalCount:
    """
    Counts for one process, whatever its threads and event loops.

    What is replaced counts twice until the next count. Other processes are seen at the next count only.
    """

    every = EVERY

    def __init__(self) -> None:
        self._tallies: OrderedDict[str, _Tally] = OrderedDict()
        self._lock = Lock()

    def __reduce__(self) -> tuple[type["LocalCount"], tuple[()]]:
        """A copy in another process counts for itself."""
        return LocalCount, ()

    def take(self, folder: str, growth: Growth, most: int, listing: Listing) -> Steps[list[bool]]:
        """As `ScopeCount.take`; a scope that was not counted for long is counted first."""
        with self._lock:
            outdated = time.monotonic() - self._tally(folder).counted > LASTS
        if outdated:
            yield from self._listed(folder, listing)
        with self._lock:
            tally = self._tally(folder)
            fits = fitting(tally.total, growth(), most)
            tally.total += sum(compress(growth(), fits))
            self._wait(tally, growth(), fits)
        return fits

    def recount(self, folder: str, listing: Listing) -> Steps[bool]:
        """As `ScopeCount.recount`."""
        with self._lock:
            due = self._is_due(folder)
        if due:
            yield from self._listed(folder, listing)
        return due

    def refund(self, folder: str, growth: int) -> Steps[None]:
        """As `ScopeCount.refund`."""
        with self._lock:
            self._tally(folder).total -= growth
        yield from ()

    def settle(self, folder: str, growth: int) -> None:
        """As `ScopeCount.settle`."""
        with self._lock:
            tally = self._tally(folder)
            tally.pending -= growth
            tally.changed = True

    def forget(self, folder: str, *, inside: bool = False) -> None:
        """As `ScopeCount.forget`."""
        with self._lock:
            names = [name for name in self._tallies if name.startswith(folder)] if inside else [folder]
            for tally in filter(None, map(self._tallies.get, names)):
                tally.changed = True

    def _listed(self, folder: str, listing: Listing) -> Steps[None]:
        with self._lock:
            tally = self._tally(folder)
            begun, pending, taken = time.monotonic(), tally.pending, tally.taken
            tally.changed = False
        found = yield from listing()
        with self._lock:
            # What was being written meanwhile may or may not have been found; rather too much than too little.
            tally.total = found + pending + tally.taken - taken
            tally.counted = begun
            self._tallies[folder] = tally

    def _is_due(self, folder: str) -> bool:
        tally = self._tally(folder)
        return tally.changed or time.monotonic() - tally.counted >= self.every

    def _wait(self, tally: _Tally, growth: Sequence[int], fits: Sequence[bool]) -> int:
        waiting = room_of(compress(growth, fits))
        tally.pending += waiting
        tally.taken += waiting
        return waiting

    def _tally(self, folder: str) -> _Tally:
        tally = self._tallies.setdefault(folder, _Tally(0, 0, 0, float("-inf"), changed=False))
        self._tallies.move_to_end(folder)
        if len(self._tallies) > MOST_SCOPES:
            idle = next((name for name, other in self._tallies.items() if not other.pending), folder)
            if idle != folder:
                del self._tallies[idle]
        return tally


def room_of(growth: Iterable[int]) -> int:
    """
    Return the room that entries take until they are written. Those that replace larger ones give none back by then.

    :param growth: The bytes by which each entry lets the scope grow, or shrink.
    :returns: Bytes.
    """
    return sum(max(more, 0) for more in growth)


def fitting(used: int, growth: Sequence[int], most: int) -> list[bool]:
    """
    Decide which entries of a batch still fit, in order; a later one may, though an earlier one does not.

    :param used: The bytes that are there.
    :param growth: The bytes by which each entry lets the scope grow, or shrink where it replaces a larger one.
    :param most: The most bytes together.
    :returns: Answer i belongs to entry i.
    """
    fits = []
    for more in growth:
        fits.append(used + more <= most or more <= 0)
        used += more if fits[-1] else 0
    return fits
