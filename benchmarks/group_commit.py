"""Writes of many runs at the same time, with and without group commit: in Redis, and in the store of the examples."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from statistics import median
from time import perf_counter

import redis.asyncio as aioredis
from tests.services.redis_servers import redis_server

from benchmarks.report import HAYBALER, LOOP, RAW, TIME, Column, Group
from benchmarks.timing import Action, Case, measure
from examples.own_store import SQLiteToolResultStore
from haybaler import BaseToolResultStore, StoreEntry
from haybaler_redis import RedisToolResultStore

ENTRIES = 1_000
CONNECTIONS = 16  # as many as the store has
PIPELINE = 128  # commands; more in one make the client slower
TTL = 600
CONTENT = "x" * 10 * 1024
UNGROUPED = f"{HAYBALER}, without group commit"

Write = Callable[[str], Awaitable[object]]  # of one entry, under a key
Figures = dict[str, float]


async def _in_runs(write: Write, count: int, runs: int) -> Figures:
    """Write `count` entries, in so many runs at the same time, each one after another."""
    times: list[float] = []

    async def run(number: int) -> None:
        for index in range(count // runs):
            before = perf_counter()
            await write(f"{number}-{index}")
            times.append(perf_counter() - before)

    await asyncio.gather(*map(run, range(runs)))
    return {"latency": median(times)}


async def _in_one_batch(store: BaseToolResultStore) -> None:
    outcomes = await store.write_many_async([StoreEntry(str(number), CONTENT) for number in range(ENTRIES)])
    assert all(isinstance(outcome, str) for outcome in outcomes), "an entry was not written"


async def _in_pipelines(client: "aioredis.Redis") -> None:
    for start in range(0, ENTRIES, PIPELINE):
        pipeline = client.pipeline(transaction=False)
        for number in range(start, min(start + PIPELINE, ENTRIES)):
            pipeline.set(f"raw-{number}", CONTENT.encode(), ex=TTL)
        await pipeline.execute()


def _of_store(store: BaseToolResultStore) -> Write:
    async def write(key: str) -> None:
        run, _, _ = key.partition("-")
        await store.scoped(run).write_async(key=key, content=CONTENT)

    return write


def _of_client(client: "aioredis.Redis") -> Write:
    async def write(key: str) -> None:
        await client.set(f"raw-{key}", CONTENT.encode(), ex=TTL)

    return write


def _case(subject: str, who: str, action: Action) -> Case:
    @contextmanager
    def prepare() -> Iterator[Action]:
        yield action

    return Case(subject, who, prepare)


class _Ungrouped(SQLiteToolResultStore):
    def __init__(self, file: str) -> None:
        super().__init__(file)
        self._groups = None


def _in_sqlite(store_class: type[SQLiteToolResultStore], count: int) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        with tempfile.TemporaryDirectory() as folder:
            yield partial(_in_runs, _of_store(store_class(f"{folder}/results.db")), count, count)

    return prepare


async def group_commit(*, repetitions: int, quick: bool) -> Group:
    """Time single writes of more and fewer runs at the same time, and one batch, against `valkey-server`."""
    cases: list[Case] = []
    with redis_server() as server:
        stores: Sequence[tuple[str, RedisToolResultStore]] = [
            (HAYBALER, RedisToolResultStore(server.url, ttl=TTL)),
            (UNGROUPED, RedisToolResultStore(server.url, ttl=TTL, group_commit=False)),
        ]
        pool = aioredis.BlockingConnectionPool(port=server.port, max_connections=CONNECTIONS)
        async with aioredis.Redis(connection_pool=pool) as client:
            for runs in [ENTRIES] if quick else [1, CONNECTIONS, 64, ENTRIES]:
                subject = f"{ENTRIES:,} x 10 KB, {runs:,} {'run' if runs == 1 else 'runs'}"
                cases += [
                    *(_case(subject, who, partial(_in_runs, _of_store(store), ENTRIES, runs)) for who, store in stores),
                    _case(subject, RAW, partial(_in_runs, _of_client(client), ENTRIES, runs)),
                ]
            subject = f"{ENTRIES:,} x 10 KB, one batch"
            cases += [
                *(_case(subject, who, partial(_in_one_batch, store)) for who, store in stores),
                _case(subject, RAW, partial(_in_pipelines, client)),
            ]
            count = 50 if quick else 200
            subject = f"{count:,} x 10 KB, {count:,} runs, SQLite"
            cases += [
                Case(subject, HAYBALER, _in_sqlite(SQLiteToolResultStore, count)),
                Case(subject, UNGROUPED, _in_sqlite(_Ungrouped, count)),
            ]
            await measure(cases, repetitions=repetitions)
            for _, store in stores:
                await store.close_async()
    return Group(
        name="groups",
        title="write_async of many runs at the same time, with and without group commit",
        target="Target: with 1,000 runs faster than redis-py's single SETs; with few never slower than without.",
        columns=[TIME, Column("latency", "median write"), *LOOP],
        cases=cases,
    )
