"""A cluster of three, and a primary that sentinels replace."""

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis
from redis.crc import key_slot
from tests.services.redis_servers import RedisServer, redis_cluster, redis_sentinel, until, until_quiet

from haybaler.errors import EntryTooLargeError, StoreConfigurationError, StoreError, StoreUnavailableError
from haybaler.stores.protocol import DeletedScope, StoreEntry
from haybaler.workers import run_in_worker
from haybaler_redis import RedisToolResultStore
from haybaler_redis.staging import stage_key

_ENTRIES = [StoreEntry(f"key-{number}", f"content {number}") for number in range(1_000)]


def _url(servers: list[RedisServer]) -> str:
    return "redis://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


@pytest.fixture
def store(cluster: list[RedisServer], prefix: str) -> Iterator[RedisToolResultStore]:
    with RedisToolResultStore(_url(cluster), cluster=True, prefix=prefix, ttl=60) as store:
        yield store
        store.delete_scope()


def _read_all(store: RedisToolResultStore) -> list[str | bytes]:
    async def read_all() -> list[str | bytes]:
        return await asyncio.gather(*(store.read_async(store.reference(entry.key)) for entry in _ENTRIES))

    return asyncio.run(read_all())


def test_row_24_entries_go_to_their_slots_on_every_node(
    store: RedisToolResultStore, cluster: list[RedisServer]
) -> None:
    assert asyncio.run(store.write_many_async(_ENTRIES)) == [store.reference(entry.key) for entry in _ENTRIES]
    assert store.write_many(_ENTRIES) == [store.reference(entry.key) for entry in _ENTRIES]
    assert all(server.client.dbsize() > 200 for server in cluster)
    assert _read_all(store) == [entry.content for entry in _ENTRIES]
    store.delete([store.reference(entry.key) for entry in _ENTRIES[:500]])
    sizes = sum(len(entry.content) for entry in _ENTRIES[500:])
    assert asyncio.run(store.delete_scope_async()) == DeletedScope(500, sizes)


