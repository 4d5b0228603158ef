"""How many bytes a scope holds, as far as one process knows: counted by listing, then kept up to date."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from threading import Lock
from typing import Protocol

from haybaler.effects import Steps
from haybaler.sharing import SharedSteps

# Seconds after which a scope is counted anew, for others write into it, too.
LASTS = 60.0
# Seconds between two counts of a scope that seems to be full, if this process has changed nothing in it meanwhile.
EVERY = 1.0
# Scopes whose count is kept; the one that was written longest ago is counted anew when it is written again.
MOST_SCOPES = 10_000

Sizes = Mapping[str, int]  # the bytes of each entry of a scope, by its path
Listing = Callable[[], Steps[Sizes]]


class ScopeCount(Protocol):
    """Who counts. A scope is named by what the paths of its entries begin with."""

    def prepare(self, folder: str, listing: Listing) -> Steps[Sizes | None]:
        """Count a scope that must be counted before room is taken; return what was found, or None if nothing was."""
        ...

    def take(self, folder: str, growth: Sequence[int], most: int) -> Steps[list[bool]]:
        """
        Take room for those entries of a batch that fit, so that nobody else does; answer i belongs to entry i.

        `growth` says by how many bytes each entry lets the scope grow, as far as is known.
        """
        ...

    def recount(self, folder: str, listing: Listing) -> Steps[Sizes | None]:
        """
        Count anew, or wait for who does so already; return what was found.

        None if it was done just now and would find the same.
        """
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
class Tally:
    """
    What is known of a scope, in bytes.

    :param total: What is there, and what is about to be written.
    :param pending: The latter alone.
    :param taken: What has ever been about to be written.
    :param counted: When all was counted, by the monotonic clock.
    :param changed: Whether anything was written or removed since.
    :param counting: How many are counting it now: a thread, and a task of each event loop.
    """

    total: int
    pending: int
    taken: int
    counted: float
    changed: bool
    counting: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether nobody needs it at this moment."""
        return not (self.pending or self.counting)


class LocalCount:
    """
    Counts for one process, whatever its threads and event loops.

    What is replaced counts twice until the next count. Other processes are seen at the next count only.
    """

    every = EVERY

    def __init__(self) -> None:
        self._tallies: OrderedDict[str, Tally] = OrderedDict()
        self._lock = Lock()
        self._counts: SharedSteps[Sizes | None] = SharedSteps()

    def __reduce__(self) -> tuple[type["LocalCount"], tuple[()]]:
        """A copy in another process counts for itself."""
        return LocalCount, ()

    def prepare(self, folder: str, listing: Listing) -> Steps[Sizes | None]:
        """As `ScopeCount.prepare`, for scopes that were not counted for long."""
        with self._lock:
            outdated = time.monotonic() - self._tally(folder).counted > LASTS
        return (yield from self.recount(folder, listing)) if outdated else None

    def take(self, folder: str, growth: Sequence[int], most: int) -> Steps[list[bool]]:
        """As `ScopeCount.take`."""
        with self._lock:
            tally = self._tally(folder)
            fits = fitting(tally.total, growth, most)
            tally.total += sum(compress(growth, fits))
            self._wait(tally, growth, fits)
        yield from ()
        return fits

    def recount(self, folder: str, listing: Listing) -> Steps[Sizes | None]:
        """As `ScopeCount.recount`."""
        return (yield from self._counts.run(folder, partial(self._counted_if_due, folder, listing)))

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

    def _counted_if_due(self, folder: str, listing: Listing) -> Steps[Sizes | None]:
        begun = time.monotonic()
        with self._lock:
            tally = self._tally(folder)
            # What others find who count at this moment is not known here before they are done.
            if not (tally.changed or tally.counting or begun - tally.counted >= self.every):
                return None
            tally.changed = False
            tally.counting += 1
        try:
            found = yield from self._counted(folder, tally, listing)
            tally.counted = begun
        except BaseException:
            tally.changed = True
            raise
        finally:
            with self._lock:
                tally.counting -= 1
        return found

    def _counted(self, folder: str, tally: Tally, listing: Listing) -> Steps[Sizes]:  # noqa: ARG002 - for subclasses
        with self._lock:
            pending, taken = tally.pending, tally.taken
        found = yield from listing()
        with self._lock:
            # What was being written meanwhile may or may not have been found; rather too much than too little.
            tally.total = sum(found.values()) + pending + tally.taken - taken
        return found

    def _wait(self, tally: Tally, growth: Sequence[int], fits: Sequence[bool]) -> int:
        waiting = room_of(compress(growth, fits))
        tally.pending += waiting
        tally.taken += waiting
        return waiting

    def _tally(self, folder: str) -> Tally:
        tally = self._tallies.setdefault(folder, Tally(0, 0, 0, float("-inf"), changed=False))
        self._tallies.move_to_end(folder)
        if len(self._tallies) > MOST_SCOPES:
            idle = next((name for name, other in self._tallies.items() if other.is_idle), folder)
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
