"""One client for each event loop and one for all threads: opened on first use, gone with the loop, never leaked."""

import asyncio
import gc
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
import trustme
from tests.services.proxy import proxy_to
from tests.services.redis_servers import RedisServer, redis_sentinel, until, until_quiet

from haybaler.errors import (
    AsyncOnlyStoreError,
    ConfigurationError,
    CorruptEntryError,
    NotSerializableError,
    StoreConfigurationError,
    StoreTimeoutError,
)
from haybaler.stores.protocol import StoreEntry
from haybaler.workers import run_in_worker
from haybaler_redis import RedisToolResultStore
from haybaler_redis.abandoned import abandon


async def _write_and_read(store: RedisToolResultStore, *keys: str) -> None:
    references = await asyncio.gather(*(store.write_async(key=key, content=key) for key in keys))
    assert await asyncio.gather(*(store.read_async(reference) for reference in references)) == list(keys)


def _run_with_care(loop: asyncio.AbstractEventLoop, store: RedisToolResultStore) -> None:
    loop.run_until_complete(_write_and_read(store, "a", "b"))
    loop.run_until_complete(loop.shutdown_asyncgens())


def _run_carelessly(loop: asyncio.AbstractEventLoop, store: RedisToolResultStore) -> None:
    loop.run_until_complete(_write_and_read(store, "a", "b"))


class Place:
    """
    What a store connects to.

    :param servers: The servers whose connections count.
    :param options: The parameters of the store.
    """

    def __init__(self, servers: Sequence[RedisServer], **options: Any) -> None:
        self._servers = servers
        self._options = options
        self._others = [0] * len(servers)
        self._others = self.connections()

    def store(self, prefix: str) -> RedisToolResultStore:
        return RedisToolResultStore(**self._options, prefix=prefix, ttl=60)

    def connections(self) -> list[int]:
        return [server.connections() - others for server, others in zip(self._servers, self._others, strict=True)]

    def is_left(self) -> bool:
        return not any(self.connections())