def test_a_large_entry_is_staged_in_its_own_slot(store: RedisToolResultStore, cluster: list[RedisServer]) -> None:
    for key in (b"haybaler:a", b"{tag}:a", b"x{y}z:@s/b~c.txt"):
        assert key_slot(stage_key(key, "0011")) == key_slot(key)
    content = "0123456789" * 900_000
    for number in range(5):
        reference = asyncio.run(store.write_async(key=str(number), content=content))
        assert store.read(reference) == content
        assert store.read_page(reference, offset=-7, limit=3).content == "345"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_row_17_an_entry_that_is_too_large_for_its_node_fails_alone(
    store: RedisToolResultStore, cluster: list[RedisServer], prefix: str, is_async: bool
) -> None:
    entries = [StoreEntry(f"key-{number}", "x" * (10 if number % 8 else 1_500_000)) for number in range(100)]
    slots = [key_slot(f"{prefix}:{entry.key}".encode()) for entry in entries]
    cluster[0].client.config_set("proto-max-bulk-len", 1024 * 1024)
    try:
        outcomes = asyncio.run(store.write_many_async(entries)) if is_async else store.write_many(entries)
    finally:
        cluster[0].client.config_set("proto-max-bulk-len", 512 * 1024 * 1024)
    refused = [slot < 16384 // 3 and not number % 8 for number, slot in enumerate(slots)]
    assert 0 < sum(refused) < 13
    assert [type(outcome) is EntryTooLargeError for outcome in outcomes] == refused
    assert {type(outcome) for outcome in outcomes} == {EntryTooLargeError, str}


def _holds(server: RedisServer, key: str) -> bool:
    try:
        return bool(server.client.exists(key))
    except redis.ResponseError:  # MOVED
        return False


def _id(server: RedisServer) -> str:
    identifier: bytes = server.client.execute_command("CLUSTER MYID")
    return identifier.decode()


def _redirections(server: RedisServer, kind: str) -> int:
    return int(server.client.info("errorstats").get(f"errorstat_{kind}", {"count": 0})["count"])


# Stands before what moves slots: for that, nodes connect to each other, and keep these connections for ten seconds.
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_row_5_a_thousand_reads_at_once_never_exceed_the_bound_of_a_node(
    cluster: list[RedisServer], prefix: str, is_async: bool
) -> None:
    until_quiet(*cluster)
    store = RedisToolResultStore(_url(cluster), cluster=True, prefix=prefix, max_connections=8, ttl=60)
    references = [store.reference(entry.key) for entry in _ENTRIES]

    def connections() -> list[int]:  # none is given up before the client is closed, so that this is the peak
        return [server.connections() for server in cluster]

    async def read_all() -> tuple[list[str | bytes], list[int]]:
        await store.write_many_async(_ENTRIES)
        contents = await asyncio.gather(*(store.read_async(reference) for reference in references))
        return list(contents), await run_in_worker(connections)

    if is_async:
        contents, peaks = asyncio.run(read_all())
    else:
        store.write_many(_ENTRIES)
        with ThreadPoolExecutor(32) as pool:
            contents = list(pool.map(store.read, references))
        peaks = connections()
        store.close()
    assert contents == [entry.content for entry in _ENTRIES]
    # And the one through which the client has asked which node keeps what.
    assert all(1 <= peak <= 8 + 1 for peak in peaks)
    until(lambda: all(server.connections() == 0 for server in cluster))


@pytest.mark.anyio
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_rows_21_and_23_slots_that_move_are_followed(
    store: RedisToolResultStore, cluster: list[RedisServer], prefix: str, is_async: bool
) -> None:
    """One client sees all of it: a new one would begin with the slots as they are."""

    async def write() -> list[str | StoreError]:
        if is_async:
            return await store.write_many_async(_ENTRIES)
        return await run_in_worker(store.write_many, _ENTRIES)

    async def read() -> list[str | bytes]:
        references = [store.reference(entry.key) for entry in _ENTRIES]
        if is_async:
            return await asyncio.gather(*(store.read_async(reference) for reference in references))
        return await run_in_worker(lambda: [store.read(reference) for reference in references])

    async def check() -> None:
        assert await write() == [store.reference(entry.key) for entry in _ENTRIES]
        assert await read() == [entry.content for entry in _ENTRIES]

    def begin_to_move() -> tuple[RedisServer, RedisServer]:
        owner = next(server for server in cluster if _holds(server, f"{prefix}:key-7"))
        target = next(server for server in cluster if server is not owner)
        target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", _id(owner))
        owner.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", _id(target))
        return owner, target

    def move_keys(*keys: str) -> None:
        for key in keys or owner.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 1000):
            owner.client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)

    def move_slot() -> None:
        move_keys()
        for server in (target, owner, *cluster):
            server.client.execute_command("CLUSTER SETSLOT", slot, "NODE", _id(target))

    slot = key_slot(f"{prefix}:key-7".encode())
    await check()
    owner, target = await run_in_worker(begin_to_move)
    await check()  # nothing has moved
    asked, moved = await run_in_worker(lambda: [_redirections(owner, kind) for kind in ("ASK", "MOVED")])
    await run_in_worker(move_keys, f"{prefix}:key-7")
    await check()  # the key has moved, the slot has not
    assert await run_in_worker(_redirections, owner, "ASK") > asked
    await run_in_worker(move_slot)
    await check()
    assert await run_in_worker(_redirections, owner, "MOVED") > moved
    await store.close_async()


