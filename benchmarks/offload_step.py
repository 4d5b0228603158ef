"""Moving the results of one step, and of many runs at once, into a store that takes its time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from statistics import quantiles
from time import perf_counter, sleep
from typing import Any

import anyio
from haystack.components.agents.state.state import State
from haystack.hooks.invocation import _run_hooks_async
from haystack.hooks.tool_result_offloading import AlwaysOffload as HaystackAlwaysOffload
from haystack.hooks.tool_result_offloading import ToolResultOffloadHook as HaystackOffloadHook

import haybaler
from benchmarks.conversations import conversation, state_of, step
from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, TIME, Column, Group
from benchmarks.timing import Action, Case, measure

WRITE_SECONDS = 0.05
RESULTS = 8


class SlowStore:
    """A store whose writes wait, as for a server, in a blocking way."""

    def write(self, *, key: str, content: str | bytes) -> str:
        sleep(WRITE_SECONDS)
        return key

    def read(self, reference: str) -> str | bytes:
        return reference

    def to_dict(self) -> dict[str, Any]:
        return {}


class SlowAsyncStore(SlowStore):
    """The same store for asynchronous callers."""

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        await anyio.sleep(WRITE_SECONDS)
        return key


def _haybaler_hook(store: SlowStore) -> Any:
    return haybaler.ToolResultOffloadHook(store, {"*": haybaler.AlwaysOffload()})


def _haystack_hook(store: Any) -> Any:
    return HaystackOffloadHook(store, {"*": HaystackAlwaysOffload()})


async def _run_hook(hook: Any, state: State) -> None:
    """Call a hook the way `Agent.run_async` does."""
    await _run_hooks_async({"after_tool": [hook]}, "after_tool", state)


def _state(results: int) -> State:
    return state_of([*conversation(12, 40_000), *step(["The quick brown fox. " * 200] * results, 99)])


def _whole(state: State) -> int:
    return sum("tool_result_offloaded" not in m.meta for m in state.data["messages"] if m.tool_call_results)


def _one_step(make_hook: Callable[[SlowStore], Any], store: SlowStore) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        state, hook = _state(RESULTS), make_hook(store)
        before = _whole(state)

        async def act() -> None:
            await _run_hook(hook, state)

        yield act
        assert _whole(state) == before - RESULTS, "not all results were moved"

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
        Case(subject, HAYBALER, _one_step(_haybaler_hook, SlowAsyncStore())),
        Case(subject, f"{HAYBALER}, blocking store", _one_step(_haybaler_hook, SlowStore())),
        Case(subject, f"{HAYSTACK}, blocking store", _one_step(_haystack_hook, SlowStore())),
        Case(subject, RAW, _concurrent_sleeps),
    ]
    await measure(cases, repetitions=repetitions)
    target = f"Target: at most 70 ms. The floor: {RESULTS} concurrent sleeps."
    return Group("step", "ToolResultOffloadHook, one step", target, [TIME, *LOOP], cases)


Run = Callable[[], Awaitable[None]]


async def _many(runs: list[Run]) -> dict[str, float]:
    """Await all runs at once, and meanwhile let somebody else use a thread of the event loop's own."""
    begun = perf_counter()
    waits: list[float] = []
    probing = True

    async def ended(run: Run) -> float:
        await run()
        return perf_counter() - begun

    async def probe() -> None:
        while probing:
            asked = perf_counter()
            await asyncio.to_thread(int)
            waits.append(perf_counter() - asked)
            await asyncio.sleep(0.005)

    others = asyncio.create_task(probe())
    # The runs first: the probe must queue behind them, as anybody who comes later does.
    times = await asyncio.gather(*(ended(run) for run in runs))
    probing = False
    await others
    return {"p50": quantiles(times, n=100)[49], "p99": quantiles(times, n=100)[98], "wait": max(waits)}


def _many_runs(
    count: int, make_hook: Callable[[SlowStore], Any], store: SlowStore
) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        hook = make_hook(store)
        states = [_state(1) for _ in range(count)]

        async def act() -> dict[str, float]:
            return await _many([partial(_run_hook, hook, state) for state in states])

        yield act

    return prepare


async def many_runs(*, repetitions: int, quick: bool) -> Group:
    """Time many runs at once that all move a result through one hook."""
    count = 50 if quick else 200

    @contextmanager
    def sleeps() -> Iterator[Action]:
        async def act() -> dict[str, float]:
            return await _many([lambda: asyncio.sleep(WRITE_SECONDS)] * count)

        yield act

    subject = f"{count} runs, {WRITE_SECONDS * 1000:.0f} ms a write"
    cases = [
        Case(subject, HAYBALER, _many_runs(count, _haybaler_hook, SlowAsyncStore())),
        Case(subject, f"{HAYBALER}, blocking store", _many_runs(count, _haybaler_hook, SlowStore())),
        Case(subject, f"{HAYSTACK}, blocking store", _many_runs(count, _haystack_hook, SlowStore())),
        Case(subject, RAW, sleeps),
    ]
    await measure(cases, repetitions=repetitions)
    columns = [
        Column("seconds", "all runs"),
        Column("p99", "p99"),
        Column("wait", "others' thread waits"),
        *LOOP,
    ]
    target = f"Target: nobody else waits. The floor: {count} concurrent sleeps."
    return Group("runs", "ToolResultOffloadHook, concurrent runs", target, columns, cases)
