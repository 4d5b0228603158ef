"""What one large run does to its neighbours: 200 small runs go on while a conversation of 4 MB is compacted."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

import haystack.token_counters as haystack_counters
from haystack.dataclasses import ChatMessage

import haybaler
from benchmarks.compaction import COMPACTORS, FILL, haybaler_hook, haystack_hook, run_hook
from benchmarks.conversations import conversation, state_of
from benchmarks.report import HAYBALER, HAYSTACK, RAW, Column, Group
from benchmarks.timing import Action, Case, measure

MESSAGES, CHARACTERS = 4_002, 4_000_000
RUNS = 200
PAUSE = 0.1  # seconds between two steps of a small run: its model and its tools
BEAT = 0.002
ALONE = 0.5  # seconds of the floor, in which there is no large run


class Neighbours:
    """Small runs that take a step now and then, far from compaction, and a heartbeat; all on one event loop."""

    def __init__(self, hook: Any) -> None:
        self._hook = hook
        self._states = [state_of(conversation(8, 4_000)) for _ in range(RUNS)]
        for state in self._states:
            hook.run(state)
        self._times: list[float] = []
        self._delay = self._own = 0.0

    async def _run(self, number: int, state: Any) -> None:
        await asyncio.sleep(PAUSE * number / RUNS)
        while True:
            state.data["messages"] = [*state.data["messages"], ChatMessage.from_assistant("I look further.")]
            before = perf_counter()
            await run_hook(self._hook, state)
            self._times.append(perf_counter() - before)
            await asyncio.sleep(PAUSE)

    async def _beat(self) -> None:
        while True:
            before, worked = perf_counter(), process_time()
            try:
                await asyncio.sleep(BEAT)
            finally:
                delay = perf_counter() - before - BEAT
                self._delay = max(self._delay, delay)
                self._own = max(self._own, min(delay, process_time() - worked))

    async def beside(self, large: Callable[[], Awaitable[object]]) -> dict[str, float]:
        """Let them go on while something large is awaited, and return what they noticed of it."""
        tasks = [asyncio.create_task(self._run(*numbered)) for numbered in enumerate(self._states)]
        beats = asyncio.create_task(self._beat())
        await asyncio.sleep(2 * PAUSE)
        self._times.clear()
        self._delay = self._own = 0.0
        begun = perf_counter()
        await large()
        seconds = perf_counter() - begun
        await asyncio.sleep(2 * BEAT)  # a delay at the very end shows in the beat that was due meanwhile
        for task in (*tasks, beats):
            task.cancel()
        await asyncio.gather(*tasks, beats, return_exceptions=True)
        times = quantiles(self._times, n=100)
        return {"delay": self._delay, "own": self._own, "p50": times[49], "p99": times[98], "large": seconds}


def _beside(hook: Any, messages: Sequence[ChatMessage] | None) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        state = None if messages is None else state_of(messages)
        small = Neighbours(hook)

        async def act() -> dict[str, float]:
            return await small.beside(lambda: asyncio.sleep(ALONE) if state is None else run_hook(hook, state))

        # A collection of all the garbage there may be in this process would stop every thread, whatever they do.
        gc.collect()
        gc.freeze()
        try:
            yield act
        finally:
            gc.unfreeze()
        assert state is None or state.data["messages"] != messages, "nothing was compacted"

    return prepare


async def neighbours(*, repetitions: int, quick: bool) -> Group:
    """Time small runs beside a large one."""
    counter, haystack_counter = haybaler.TiktokenCounter(), haystack_counters.TiktokenCounter()
    messages = conversation(MESSAGES, CHARACTERS)
    window = int(counter.count(messages) / FILL)
    cases: list[Case] = []
    for name, (ours, theirs) in COMPACTORS.items():
        our_hook, their_hook = haybaler_hook(ours(), counter, window), haystack_hook(theirs(), haystack_counter, window)
        subject = f"{name}, {MESSAGES:,} messages, {CHARACTERS / 1e6:.0f} MB"
        cases += [
            Case(subject, HAYBALER, _beside(our_hook, messages)),
            Case(subject, HAYSTACK, _beside(their_hook, messages)),
            Case(subject, RAW, _beside(our_hook, None)),
        ]
    await measure(cases, repetitions=repetitions)
    columns = [
        Column("own", "own delay"),
        Column("delay", "any delay"),
        Column("p50", "p50 of hooks"),
        Column("p99", "p99 of hooks"),
        Column("large", "large run"),
    ]
    target = (
        "Target: an own delay of at most 10 ms: the longest that a heartbeat on the event loop was late while this\n"
        f"process was working. any delay: also while others were. The floor: the small runs alone, for {ALONE} s."
    )
    return Group("neighbours", f"{RUNS} small runs beside the compaction of a large one", target, columns, cases)