def test_rows_19_and_20_a_dead_node_fails_its_own_entries_only(prefix: str) -> None:
    with redis_cluster() as servers:
        store = RedisToolResultStore(_url(servers), cluster=True, prefix=prefix, retries=1, timeout=1, ttl=60)
        store.write_many(_ENTRIES)

        async def write_before_and_after() -> list[str | StoreError]:
            await store.write_many_async(_ENTRIES)
            await run_in_worker(servers[2].process.kill)
            return await store.write_many_async(_ENTRIES)

        slots = [key_slot(f"{prefix}:{entry.key}".encode()) for entry in _ENTRIES]
        dead = [slot >= 2 * (16384 // 3) for slot in slots]
        for outcomes in (asyncio.run(write_before_and_after()), store.write_many(_ENTRIES)):
            assert [type(outcome) is StoreUnavailableError for outcome in outcomes] == dead
            assert {type(outcome) for outcome in outcomes} == {StoreUnavailableError, str}
        store.close()


@pytest.mark.anyio
async def test_row_3_cancelled_operations_of_a_cluster_leave_no_reply_behind(
    cluster: list[RedisServer], prefix: str
) -> None:
    store = RedisToolResultStore(_url(cluster), cluster=True, prefix=prefix, max_connections=1, ttl=60)
    await store.write_many_async(_ENTRIES[:300])
    chance = random.Random(7)
    cancelled = 0

    async def read(number: int) -> bool:
        return await store.read_async(store.reference(f"key-{number}")) == f"content {number}"

    for _ in range(100):
        tasks = [asyncio.ensure_future(read(chance.randrange(300))) for _ in range(6)]
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        tasks[0].cancel()  # it has the connection
        tasks[chance.randrange(1, 6)].cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} <= {bool, asyncio.CancelledError}
        assert False not in results
        cancelled += results.count(True) < 6
    assert cancelled > 50
    assert all(await asyncio.gather(*map(read, range(300))))
    await store.close_async()


def test_rows_25_and_29_ready_clients_of_a_cluster(cluster: list[RedisServer], prefix: str) -> None:
    with redis.RedisCluster("127.0.0.1", cluster[0].port, decode_responses=True) as client:
        store = RedisToolResultStore(client=client, prefix=prefix, ttl=60)
        assert store.write_many([StoreEntry("a", b"\xff"), *_ENTRIES])[0] == store.reference("a")
        assert store.read(store.reference("a")) == b"\xff"
        assert _read_all(store) == [entry.content for entry in _ENTRIES]
        assert store.delete_scope().entries == 1_001
        assert client.ping()


@pytest.mark.anyio
async def test_rows_25_and_29_ready_asynchronous_clients_of_a_cluster(cluster: list[RedisServer], prefix: str) -> None:
    async with await run_in_worker(lambda: _async_cluster(cluster[0].port, decode_responses=True)) as client:
        store = RedisToolResultStore(client=client, prefix=prefix, ttl=60)
        assert (await store.write_many_async([StoreEntry("a", b"\xff"), *_ENTRIES]))[0] == store.reference("a")
        assert await store.read_async(store.reference("a")) == b"\xff"
        assert (await store.delete_scope_async()).entries == 1_001
        await store.close_async()
        assert await client.ping()


def _async_cluster(port: int, **options: Any) -> Any:
    return aioredis.RedisCluster("127.0.0.1", port, **options)


@pytest.mark.anyio
async def test_row_5_calls_wait_for_the_connections_that_a_ready_client_has_to_each_node(
    cluster: list[RedisServer], prefix: str
) -> None:
    async with await run_in_worker(lambda: _async_cluster(cluster[0].port, max_connections=2)) as client:
        store = RedisToolResultStore(client=client, prefix=prefix, ttl=60, retries=0)
        references = [str(outcome) for outcome in await store.write_many_async(_ENTRIES)]
        read = await asyncio.gather(*(store.read_async(reference) for reference in references))
        assert read == [entry.content for entry in _ENTRIES]
        assert all(len(node._connections) <= 2 for node in client.get_nodes())


def test_row_5_threads_wait_for_the_connections_that_a_ready_client_has_to_each_node(
    cluster: list[RedisServer], prefix: str
) -> None:
    with redis.RedisCluster("127.0.0.1", cluster[0].port, max_connections=2) as client:
        store = RedisToolResultStore(client=client, prefix=prefix, ttl=60, retries=0)
        references = [str(outcome) for outcome in store.write_many(_ENTRIES)]
        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(store.read, references)) == [entry.content for entry in _ENTRIES]


def test_row_24_a_cluster_that_is_taken_for_one_server_is_named(cluster: list[RedisServer], prefix: str) -> None:
    with RedisToolResultStore(cluster[0].url, prefix=prefix, ttl=60) as store:
        outcomes = store.write_many(_ENTRIES)
        assert {type(outcome) for outcome in outcomes} == {str, StoreConfigurationError}
        assert any("cluster=True" in str(outcome) for outcome in outcomes)


def test_rows_14_and_15_a_failover_of_sentinels_is_survived(prefix: str) -> None:
    with redis_sentinel("results") as (primary, replica, address):
        store = RedisToolResultStore.from_url(f"redis://{address}?sentinel=results&prefix={prefix}&ttl=60")
        until(lambda: replica.client.info("replication")["master_link_status"] == "up")
        store.write(key="before", content="before")

        async def write_during_a_failover() -> tuple[list[str | StoreError], list[str | StoreError]]:
            await store.warm_up_async()
            await run_in_worker(primary.process.kill)
            async with asyncio.TaskGroup() as group:
                native = group.create_task(store.write_many_async(_ENTRIES[:100]))
                called = group.create_task(run_in_worker(store.write_many, _ENTRIES[100:200]))
            return native.result(), called.result()

        native, called = asyncio.run(write_during_a_failover())
        assert native + called == [store.reference(entry.key) for entry in _ENTRIES[:200]]
        assert replica.client.info("replication")["role"] == "master"
        assert store.read(store.reference("before")) == "before"
        store.close()


def test_a_service_that_no_sentinel_knows_is_unavailable(prefix: str) -> None:
    with redis_sentinel("results") as (_, _, address):
        store = RedisToolResultStore(f"redis://{address}", sentinel="other", prefix=prefix, retries=1)
        with pytest.raises(StoreUnavailableError):
            store.write(key="a", content="b")
        store.close()
