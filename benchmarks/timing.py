"""How things are timed: alternately, several times, and with an eye on the event loop."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, thread_time

TICK = 0.001  # seconds; so fine that a stall of a few milliseconds shows

# What is timed. Returns further figures, if it has any, in the unit of their column.
Action = Callable[[], Awaitable[dict[str, float] | None]]


@dataclass(slots=True)
class Case:
    """
    One of the things that are compared.

    :param subject: What they all do, for example "1,000 x 10 KB".
    :param who: Who does it here; `RAW` for the floor.
    :param prepare: Gives a context in which the action can run once; entering and leaving it is not timed.
    :param samples: Figure by name, for each repetition.
    """

    subject: str
    who: str
    prepare: Callable[[], AbstractContextManager[Action]]
    samples: list[dict[str, float]] = field(default_factory=list)

    def median(self, figure: str) -> float | None:
        """Return the middle of a figure's values, or None if the case does not have it."""
        values = [sample[figure] for sample in self.samples if figure in sample]
        return median(values) if values else None

    def ratio(self, other: "Case", figure: str) -> float | None:
        """Return the middle of the ratios to another case, each within one repetition."""
        pairs = zip(self.samples, other.samples, strict=True)
        ratios = [a[figure] / b[figure] for a, b in pairs if figure in a and b.get(figure)]
        return median(ratios) if ratios else None


class Heartbeat:
    """
    Beats on the event loop, and measures how long the loop stands still at most.

    `stall` is what others on the loop notice, in seconds. `work` is the most processor time that the loop's own thread
    spent between two beats: the part of it that is neither another thread's nor another process's doing.
    """

    def __init__(self) -> None:
        self.stall = self.work = 0.0

    async def beat(self) -> None:
        while True:
            before, worked = perf_counter(), thread_time()
            try:
                await asyncio.sleep(TICK)
            finally:
                self.stall = max(self.stall, perf_counter() - before - TICK)
                self.work = max(self.work, thread_time() - worked)


@asynccontextmanager
async def heartbeat() -> AsyncIterator[Heartbeat]:
    """Measure the event loop's longest stall inside the block; the figure is complete after it."""
    heart = Heartbeat()
    task = asyncio.create_task(heart.beat())
    await asyncio.sleep(2 * TICK)
    heart.stall = heart.work = 0.0
    try:
        yield heart
        await asyncio.sleep(2 * TICK)  # a stall at the very end shows in the beat that was due meanwhile
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(cases: Sequence[Case], *, repetitions: int, warm_up: bool = True) -> None:
    """
    Run the cases in turn, so that whatever else the machine does disturbs all of them alike.

    A round before the first repetition is not counted: it starts threads and fills caches.

    :param cases: The cases; `samples` is filled with "seconds", with "stall" and "work" (see `Heartbeat`), and with
        what the actions return.
    :param repetitions: How many samples each gets.
    :param warm_up: Whether there is such a round; not for actions that each run in a process of their own.
    """
    for repetition in range(0 if warm_up else 1, repetitions + 1):
        for case in cases:
            with case.prepare() as action:
                gc.collect()
                async with heartbeat() as heart:
                    before = perf_counter()
                    more = await action()
                    seconds = perf_counter() - before
            if repetition:
                case.samples.append({"seconds": seconds, "stall": heart.stall, "work": heart.work, **(more or {})})
