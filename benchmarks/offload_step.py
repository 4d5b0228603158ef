"""Moving the results of one step into a store that takes its time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import anyio

from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, TIME, Group
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

WRITE_SECONDS = 0.05
RESULTS = 8


def _one_step(hook: Any) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        state = state_after(RESULTS)
        before = whole_results(state)
        yield partial(run_hook, hook, state)
        assert whole_results(state) == before - RESULTS, "not all results were moved"

    return prepare


@contextmanager
def _concurrent_sleeps() -> Iterator[Action]:
    async def act() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(RESULTS):
                group.start_soon(anyio.sleep, WRITE_SECONDS)

    yield act


async def one_step(*, repetitions: int, quick: bool) -> Group:
    """Time one step with eight results."""
    subject = f"{RESULTS} results, {WRITE_SECONDS * 1000:.0f} ms a write"
    cases = [
        Case(subject, HAYBALER, _one_step(haybaler_hook(AsyncStore(WRITE_SECONDS)))),
        Case(subject, f"{HAYBALER}, blocking store", _one_step(haybaler_hook(BlockingStore(WRITE_SECONDS)))),
        Case(subject, f"{HAYSTACK}, blocking store", _one_step(haystack_hook(BlockingStore(WRITE_SECONDS)))),
        Case(subject, RAW, _concurrent_sleeps),
    ]
    await measure(cases, repetitions=repetitions)
    target = f"Target: at most 70 ms. The floor: {RESULTS} concurrent sleeps."
    return Group("step", "ToolResultOffloadHook, one step", target, [TIME, *LOOP], cases)