@contextmanager
def _plain(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: RedisServer = request.getfixturevalue("valkey")
    until_quiet(server)
    yield Place([server], url=server.url)


@contextmanager
def _tls(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: RedisServer = request.getfixturevalue("valkey")
    until_quiet(server)
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with authority.cert_pem.tempfile() as file, proxy_to(server.port, context) as proxy:
        yield Place([server], url=f"rediss://127.0.0.1:{proxy.port}", ssl_ca_certs=file)


@contextmanager
def _sentinel(request: pytest.FixtureRequest) -> Iterator[Place]:
    with redis_sentinel("results") as (primary, _, address):
        yield Place([primary], url=f"redis://{address}", sentinel="results")


@contextmanager
def _cluster(request: pytest.FixtureRequest) -> Iterator[Place]:
    servers: list[RedisServer] = request.getfixturevalue("cluster")
    until_quiet(*servers)
    yield Place(servers, url="redis://" + ",".join(f"127.0.0.1:{server.port}" for server in servers), cluster=True)


@pytest.fixture(params=[_plain, _tls, _sentinel, _cluster])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with request.param(request) as place:
        yield place


@pytest.mark.parametrize("run", [_run_with_care, _run_carelessly])
def test_rows_1_and_7_a_loop_that_was_closed_without_the_store_leaves_nothing(
    place: Place, prefix: str, run: Callable[[asyncio.AbstractEventLoop, RedisToolResultStore], None]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = place.store(prefix)
        for _ in range(3):
            loop = asyncio.new_event_loop()
            run(loop, store)
            loop.close()
            del loop
        del store
        gc.collect()
    until(place.is_left)


async def _read_in_another_loop(store: RedisToolResultStore) -> None:
    assert await store.read_async(store.reference("a")) == "a"


@pytest.mark.parametrize(
    "use",
    [
        lambda store: asyncio.run(_read_in_another_loop(store)),
        lambda store: asyncio.run(store.close_async()),
        lambda store: (store.read(store.reference("a")), store.close()),
        lambda store: store.close(),
    ],
    ids=["another loop", "closed in another loop", "no loop", "closed without a loop"],
)
def test_rows_7_and_30_whatever_is_done_next_gives_back_the_connections_of_closed_loops(
    place: Place, prefix: str, use: Callable[[RedisToolResultStore], object], recwarn: pytest.WarningsRecorder
) -> None:
    store = place.store(prefix)
    loop = asyncio.new_event_loop()
    _run_carelessly(loop, store)
    loop.close()
    assert not place.is_left()
    use(store)
    until(place.is_left)
    del store, loop
    gc.collect()
    assert not recwarn.list


def test_rows_7_and_30_a_loop_that_goes_on_gives_back_the_connections_of_closed_ones(
    valkey: RedisServer, prefix: str
) -> None:
    until_quiet(valkey)
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60)

    def use_another_loop() -> None:
        loop = asyncio.new_event_loop()
        _run_carelessly(loop, store)
        loop.close()

    async def go_on() -> None:
        await _write_and_read(store, "a")
        await run_in_worker(use_another_loop)
        assert await run_in_worker(valkey.connections) > 1
        await _read_in_another_loop(store)
        await run_in_worker(until, lambda: valkey.connections() == 1)

    asyncio.run(go_on())


def test_rows_7_and_29_a_ready_client_is_left_alone_when_its_loop_is_closed(valkey: RedisServer, prefix: str) -> None:
    until_quiet(valkey)
    client = aioredis.Redis(port=valkey.port)
    store = RedisToolResultStore(client=client, prefix=prefix, ttl=60)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(_write_and_read(store, "a"))
    loop.close()
    asyncio.run(store.close_async())
    del store
    gc.collect()
    assert valkey.connections() == 1
    abandon(client, ())
    until(lambda: valkey.connections() == 0)


@pytest.mark.parametrize("closes", [True, False])
def test_row_1_each_asyncio_run_has_a_client_of_its_own(valkey: RedisServer, prefix: str, closes: bool) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60)

    async def use() -> None:
        await _write_and_read(store, *map(str, range(50)))
        if closes:
            await store.close_async()

    until_quiet(valkey)
    for _ in range(3):
        asyncio.run(use())
        until(lambda: valkey.connections() == 0)


def test_rows_1_and_30_two_loops_in_two_threads_never_wait_for_each_other(valkey: RedisServer, prefix: str) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60)
    other_is_done = threading.Event()

    async def idle_until_the_other_is_done() -> None:
        await _write_and_read(store, "idle")
        await run_in_worker(other_is_done.wait)
        await _write_and_read(store, "idle again")

    def work() -> None:
        try:
            asyncio.run(_write_and_read(store, *map(str, range(200))))
        finally:
            other_is_done.set()

    with ThreadPoolExecutor(2) as pool:
        idle = pool.submit(asyncio.run, idle_until_the_other_is_done())
        pool.submit(work).result()
        idle.result()


def test_row_5_a_thousand_reads_at_once_wait_for_sixteen_connections(valkey: RedisServer, prefix: str) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_connections=16)
    peak = 0

    async def read_all() -> None:
        nonlocal peak
        keys = [str(number) for number in range(1_000)]
        await _write_and_read(store, *keys)
        peak = await run_in_worker(valkey.connections)
        await store.close_async()

    until_quiet(valkey)
    asyncio.run(read_all())
    assert 1 <= peak <= 16


