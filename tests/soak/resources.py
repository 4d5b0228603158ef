"""What the process and the stores hold at a moment, and how much of it may have come since another one."""

import asyncio
import ctypes
import gc
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.soak.places import Place

MEGABYTE = 1024 * 1024

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """
    How much a figure may have grown.

    :param share: By this part of what it was,
    :param amount: and by this besides.
    """

    share: float = 0.0
    amount: float = 0.0

    def allows(self, before: float, after: float) -> bool:
        """Whether the figure may be what it is."""
        return after <= before * (1 + self.share) + self.amount

    def __str__(self) -> str:
        parts = [f"{self.share:.0%}"] * bool(self.share) + [f"{self.amount:,.0f}"] * bool(self.amount)
        return " + ".join(parts) or "nothing"


# From the end of the warm-up to the end, with nobody there and the stores open. An allocator gives back what it has in
# its own time; pools of connections and threads may be fuller at one moment than at another, up to their bounds.
OPEN: Mapping[str, Tolerance] = {
    "memory, MB": Tolerance(0.15, 24),
    "blocks of Python": Tolerance(0.03, 20_000),
    "tasks": Tolerance(),
    "threads": Tolerance(amount=32),
    "descriptors": Tolerance(amount=64),
    "connections": Tolerance(amount=16),
    "entries": Tolerance(),
}
# From before the first use of a store to after the end of the event loop.
CLOSED: Mapping[str, Tolerance] = {
    "threads": Tolerance(),
    "descriptors": Tolerance(),
    "connections": Tolerance(),
    "entries": Tolerance(),
}


@dataclass(frozen=True, slots=True)
class Row:
    """
    A figure at two moments.

    :param when: Which moments.
    :param figure: What it is.
    :param before: Its value at the first.
    :param after: Its value at the second.
    :param tolerance: How much it may have grown.
    """

    when: str
    figure: str
    before: float
    after: float
    tolerance: Tolerance

    @property
    def is_fine(self) -> bool:
        """Whether it has not grown too much."""
        return self.tolerance.allows(self.before, self.after)


def compared(when: str, before: Figures, after: Figures, tolerances: Mapping[str, Tolerance]) -> list[Row]:
    """
    Compare what was held at two moments.

    :param when: Which moments.
    :param before: The figures at the first.
    :param after: The figures at the second.
    :param tolerances: By the figures' names, without the store's.
    :returns: A row for each figure that has a tolerance.
    """
    kinds = {figure: figure.rpartition(": ")[2] for figure in before}
    return [
        Row(when, figure, before[figure], after[figure], tolerances[kind])
        for figure, kind in kinds.items()
        if kind in tolerances
    ]


def held(places: Sequence[Place]) -> Figures:
    """
    Return what is held now, after what is not needed any more was given back. Blocks for a moment.

    :param places: The stores.
    :returns: The figures by name.
    """
    of_places: dict[str, float] = {}
    for place in places:
        of_places[f"{place.name}: entries"] = len(place.entries())
        of_places[f"{place.name}: connections"] = place.connections()
    for _ in range(3):
        gc.collect()
    _trim()
    return {
        "memory, MB": _resident() / MEGABYTE,
        "blocks of Python": sys.getallocatedblocks(),
        "tasks": _tasks(),
        "threads": threading.active_count(),
        "descriptors": len(open_files()),
        **of_places,
    }


def open_files() -> list[str]:
    """Return what the process's descriptors lead to, for whoever looks for one too many."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one of this very listing
            found.append(str(link.readlink()))
    return sorted(found)


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no event loop
        return 0


def _resident() -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def _trim() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
    if trim is not None:
        trim(0)
