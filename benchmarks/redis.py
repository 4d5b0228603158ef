"""Writing a batch of entries into a Redis server."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis.asyncio as aioredis
from tests.services.redis_servers import RedisServer, redis_server

from benchmarks.batches import Place, Write, batch_cases, write_all
from benchmarks.report import HAYBALER, LOOP, RAW, TIME, Group
from benchmarks.timing import measure
from haybaler import StoreEntry
from haybaler_redis import RedisToolResultStore

CHUNK = 100  # commands of one pipeline
TTL = 3600  # seconds
LIMITS = {"max_connections": 16, "timeout": 30}  # of the blocking pool of connections

# The same keys for everybody, so that the server has the same work.
_PREFIX = "haybaler:"


async def _haybaler(store: RedisToolResultStore, entries: list[StoreEntry]) -> None:
    await write_all(store, entries)


async def _pipeline(client: Any, entries: list[StoreEntry], *, ttl: int | None) -> None:
    async with client.pipeline(transaction=False) as pipeline:
        for entry in entries:
            pipeline.set(_PREFIX + entry.key, entry.content, ex=ttl)
        assert all(await pipeline.execute())


async def _chunks(client: Any, entries: list[StoreEntry], *, ttl: int | None) -> None:
    for start in range(0, len(entries), CHUNK):
        await _pipeline(client, entries[start : start + CHUNK], ttl=ttl)


async def _many(client: Any, entries: list[StoreEntry], *, ttl: int | None) -> None:
    pairs = {_PREFIX + entry.key: entry.content for entry in entries}
    assert await (client.mset(pairs) if ttl is None else client.msetex(pairs, ex=ttl))


async def _one_by_one(client: Any, entries: list[StoreEntry], *, ttl: int | None) -> None:
    for entry in entries:
        assert await client.set(_PREFIX + entry.key, entry.content, ex=ttl)


def _emptied(server: RedisServer) -> Place[None]:
    @contextmanager
    def place() -> Iterator[None]:
        server.client.flushall()
        yield

    return place


def _ways(store: RedisToolResultStore, client: Any, ttl: int | None) -> dict[str, Write[None]]:
    raw = {
        "redis-py, one by one": _one_by_one,
        f"{RAW}: one pipeline": _pipeline,
        f"{RAW}: pipelines of {CHUNK}": _chunks,
        f"{RAW}: {'MSET' if ttl is None else 'MSETEX'}": _many,
    }

    def bound(write: Any, target: Any) -> Write[None]:
        return lambda _, entries: write(target, entries)

    return {
        HAYBALER: bound(_haybaler, store),
        **{who: bound(partial(write, ttl=ttl), client) for who, write in raw.items()},
    }


async def redis(*, repetitions: int, quick: bool) -> Group:
    """Time batches of small, middling and big entries against valkey-server, for ever and with a time to live."""
    with redis_server() as server:
        client = aioredis.Redis.from_pool(aioredis.BlockingConnectionPool.from_url(server.url, **LIMITS))
        lasting, expiring = RedisToolResultStore(server.url), RedisToolResultStore(server.url, ttl=TTL)
        async with client, lasting, expiring:
            cases = [
                *batch_cases(_ways(lasting, client, None), _emptied(server), quick=quick),
                *batch_cases(_ways(expiring, client, TTL), _emptied(server), quick=quick, note=", with a ttl"),
            ]
            await measure(cases, repetitions=repetitions)
    target = (
        "Target: 1.3 x the quickest way of redis-py, the floor, and the loop stands still for at most 10 ms. "
        "The same keys and contents for everybody."
    )
    return Group("redis", "RedisToolResultStore.write_many_async", target, [TIME, *LOOP], cases)
