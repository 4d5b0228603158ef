"""Group commit on real servers: round trips, connections, outages, clusters; and the same without it."""

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
from redis.crc import key_slot
from tests.services.proxy import Proxy, proxy_to
from tests.services.redis_servers import REDIS, VALKEY, RedisServer, redis_cluster, redis_server, until, until_quiet

from haybaler.errors import (
    ConfigurationError,
    EntryTooLargeError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from haybaler.stores.protocol import StoreEntry
from haybaler.stores.registry import store_from_url
from haybaler.testing import Cancellation, cancel_at
from haybaler.workers import run_in_worker
from haybaler_redis import RedisToolResultStore

_CONTENT = "0123456789" * 100


def _calls(server: RedisServer, *commands: str) -> int:
    stats: dict[str, Any] = server.client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"]) for command in commands)


async def _write_in_scopes(
    store: RedisToolResultStore, count: int, content: str = _CONTENT
) -> list[str | BaseException]:
    """Write one entry in each of many scopes at the same time."""
    scopes = [store.scoped(f"run-{number}") for number in range(count)]
    writes = (scope.write_async(key="key", content=content) for scope in scopes)
    return await asyncio.gather(*writes, return_exceptions=True)


def _references(store: RedisToolResultStore, count: int) -> list[str]:
    return [store.scoped(f"run-{number}").reference("key") for number in range(count)]


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
@pytest.mark.parametrize("ttl", [60, None])
def test_a_thousand_runs_write_over_few_connections_in_few_round_trips(
    request: pytest.FixtureRequest, prefix: str, kind: str, ttl: int | None
) -> None:
    server: RedisServer = request.getfixturevalue("valkey" if kind == VALKEY else "redis6")
    until_quiet(server)
    store = RedisToolResultStore(server.url, prefix=prefix, ttl=ttl, max_connections=4)
    peak = 0

    async def write() -> list[str | BaseException]:
        nonlocal peak
        await store.warm_up_async()
        await run_in_worker(server.client.config_resetstat)
        results = await _write_in_scopes(store, 1_000)
        peak = await run_in_worker(server.connections)
        return results

    assert asyncio.run(write()) == _references(store, 1_000)
    assert 1 <= peak <= 4
    if kind == VALKEY or ttl is None:
        assert 4 <= _calls(server, "set") <= 8
        assert 1 <= _calls(server, "mset", "msetex") <= 4
    else:
        assert _calls(server, "set") == 1_000
    for number in range(0, 1_000, 97):
        scope = store.scoped(f"run-{number}")
        assert scope.read(scope.reference("key")) == _CONTENT
    store.delete_scope()
    store.close()


def test_without_group_commit_each_write_has_its_own_round_trip(valkey: RedisServer, prefix: str) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, group_commit=False)
    valkey.client.config_resetstat()
    assert asyncio.run(_write_in_scopes(store, 100)) == _references(store, 100)
    assert _calls(valkey, "set") == 100
    assert _calls(valkey, "mset", "msetex") == 0


@pytest.mark.parametrize(("connections", "alone"), [(2, 2), (4, 4), (16, 4)])
def test_few_writes_wait_for_nothing_and_what_comes_meanwhile_is_one_group(
    valkey: RedisServer, prefix: str, connections: int, alone: int
) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_connections=connections)
    valkey.client.config_resetstat()
    assert asyncio.run(_write_in_scopes(store, alone)) == _references(store, alone)
    assert (_calls(valkey, "set"), _calls(valkey, "msetex")) == (alone, 0)
    valkey.client.config_resetstat()
    assert asyncio.run(_write_in_scopes(store, 16)) == _references(store, 16)
    assert (_calls(valkey, "set"), _calls(valkey, "msetex")) == (alone, 1)
    store.close()


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
def test_an_entry_that_is_too_large_fails_for_its_own_run_among_others(
    request: pytest.FixtureRequest, prefix: str, kind: str
) -> None:
    server: RedisServer = request.getfixturevalue("valkey" if kind == VALKEY else "redis6")
    store = RedisToolResultStore(server.url, prefix=prefix, ttl=60, max_connections=2, max_bytes=2_000)
    sizes = [2_001 if number in {0, 50, 199} else 9 * 1024 * 1024 if number == 100 else 500 for number in range(200)]

    async def write() -> list[str | BaseException]:
        writes = (store.scoped(f"run-{n}").write_async(key="key", content="x" * size) for n, size in enumerate(sizes))
        return await asyncio.gather(*writes, return_exceptions=True)

    expected = _references(store, 200)
    for number, outcome in enumerate(asyncio.run(write())):
        if sizes[number] > 2_000:
            assert type(outcome) is EntryTooLargeError
        else:
            assert outcome == expected[number]


