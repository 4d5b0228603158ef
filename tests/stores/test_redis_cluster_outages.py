"""A cluster whose nodes hang: told soon, to all who ask at once, and to nobody whose node is well."""

import asyncio
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from redis.crc import key_slot
from tests.services.redis_servers import RedisServer, redis_cluster, until

from haybaler.effects import Steps
from haybaler.errors import StoreError, StoreTimeoutError, StoreUnavailableError
from haybaler.stores.protocol import StoreEntry
from haybaler.workers import run_in_worker
from haybaler_redis import RedisToolResultStore
from haybaler_redis.connecting import Opened
from haybaler_redis.links import AsyncLink

_TIMEOUT = 0.3
_CALLERS = 8
_ENTRIES = [StoreEntry(f"key-{number}", f"content {number}") for number in range(60)]


@pytest.fixture(scope="module")
def servers() -> Iterator[list[RedisServer]]:
    with redis_cluster() as servers:
        yield servers


@pytest.fixture
def store(servers: list[RedisServer], prefix: str) -> Iterator[RedisToolResultStore]:
    with _store(servers, prefix) as store:
        yield store


def _store(
    servers: list[RedisServer], prefix: str, *, retries: int = 5, timeout: float = _TIMEOUT
) -> RedisToolResultStore:
    url = "redis://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
    return RedisToolResultStore(
        url, cluster=True, prefix=prefix, ttl=60, retries=retries, timeout=timeout, connect_timeout=timeout
    )


@contextmanager
def _hung(servers: list[RedisServer]) -> Iterator[None]:
    for server in servers:
        server.process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        for server in servers:
            server.process.send(signal.SIGCONT)


def _read_at_once(
    store: RedisToolResultStore, servers: list[RedisServer], *, is_async: bool, warm: bool
) -> tuple[list[object], float]:
    """Return what comes of several reads that begin together while all nodes hang, and after how many seconds."""

    def read(_: int) -> object:
        try:
            return store.read(store.reference("key-0"))
        except StoreError as error:
            return error

    async def read_all() -> tuple[list[object], float]:
        if warm:
            await store.warm_up_async()
        with _hung(servers):
            begun = time.monotonic()
            reads = (store.read_async(store.reference("key-0")) for _ in range(_CALLERS))
            results = await asyncio.gather(*reads, return_exceptions=True)
            return list(results), time.monotonic() - begun

    if is_async:
        return asyncio.run(read_all())
    if warm:
        store.warm_up()
    with _hung(servers), ThreadPoolExecutor(_CALLERS) as pool:
        begun = time.monotonic()
        return list(pool.map(read, range(_CALLERS))), time.monotonic() - begun


