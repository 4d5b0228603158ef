"""Listing and sweeping on real servers: what was staged and left, what is damaged, restarts, a cluster."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import redis
from tests.services.redis_servers import RedisServer, redis_server
from tests.stores.restarts import scan_with_a_restart
from xxhash import xxh3_64_intdigest

from haybaler.errors import CorruptEntryError, ReferenceNotFoundError, StoreUnavailableError
from haybaler.stores.inventory import SweepReport
from haybaler.stores.protocol import StoreEntry
from haybaler_redis import RedisToolResultStore, listing
from haybaler_redis.records import HEADER_BYTES, Header
from haybaler_redis.staging import stage_key

both_colours = pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])


def references(store: RedisToolResultStore, *, is_async: bool) -> list[str]:
    async def listed() -> list[str]:
        async with store:
            return [entry.reference async for entry in store.list_async()]

    return asyncio.run(listed()) if is_async else [entry.reference for entry in store.list()]


@both_colours
def test_thousands_of_entries_are_listed_in_steps_with_those_of_no_other_store(
    valkey: RedisServer, prefix: str, is_async: bool
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        written = store.scoped("a").write_many([StoreEntry(str(number), "é") for number in range(3_000)])
        RedisToolResultStore(valkey.url, prefix=f"{prefix}:x", ttl=60).write(key="foreign", content="x")
        valkey.client.set(f"{prefix}:Not ours", "x", ex=60)
        valkey.client.set(stage_key(store._key("@a/0"), "0011"), "half", ex=60)
        assert sorted(references(store, is_async=is_async)) == sorted(map(str, written))
        first = next(store.list())
        assert (first.bytes, first.kind) == (2, "text")
        assert first.written is not None
        assert abs(datetime.now(UTC) - first.written) < timedelta(minutes=1)
        store.delete_scope()


def test_what_is_damaged_or_something_else_is_listed_without_its_kind_and_refused_by_stat(
    valkey: RedisServer, prefix: str
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        damaged = store.write(key="a", content="12345")
        value = valkey.client.get(f"{prefix}:a")
        valkey.client.set(f"{prefix}:a", b"xxx" + value[3:], ex=60)
        valkey.client.rpush(f"{prefix}:list", "x")
        valkey.client.expire(f"{prefix}:list", 60)
        valkey.client.set(
            f"{prefix}:future", record_from_the_far_future(value, f"{prefix}:a", f"{prefix}:future"), ex=60
        )
        assert {(entry.reference, entry.bytes, entry.kind, entry.written) for entry in store.list()} == {
            (damaged, 5, None, None),
            (store.reference("list"), 0, None, None),
            (store.reference("future"), 5, None, None),
        }
        for key in ("a", "list", "future"):
            with pytest.raises(CorruptEntryError):
                store.stat(store.reference(key))
        store.delete_scope()


def record_from_the_far_future(value: bytes, old_key: str, key: str) -> bytes:
    header = Header.parse(value, old_key.encode())
    tag = xxh3_64_intdigest(key.encode())
    return replace(header, tag=tag, written=2**63).pack() + value[HEADER_BYTES:]


def test_looking_at_an_entry_or_listing_it_does_not_renew_its_time_to_live(valkey: RedisServer, prefix: str) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=600) as store:
        reference = store.write(key="a", content="x")
        valkey.client.expire(f"{prefix}:a", 100)
        assert store.stat(reference).bytes == 1
        assert len([*store.list()]) == 1
        assert valkey.client.ttl(f"{prefix}:a") <= 100
        valkey.client.pexpire(f"{prefix}:a", 1)
        while valkey.client.exists(f"{prefix}:a"):
            pass
        with pytest.raises(ReferenceNotFoundError):
            store.stat(reference)
        assert [*store.list()] == []


@both_colours
def test_a_server_that_is_started_again_while_entries_are_listed_is_an_error_and_no_short_list(
    prefix: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(lasting=True) as server, RedisToolResultStore(server.url, prefix=prefix) as store:
        store.write_many([StoreEntry(str(number), "x") for number in range(5_000)])
        monkeypatch.setattr(listing, "scan", scan_with_a_restart(server))
        with pytest.raises(StoreUnavailableError):
            references(store, is_async=is_async)


@pytest.mark.parametrize("tag", ["", "{tag}"])
@both_colours
def test_only_what_was_staged_and_will_not_expire_is_swept_once_nobody_has_touched_it(
    valkey: RedisServer, prefix: str, is_async: bool, tag: str
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix + tag) as store:
        inner = store.scoped("a")
        kept = inner.write(key="x", content="1")
        keys = [stage_key(inner._key("@a/x"), f"{number:04}") for number in range(3)]
        foreign = stage_key(store.scoped("b")._key("@b/x"), "0000")
        for key in (*keys, foreign):
            valkey.client.set(key, b"half of it", ex=100 if key == keys[0] else None)

        def sweep(**options: float) -> SweepReport:
            return asyncio.run(inner.sweep_async(**options)) if is_async else inner.sweep(**options)

        assert sweep() == SweepReport()
        assert sweep(safe_age=0) == SweepReport(leftovers=2, bytes=20)
        assert [valkey.client.exists(key) for key in (*keys, foreign)] == [1, 0, 0, 1]
        assert inner.read(kept) == "1"
        assert sweep(safe_age=0) == SweepReport()
        store.delete_scope()


def test_where_the_server_does_not_tell_what_was_touched_nothing_is_swept(prefix: str) -> None:
    with (
        redis_server("valkey", "--maxmemory-policy", "allkeys-lfu") as server,
        RedisToolResultStore(server.url, prefix=prefix) as store,
    ):
        server.client.set(stage_key(store._key("x"), "0000"), b"half")
        assert store.sweep(safe_age=0) == SweepReport()


def test_a_cluster_is_listed_and_swept_node_by_node(cluster: list[RedisServer], prefix: str) -> None:
    nodes = ",".join(f"127.0.0.1:{server.port}" for server in cluster)
    with RedisToolResultStore(f"redis://{nodes}", cluster=True, prefix=prefix) as store:
        written = store.scoped("a").write_many([StoreEntry(str(number), "x") for number in range(300)])
        assert sorted(references(store, is_async=False)) == sorted(map(str, written))
        assert sorted(references(store, is_async=True)) == sorted(map(str, written))
        with redis.RedisCluster(host="127.0.0.1", port=cluster[0].port) as raw:
            for number in range(10):
                raw.set(stage_key(store._key(f"@a/{number}"), "0000"), b"half")
        assert store.sweep(safe_age=0) == SweepReport(leftovers=10, bytes=40)
        assert store.scoped("a").delete_scope().entries == 300