def test_of_writes_of_one_key_the_later_one_wins(valkey: RedisServer, prefix: str) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_connections=4)

    async def write() -> None:
        keys = [f"key-{number}" for number in range(20)]
        await asyncio.gather(*(store.write_async(key=key, content=str(turn)) for turn in range(20) for key in keys))

    asyncio.run(write())
    assert {store.read(store.reference(f"key-{number}")) for number in range(20)} == {"19"}
    store.close()


def test_runs_in_the_middle_of_an_outage_go_on(valkey: RedisServer, prefix: str) -> None:
    with proxy_to(valkey.port) as proxy, ThreadPoolExecutor(1) as pool:
        store = RedisToolResultStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, ttl=60, retries=10)
        writing = pool.submit(asyncio.run, _write_in_scopes(store, 500, "x" * 20_000))
        until(lambda: proxy.accepted)
        proxy.cut()
        proxy.restore()
        assert writing.result() == _references(store, 500)
        store.close()


def test_a_server_that_is_killed_in_the_middle_fails_each_run_with_an_error_of_its_own(prefix: str) -> None:
    with redis_server(VALKEY) as server:
        store = RedisToolResultStore(server.url, prefix=prefix, max_connections=2, retries=1)

        async def write() -> list[str | BaseException]:
            await store.write_async(key="before", content="content")
            killing = asyncio.ensure_future(run_in_worker(server.process.kill))
            results: list[str | BaseException] = []
            while not killing.done():
                results += await _write_in_scopes(store, 200, "x" * 20_000)
            return results + await _write_in_scopes(store, 200)

        results = asyncio.run(write())
        errors = [result for result in results if isinstance(result, BaseException)]
        assert {type(error) for error in errors} == {StoreUnavailableError}
        assert len(errors) >= 200
        assert len({id(error) for error in errors}) == len(errors)
        server.process.start()
        assert asyncio.run(_write_in_scopes(store, 200)) == _references(store, 200)


def test_runs_wait_for_a_hung_server_no_longer_than_a_connection_is_waited_for(prefix: str) -> None:
    with redis_server(VALKEY) as server:
        store = RedisToolResultStore(server.url, prefix=prefix, max_connections=1, retries=0, pool_timeout=0.2)

        async def write() -> list[str | BaseException]:
            await store.warm_up_async()
            server.process.send(signal.SIGSTOP)
            first = asyncio.ensure_future(_write_in_scopes(store, 1))
            await asyncio.sleep(0)
            try:
                others = await _write_in_scopes(store, 50)
                assert not first.done()
            finally:
                server.process.send(signal.SIGCONT)
            return await first + others

        first, *others = asyncio.run(write())
        assert isinstance(first, str)
        assert {type(result) for result in others} == {StoreTimeoutError}


@pytest.mark.anyio
async def test_a_cancelled_run_leaves_after_its_group_and_the_others_lose_nothing(
    valkey: RedisServer, prefix: str
) -> None:
    proxy = await run_in_worker(Proxy, valkey.port)
    store = RedisToolResultStore(f"redis://127.0.0.1:{proxy.port}", prefix=prefix, ttl=60, max_connections=1)
    await store.warm_up_async()
    proxy.flow.clear()
    blocking = asyncio.ensure_future(store.write_async(key="blocking", content="content"))
    await asyncio.sleep(0)
    tasks = [asyncio.ensure_future(store.write_async(key=key, content="content")) for key in "abc"]
    await _turns()
    proxy.flow.set()
    await blocking
    proxy.flow.clear()
    await _turns()
    tasks[0].cancel()
    tasks[2].cancel()
    await _turns()
    assert not any(task.done() for task in tasks)
    proxy.flow.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError, str, asyncio.CancelledError]
    assert await store.read_async(store.reference("a")) == "content"
    assert proxy.accepted == 1  # the connection is as good as before
    await store.close_async()
    await run_in_worker(proxy.cut)