def test_row_5_a_thousand_reads_in_threads_wait_for_four_connections(valkey: RedisServer, prefix: str) -> None:
    until_quiet(valkey)
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60, max_connections=4) as store:
        reference = store.write(key="a", content="b")
        with ThreadPoolExecutor(32) as pool:
            assert set(pool.map(store.read, [reference] * 1_000)) == {"b"}
        assert valkey.connections() <= 4
    until(lambda: valkey.connections() == 0)


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"max_connections": 2}, 2),
        ({"max_connections": 1}, 1),
        ({"max_connections": 40}, 16),
        ({"max_connections": 4, "single_connection_client": True}, 4),
    ],
    ids=["two", "one", "more than the store's", "one of them for itself"],
)
@pytest.mark.parametrize("colour", ["async", "sync in threads", "sync in a loop"])
def test_row_5_calls_wait_for_the_connections_that_a_ready_client_has(
    valkey: RedisServer, prefix: str, options: dict[str, Any], most: int, colour: str
) -> None:
    until_quiet(valkey)
    make: Any = aioredis.Redis if colour == "async" else redis.Redis
    client = make(port=valkey.port, **options)
    store = RedisToolResultStore(client=client, prefix=prefix, ttl=60, retries=0)

    async def write_and_read() -> None:
        await _write_and_read(store, *map(str, range(300)))
        if colour == "async":
            await client.aclose()

    if colour == "sync in threads":
        reference = store.write(key="a", content="b")
        with ThreadPoolExecutor(32) as pool:
            assert set(pool.map(store.read, [reference] * 300)) == {"b"}
    else:
        asyncio.run(write_and_read())
    pool = client.connection_pool
    assert len([*pool._available_connections, *pool._in_use_connections]) <= most
    if colour != "async":
        client.close()
    until(lambda: valkey.connections() == 0)


def test_a_ready_client_that_answers_from_its_own_memory_is_used_through_pipelines(
    valkey: RedisServer, prefix: str
) -> None:
    """Where it does so, a single command has to name its keys."""
    with redis.Redis(port=valkey.port) as client:
        store = RedisToolResultStore(client=client, prefix=prefix)
        store.write(key="a", content="before")
        used: list[object] = []
        client.connection_pool.cache = client.execute_command = lambda *arguments, **_: used.append(arguments)
        reference = store.write(key="a", content="b" * 10_000)
        assert store.read(reference) == "b" * 10_000
        assert store.stat(reference).bytes == 10_000
        del client.execute_command
        assert not used
        client.connection_pool.cache = None


@pytest.mark.parametrize("colour", ["async", "sync"])
def test_the_connection_that_a_ready_client_keeps_for_single_commands_is_left_to_its_owner(
    valkey: RedisServer, prefix: str, colour: str
) -> None:
    until_quiet(valkey)
    make: Any = redis.Redis if colour == "sync" else aioredis.Redis
    client = make(port=valkey.port, single_connection_client=True)
    store = RedisToolResultStore(client=client, prefix=prefix, ttl=60)

    async def use() -> None:
        used: list[object] = []
        client.execute_command = lambda *arguments, **_: used.append(arguments)
        reference = await store.write_async(key="a", content="b")
        assert await store.read_async(reference) == "b"
        assert [entry.reference async for entry in store.list_async()] == [reference]
        assert not used
        del client.execute_command
        if colour == "async":
            await client.aclose()

    asyncio.run(use())
    if colour == "sync":
        client.close()
    until(lambda: valkey.connections() == 0)


@pytest.mark.parametrize("kept", [True, False])
def test_what_a_server_refuses_is_an_error_whichever_way_the_command_went(
    valkey: RedisServer, prefix: str, kept: bool
) -> None:
    valkey.client.lpush(f"{prefix}:a", "no text")
    with redis.Redis(port=valkey.port, single_connection_client=kept) as client:
        store = RedisToolResultStore(client=client, prefix=prefix)
        with pytest.raises(CorruptEntryError):
            store.read(store.reference("a"))


def test_row_6_who_waits_too_long_for_a_connection_is_told_so(valkey: RedisServer, prefix: str) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, max_connections=1, pool_timeout=0.05, timeout=5)
    asyncio.run(store.write_async(key="a", content="b"))

    async def read_while_the_server_pauses() -> list[object]:
        await store.warm_up_async()
        await run_in_worker(valkey.client.client_pause, 400)
        reads = (store.read_async(store.reference("a")) for _ in range(5))
        return list(await asyncio.gather(*reads, return_exceptions=True))

    results = asyncio.run(read_while_the_server_pauses())
    assert results.count("b") == 1
    late = [result for result in results if result != "b"]
    assert {type(error) for error in late} == {StoreTimeoutError}
    assert "connections" in str(late[0])


