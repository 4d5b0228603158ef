"""What a fault is, and one trial of it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import Random
from time import monotonic, sleep
from typing import Any

from tests.faults.injection.fleet import PATIENCE, RUNS, Fleet, Tally
from tests.hooks.agents import Colour


@dataclass(frozen=True)
class Place:
    """
    Where a fault strikes.

    :param store: The store, the same for all trials.
    :param strike: Brings the fault about; gets a source of chance.
    :param heal: Ends it, if it does not end by itself.
    :param clean: Removes what a trial has stored, where there is not room for all of them.
    """

    store: Any
    strike: Callable[[Random], object]
    heal: Callable[[], object] = lambda: None
    clean: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Fault:
    """
    A fault that is brought about in the middle of the runs.

    :param backend: What it strikes.
    :param name: What happens.
    :param place: Sets the place up; None for a fault with trials of its own.
    :param delay: The most seconds that the runs may take longer for it: what the store's own timeouts and attempts
        come to in the steps of a run, and how long the fault itself lasts.
    :param share: Of the trials asked for, the part that is made; for places that take long.
    """

    backend: str
    name: str
    place: Callable[[], AbstractContextManager[Place]] | None
    delay: float
    share: float = 1.0

    def trials(self, asked: int) -> int:
        """Return how many trials there are, where so many are asked for: both colours have one at least."""
        return max(2, round(asked * self.share))


@dataclass
class Outcome:
    """
    What came of the trials of a fault.

    :param fault: The fault.
    :param trials: How many there were.
    :param tally: What became of the results.
    :param delays: The seconds that each trial took longer than the runs without a fault.
    :param recoveries: The seconds until new runs offloaded everything again.
    """

    fault: Fault
    trials: int = 0
    tally: Tally = field(default_factory=Tally)
    delays: list[float] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        """What must not be, in words; nothing if the fault did no harm."""
        slow = f"the runs took {max(self.delays):.1f} s longer, {self.fault.delay} are allowed"
        late = f"it took {max(self.recoveries):.1f} s until results were offloaded again"
        return [
            *self.tally.details,
            *([slow] if max(self.delays) > self.fault.delay else []),
            *([late] if max(self.recoveries) > PATIENCE else []),
        ]


def try_out(fault: Fault, *, trials: int, seed: int = 0) -> Outcome:
    """
    Let runs go on while a fault strikes at a random moment, again and again.

    :param fault: The fault.
    :param trials: How many times, in both colours in turn.
    :param seed: For the moments.
    :returns: What came of it.
    """
    chance, outcome = Random(f"{fault.name}/{seed}"), Outcome(fault)
    assert fault.place is not None
    with fault.place() as place, ThreadPoolExecutor(1) as thread:
        fleet = Fleet(place.store)
        undisturbed = {colour: _undisturbed(fleet, colour) for colour in Colour}
        for trial in range(fault.trials(trials)):
            colour = list(Colour)[trial % 2]
            names = [f"run-{seed}-{trial}-{number}" for number in range(RUNS)]
            begun = monotonic()
            running = thread.submit(fleet.run, names, colour)
            sleep(chance.uniform(0, undisturbed[colour]))
            place.strike(chance)
            results = running.result()
            outcome.delays.append(monotonic() - begun - undisturbed[colour])
            place.heal()
            outcome.tally.add(fleet.check(names, results))
            outcome.recoveries.append(_recovery(fleet, f"new-{seed}-{trial}", colour, outcome.tally))
            place.clean()
            outcome.trials += 1
        place.store.close()
    return outcome


def _undisturbed(fleet: Fleet, colour: Colour) -> float:
    """Return how long runs take when nothing happens, once everything is warm."""
    seconds = 0.0
    for attempt in range(2):
        names = [f"warm-{colour.value}-{attempt}-{number}" for number in range(RUNS)]
        begun = monotonic()
        results = fleet.run(names, colour)
        seconds = monotonic() - begun
        tally = fleet.check(names, results)
        assert not tally.losses, tally.details
        assert not tally.kept, "a result stayed in the conversation although nothing happened"
    return seconds


def _recovery(fleet: Fleet, name: str, colour: Colour, tally: Tally) -> float:
    """Return how long it takes until a run of the same objects offloads everything."""
    begun = monotonic()
    for attempt in range(1_000):
        names = [f"{name}-{attempt}"]
        after = fleet.check(names, fleet.run(names, colour))
        seconds = monotonic() - begun
        if after.losses or not after.kept or seconds > PATIENCE:
            tally.unfinished += after.unfinished
            tally.lost += after.lost
            tally.torn += after.torn
            tally.details += after.details
            return seconds if not after.kept else PATIENCE + seconds
        sleep(0.02)
    raise AssertionError