async def _turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.parametrize("by", Cancellation)
def test_a_run_that_is_cancelled_at_any_suspension_harms_no_other(
    valkey: RedisServer, prefix: str, by: Cancellation
) -> None:
    # Some cancellations move the clock, so none of the times may be near.
    store = RedisToolResultStore(
        valkey.url,
        prefix=prefix,
        ttl=60,
        max_connections=2,
        retries=0,
        timeout=1e8,
        connect_timeout=1e8,
        pool_timeout=1e8,
    )
    others: list[asyncio.Task[list[str | StoreError]]] = []
    results: list[list[str | StoreError]] = []

    def start(name: str) -> None:
        entries = [StoreEntry(f"{name}-{number}", name) for number in range(3)]
        others.append(asyncio.ensure_future(store.scoped(name).write_many_async(entries)))

    async def victim() -> None:
        for name in "abc":
            start(name)
        await asyncio.sleep(0)
        writing = store.write_many_async([StoreEntry(str(number), "victim") for number in range(3)])
        start("d")
        await writing

    async def finish() -> None:
        results[:] = await asyncio.gather(*others)
        assert await store.read_async(await store.write_async(key="again", content="content")) == "content"
        await store.close_async()

    for step in range(1, 200, 2):
        others.clear()
        reached = cancel_at(victim, step=step, by=by, afterwards=finish)
        for name, outcomes in zip("abcd", results, strict=False):
            assert outcomes == [store.scoped(name).reference(f"{name}-{number}") for number in range(3)]
        if not reached:
            break
    assert step > 20


def test_two_event_loops_in_two_threads_group_for_themselves(valkey: RedisServer, prefix: str) -> None:
    until_quiet(valkey)
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_connections=2)
    barrier = threading.Barrier(2)

    def run(name: str) -> list[str | BaseException]:
        barrier.wait()
        return asyncio.run(_write_in_scopes(store.scoped(name), 300))

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, ("one", "other")))
    assert results == [_references(store.scoped(name), 300) for name in ("one", "other")]
    until(lambda: valkey.connections() == 0)


def test_closing_leaves_no_connection_behind_for_writes_that_wait(valkey: RedisServer, prefix: str) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_connections=2)

    async def write_and_close() -> None:
        writing = asyncio.ensure_future(_write_in_scopes(store, 100))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not writing.done()
        await store.close_async()
        assert await writing == _references(store, 100)
        await run_in_worker(until, lambda: valkey.connections() == 0)

    until_quiet(valkey)
    asyncio.run(write_and_close())


@pytest.mark.parametrize("library", [redis, aioredis], ids=["sync", "async"])
def test_a_ready_client_serves_groups(valkey: RedisServer, prefix: str, library: Any) -> None:
    client = library.Redis(port=valkey.port)
    store = RedisToolResultStore(client=client, prefix=prefix, ttl=60, max_connections=2)

    async def write() -> list[str | BaseException]:
        try:
            return await _write_in_scopes(store, 100)
        finally:
            closing = client.aclose() if library is aioredis else run_in_worker(client.close)
            await closing

    valkey.client.config_resetstat()
    assert asyncio.run(write()) == _references(store, 100)
    assert _calls(valkey, "set") == 2


def test_in_a_cluster_a_node_that_hangs_holds_up_its_own_runs_only(prefix: str) -> None:
    with redis_cluster() as servers:
        url = "redis://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
        store = RedisToolResultStore(url, cluster=True, prefix=prefix, max_connections=2, retries=0, timeout=60)
        paths = [f"{prefix}:{reference.partition('/')[2]}" for reference in _references(store, 300)]
        hung = [key_slot(path.encode()) >= 2 * (16384 // 3) for path in paths]

        async def write() -> list[str]:
            assert await _write_in_scopes(store, 300) == _references(store, 300)
            servers[2].process.send(signal.SIGSTOP)
            try:
                scopes = [store.scoped(f"run-{number}") for number in range(300)]
                tasks = [asyncio.ensure_future(scope.write_async(key="key", content="new")) for scope in scopes]
                await asyncio.wait_for(
                    asyncio.gather(*(task for task, waits in zip(tasks, hung, strict=True) if not waits)), 50
                )
                assert [task.done() for task in tasks] == [not waits for waits in hung]
            finally:
                servers[2].process.send(signal.SIGCONT)
            return await asyncio.gather(*tasks)

        assert asyncio.run(write()) == _references(store, 300)
        assert any(hung)
        store.close()


def test_group_commit_is_a_setting_like_the_others() -> None:
    for given in (True, False):
        store = RedisToolResultStore("redis://host", group_commit=given)
        assert store.to_dict()["init_parameters"]["group_commit"] is given
        again = RedisToolResultStore.from_dict(store.to_dict())
        assert (again._groups is not None) is given
        from_url = store_from_url(f"redis://host?group_commit={str(given).lower()}")
        assert isinstance(from_url, RedisToolResultStore)
        assert (from_url._groups is not None) is given
    assert RedisToolResultStore("redis://host").to_dict()["init_parameters"]["group_commit"] is True


@pytest.mark.parametrize("value", [None, 1, "true"])
def test_group_commit_is_on_or_off(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="group_commit"):
        RedisToolResultStore("redis://host", group_commit=value)
    with pytest.raises(ConfigurationError, match="group_commit"):
        store_from_url("redis://host?group_commit=1")