def test_row_7_closing_waits_for_what_is_in_flight_and_the_next_use_reopens(valkey: RedisServer, prefix: str) -> None:
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=60)

    async def close_while_writing() -> None:
        writes = asyncio.gather(*(store.write_async(key=str(number), content="x" * 100_000) for number in range(100)))
        await asyncio.sleep(0)
        await store.close_async()
        assert all(isinstance(reference, str) for reference in await writes)
        assert await store.read_async(store.reference("1")) == "x" * 100_000
        await store.close_async()
        await store.close_async()
        await run_in_worker(until, lambda: valkey.connections() == 0)

    until_quiet(valkey)
    asyncio.run(close_while_writing())
    until(lambda: valkey.connections() == 0)


def test_row_29_a_ready_asynchronous_client_serves_its_loop_and_is_never_closed(
    valkey: RedisServer, prefix: str
) -> None:
    client = aioredis.Redis(port=valkey.port, decode_responses=True)
    store = RedisToolResultStore(client=client, prefix=prefix, ttl=60)

    async def use() -> None:
        async with client:
            await _write_and_read(store, "text \ud800 é", *map(str, range(50)))
            (outcome,) = await store.write_many_async([StoreEntry("bytes", b"\xff\x00")])
            await store.close_async()
            assert await store.read_async(str(outcome)) == b"\xff\x00"
            async with store:
                pass
            assert await client.ping()
            with pytest.raises(AsyncOnlyStoreError):
                store.read(str(outcome))
            (refused,) = store.write_many([StoreEntry("a", "b")])
            assert isinstance(refused, AsyncOnlyStoreError)
            with pytest.raises(NotSerializableError):
                store.to_dict()

    asyncio.run(use())


def test_row_29_a_ready_synchronous_client_serves_both_colours_and_is_never_closed(
    valkey: RedisServer, prefix: str
) -> None:
    with redis.Redis(port=valkey.port, decode_responses=True) as client:
        store = RedisToolResultStore(client=client, prefix=prefix, ttl=60)
        with store:
            reference = store.write(key="bytes", content=b"\xff\x00")
        assert store.read(reference) == b"\xff\x00"
        asyncio.run(_write_and_read(store, *map(str, range(100))))
        asyncio.run(store.close_async())
        assert client.ping()
        with pytest.raises(NotSerializableError):
            store.to_dict()


def test_row_1_a_ready_client_of_another_loop_is_a_mistake_that_is_named(valkey: RedisServer, prefix: str) -> None:
    client = aioredis.Redis(port=valkey.port)
    store = RedisToolResultStore(client=client, prefix=prefix, retries=0)
    first = asyncio.new_event_loop()
    reference = first.run_until_complete(store.write_async(key="a", content="b"))

    async def use_elsewhere() -> None:
        with pytest.raises(StoreConfigurationError, match="another event loop"):
            await store.read_async(reference)

    second = asyncio.new_event_loop()
    second.run_until_complete(use_elsewhere())
    first.run_until_complete(client.aclose())
    first.close()
    second.close()


@pytest.mark.parametrize(
    "client", [object(), "redis://localhost", redis.Redis().pipeline(), aioredis.Redis().pipeline()]
)
def test_row_29_what_is_no_client_is_refused(client: Any) -> None:
    with pytest.raises(ConfigurationError, match="client of redis-py"):
        RedisToolResultStore(client=client)


def test_row_29_a_client_brings_its_own_connection_settings() -> None:
    with pytest.raises(ConfigurationError, match="`db`"):
        RedisToolResultStore(client=redis.Redis(), db=1)
    with pytest.raises(ConfigurationError, match="`url`"):
        RedisToolResultStore("redis://localhost", client=redis.Redis())
    with pytest.raises(ConfigurationError, match="either"):
        RedisToolResultStore()
