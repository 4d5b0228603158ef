"""Many runs at once that move their results through one hook into a store that takes its time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from statistics import quantiles
from time import perf_counter
from typing import Any

from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, Column, Group
from benchmarks.slow_stores import (
    AsyncStore,
    BlockingStore,
    haybaler_hook,
    haystack_hook,
    run_hook,
    state_after,
    whole_results,
)
from benchmarks.timing import Action, Case, measure

Run = Callable[[], Awaitable[None]]

PROBE_EVERY = 0.005  # seconds
TASKS = f"{RAW}, with a task a result"


async def _together(runs: list[Run]) -> dict[str, float]:
    """Await all runs at once, and meanwhile let somebody else use a thread of the event loop's own."""
    begun = perf_counter()
    waits: list[float] = []

    async def ended(run: Run) -> float:
        await run()
        return perf_counter() - begun

    async def probe() -> None:
        while True:
            asked = perf_counter()
            await asyncio.to_thread(int)
            waits.append(perf_counter() - asked)
            if ending.is_set():
                return
            await asyncio.sleep(PROBE_EVERY)

    ending = asyncio.Event()
    # The runs first: the probe must queue behind them, as anybody who comes later does.
    tasks = [asyncio.create_task(ended(run)) for run in runs]
    others = asyncio.create_task(probe())
    times = await asyncio.gather(*tasks)
    ending.set()
    await others
    p50, p99 = (quantiles(times, n=100)[place - 1] for place in (50, 99))
    return {"all": max(times), "p50": p50, "p99": p99, "wait": max(waits)}


def _hooks(runs: int, results: int, hook: Any) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        states = [state_after(results) for _ in range(runs)]
        before = sum(map(whole_results, states))
        yield partial(_together, [partial(run_hook, hook, state) for state in states])
        assert sum(map(whole_results, states)) == before - runs * results, "not all results were moved"

    return prepare


def _sleeps(runs: int, seconds: float, *, each: int = 1) -> Callable[[], AbstractContextManager[Action]]:
    async def several() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(each):
                group.create_task(asyncio.sleep(seconds))

    @contextmanager
    def prepare() -> Iterator[Action]:
        yield partial(_together, [partial(asyncio.sleep, seconds) if each == 1 else several] * runs)

    return prepare


def _cases(runs: int, results: int, seconds: float) -> list[Case]:
    each = f" x {results} results" if results > 1 else ""
    subject = f"{runs} runs{each}, {seconds * 1000:.0f} ms a write"
    return [
        Case(subject, HAYBALER, _hooks(runs, results, haybaler_hook(AsyncStore(seconds)))),
        Case(subject, f"{HAYBALER}, blocking store", _hooks(runs, results, haybaler_hook(BlockingStore(seconds)))),
        Case(subject, f"{HAYSTACK}, blocking store", _hooks(runs, results, haystack_hook(BlockingStore(seconds)))),
        *([Case(subject, TASKS, _sleeps(runs, seconds, each=results))] if results > 1 else ()),
        Case(subject, RAW, _sleeps(runs, seconds)),
    ]


async def many_runs(*, repetitions: int, quick: bool) -> Group:
    """Time many runs at once, with one result each and with several."""
    cases = [*_cases(50 if quick else 200, 1, 0.05), *_cases(32 if quick else 128, 4, 0.02)]
    await measure(cases, repetitions=repetitions)
    columns = [
        Column("all", "all runs"),
        Column("p99", "p99"),
        Column("wait", "others' thread waits"),
        *LOOP,
    ]
    target = (
        "Target: p99 of 200 runs at most 100 ms, 128 runs at most 60 ms, and others wait at most 5 ms for a thread. "
        "The floor: concurrent sleeps, one for each run; where runs have several results, also one task for each."
    )
    return Group("runs", "ToolResultOffloadHook, concurrent runs", target, columns, cases)
