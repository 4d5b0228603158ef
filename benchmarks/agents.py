"""Whole Agents, a thousand at once on one event loop, with a real Redis server."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from multiprocessing import get_context

from tests.services.redis_servers import RedisServer, redis_server

from benchmarks.fleet import EQUIPMENT, Load, run_fleet
from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, Column, Group
from benchmarks.timing import Action, Case, measure

LOOK_EVERY = 0.1  # seconds

_COLUMNS = [
    Column("seconds", "all runs"),
    Column.plain("rate", "runs/s"),
    Column("p50", "step p50"),
    Column("p99", "step p99"),
    *LOOP,
    Column.plain("connections", "connec-\ntions"),
    Column("memory", "memory\na run", unit=" KB", scale=1 / 1024),
]


async def _beside(server: RedisServer, who: str, load: Load) -> dict[str, float]:
    """Run the Agents in a process of their own, so that its memory is theirs, and look at the server meanwhile."""
    most = 0
    with _process() as process:
        running = asyncio.get_running_loop().run_in_executor(process, run_fleet, who, server.url, load)
        while not running.done():
            await asyncio.wait([running], timeout=LOOK_EVERY)
            most = max(most, server.connections())
    return {**running.result(), "connections": float(most)}


def _process() -> Executor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"))


def _running(server: RedisServer, who: str, load: Load) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        server.client.flushall()
        yield partial(_beside, server, who, load)

    return prepare


def _cases(server: RedisServer, load: Load, *who: str) -> list[Case]:
    subject = f"{load.runs:,} runs" + (f", {load.think:g} s a reply" if load.think else "")
    return [Case(subject, each, _running(server, each, load)) for each in who or EQUIPMENT]


async def agents(*, repetitions: int, quick: bool) -> Group:
    """Run a thousand Agents of ten steps at once, which all want to go on, or whose model takes a while."""
    runs = 100 if quick else 1_000
    with redis_server() as server:
        cases = [*_cases(server, Load(runs)), *_cases(server, Load(runs, think=0.5 if quick else 2.0))]
        await measure(cases, repetitions=min(repetitions, 3), warm_up=False)
    target = (
        "10 steps, results of 20 KB, one Redis server. Target: at most 16 connections. The floor: the same Agents "
        "without hooks, which is Haystack's own share."
    )
    return Group("agents", "Agents at once", target, _COLUMNS, cases)


async def growth(*, repetitions: int, quick: bool) -> Group:
    """Run one, two and five thousand Agents at once."""
    with redis_server() as server:
        cases = [
            case
            for runs in ([50, 100, 250] if quick else [1_000, 2_000, 5_000])
            for case in _cases(server, Load(runs), HAYBALER, HAYSTACK, RAW)
        ]
        await measure(cases, repetitions=1, warm_up=False)
    columns = [Column("each", "time a run"), *_COLUMNS]
    target = "As above. Target: the time for one run stays the same, and so does its memory."
    return Group("growth", "More Agents at once", target, columns, cases)