@pytest.mark.parametrize("warm", [True, False], ids=["connected", "unconnected"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_row_9_a_cluster_that_hangs_is_a_timeout_soon_for_all_who_ask_at_once(
    servers: list[RedisServer], store: RedisToolResultStore, is_async: bool, warm: bool
) -> None:
    results, seconds = _read_at_once(store, servers, is_async=is_async, warm=warm)
    assert {type(result) for result in results} == {StoreTimeoutError}
    # The request itself, and one look at the nodes, one after another. Each caller of its own would add as much.
    assert seconds < 2 * (1 + len(servers)) * _TIMEOUT
    until(lambda: all(isinstance(outcome, str) for outcome in store.write_many(_ENTRIES)))
    assert store.read(store.reference("key-0")) == "content 0"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_row_9_a_large_cluster_that_hangs_is_told_as_soon_as_a_small_one(prefix: str, is_async: bool) -> None:
    with redis_cluster(9) as servers, _store(servers[:3], prefix) as store:
        results, seconds = _read_at_once(store, servers, is_async=is_async, warm=True)
        assert {type(result) for result in results} == {StoreTimeoutError}
        assert seconds < 2 * (1 + 3) * _TIMEOUT
        until(lambda: all(isinstance(outcome, str) for outcome in store.write_many(_ENTRIES)))


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_row_9_a_long_batch_waits_for_each_hung_node_once(
    servers: list[RedisServer], store: RedisToolResultStore, is_async: bool
) -> None:
    store.warm_up()

    async def write() -> list[str | StoreError]:
        await store.warm_up_async()
        with _hung(servers):
            return await store.write_many_async(_ENTRIES)

    begun = time.monotonic()
    if is_async:
        outcomes = asyncio.run(write())
    else:
        with _hung(servers):
            outcomes = store.write_many(_ENTRIES)
    assert {type(outcome) for outcome in outcomes} == {StoreTimeoutError}
    assert time.monotonic() - begun < 2 * (len(servers) + len(servers)) * _TIMEOUT
    until(lambda: all(isinstance(outcome, str) for outcome in store.write_many(_ENTRIES)))


def test_row_19_who_asks_nodes_that_are_well_does_not_wait_for_one_that_hangs(
    servers: list[RedisServer], store: RedisToolResultStore, prefix: str
) -> None:
    store.write_many(_ENTRIES)
    slots = {entry.key: key_slot(f"{prefix}:{entry.key}".encode()) for entry in _ENTRIES}
    well = [store.reference(key) for key, slot in slots.items() if slot < 2 * (16384 // 3)]
    lost = [store.reference(key) for key, slot in slots.items() if slot >= 2 * (16384 // 3)]

    async def read_all() -> tuple[list[object], int]:
        await store.warm_up_async()
        with _hung(servers[2:]):
            failing = asyncio.gather(*(store.read_async(reference) for reference in lost[:4]), return_exceptions=True)
            rounds = 0
            while not failing.done():
                assert all(await asyncio.gather(*(store.read_async(reference) for reference in well[:4])))
                rounds += 1
            return list(await failing), rounds

    results, rounds = asyncio.run(read_all())
    assert {type(result) for result in results} == {StoreTimeoutError}
    assert rounds > 10


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_row_19_the_replica_of_a_dead_node_is_found_by_the_same_client_without_retries(
    prefix: str, is_async: bool
) -> None:
    async def write_until_all_are_well(store: RedisToolResultStore, first: RedisServer) -> None:
        await store.write_many_async(_ENTRIES)
        await run_in_worker(first.process.kill)
        outcomes: list[str | StoreError] = [StoreUnavailableError()]
        while not all(isinstance(outcome, str) for outcome in outcomes):
            await asyncio.sleep(0.05)
            outcomes = await store.write_many_async(_ENTRIES)
            # A node that is busy with the failover may answer late instead.
            assert all(isinstance(outcome, (str, StoreUnavailableError)) for outcome in outcomes)

    with redis_cluster(replicas=1) as servers, _store(servers[1:3], prefix, retries=0, timeout=5) as store:
        if is_async:
            asyncio.run(write_until_all_are_well(store, servers[0]))
        else:
            store.write_many(_ENTRIES)
            servers[0].process.kill()
            until(lambda: all(isinstance(outcome, str) for outcome in store.write_many(_ENTRIES)))


def test_row_7_closing_waits_for_who_is_connecting(servers: list[RedisServer], store: RedisToolResultStore) -> None:
    store.close()
    until(lambda: all(server.connections() == 0 for server in servers))
    with ThreadPoolExecutor(2) as pool:
        with _hung(servers):
            reading = pool.submit(store.write, key="a", content="b")
            time.sleep(_TIMEOUT / 4)
            closing = pool.submit(store.close)
        closing.result()
        assert reading.result() == store.reference("a")
    until(lambda: all(server.connections() == 0 for server in servers))


@pytest.mark.anyio
async def test_a_cluster_that_is_looked_at_by_who_is_cancelled_leaves_no_node_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Node:
        def __init__(self, *, hangs: bool = False) -> None:
            self.is_connected, self.hangs = True, hangs

        async def disconnect(self) -> None:
            while self.hangs:
                begun.set()
                await asyncio.sleep(60)
            self.is_connected = False

    async def nothing() -> None:
        return None

    found = iter([[hanging := Node(hangs=True)], [other := Node()], []])
    begun = asyncio.Event()
    monkeypatch.setattr("haybaler_redis.links.look_around", lambda client: completed(next(found)))
    link = AsyncLink(Opened(object(), nothing, nothing, lambda nodes: None), limit=1, wait=1)
    await link.look_around()
    looking = asyncio.create_task(link.look_around())
    await begun.wait()
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking
    hanging.hangs = False
    await link.look_around()
    assert not hanging.is_connected
    assert not other.is_connected
    await link.close()


def completed(nodes: list[Any]) -> Steps[list[Any]]:
    yield from ()
    return nodes
