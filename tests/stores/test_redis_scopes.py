"""Removing a scope: everything in it, nothing beside it, in small steps that block nobody."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from tests.services.redis_servers import RedisServer, redis_server
from tests.stores.restarts import scan_with_a_restart

from haybaler.errors import ReferenceNotFoundError, StoreError
from haybaler.stores.protocol import DeletedScope, StoreEntry
from haybaler_redis import RedisToolResultStore, removing
from haybaler_redis.commands import BULK_KEYS
from haybaler_redis.scanning import SCAN_COUNT
from haybaler_redis.staging import stage_key


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("glob", ["", "*", "?", "[a-z]", "\\", "[^x]", "\\*", "]"])
def test_a_scope_is_removed_and_nothing_beside_it(valkey: RedisServer, prefix: str, is_async: bool, glob: str) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix + glob, ttl=60) as store:
        run, inner = store.scoped("user/run"), store.scoped("user/run").scoped("step")
        beside = [
            store,
            store.scoped("user"),
            store.scoped("user/run2"),
            store.scoped("user/ru"),
            RedisToolResultStore(valkey.url, prefix=f"{prefix}{glob}:more", ttl=60),
            RedisToolResultStore(valkey.url, prefix=f"{prefix}x", ttl=60),
        ]
        kept = [(other, other.write(key="a", content="kept")) for other in beside]
        run.write_many([StoreEntry(str(number), "é") for number in range(50)])
        inner.write(key="b", content=b"\xff" * 7)
        deleted = asyncio.run(run.delete_scope_async()) if is_async else run.delete_scope()
        assert deleted == DeletedScope(entries=51, bytes=50 * 2 + 7)
        assert run.delete_scope() == DeletedScope(0, 0)
        assert [other.read(reference) for other, reference in kept] == ["kept"] * len(kept)
        assert store.delete_scope() == DeletedScope(4, 16)
        for other, reference in kept[4:]:
            assert other.read(reference) == "kept"
            other.delete_scope()
            other.close()


def test_keys_is_never_used_and_each_step_is_small(valkey: RedisServer, prefix: str) -> None:
    valkey.client.config_resetstat()
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        store.scoped("a").write_many([StoreEntry(str(number), "x") for number in range(3_000)])
        assert store.scoped("a").delete_scope().entries == 3_000
    stats = valkey.client.info("commandstats")
    assert "cmdstat_keys" not in stats
    assert "cmdstat_del" not in stats
    assert stats["cmdstat_scan"]["calls"] >= 3_000 // SCAN_COUNT
    assert stats["cmdstat_unlink"]["calls"] == 3_000


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_scope_is_removed_to_its_end_although_the_server_restarts_meanwhile(
    prefix: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cursor of the old process means nothing to the new one."""
    with redis_server(lasting=True) as server:
        with RedisToolResultStore(server.url, prefix=prefix) as store:
            scope = store.scoped("a")
            scope.write_many([StoreEntry(str(number), "x") for number in range(5_000)])
            monkeypatch.setattr(removing, "scan", scan_with_a_restart(server))
            deleted = asyncio.run(scope.delete_scope_async()) if is_async else scope.delete_scope()
        assert deleted == DeletedScope(5_000, 5_000)
        assert server.client.dbsize() == 0


def test_something_else_under_a_key_of_the_scope_is_removed_too(valkey: RedisServer, prefix: str) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        store.write(key="a", content="12345")
        valkey.client.rpush(f"{prefix}:list", "x")
        valkey.client.set(f"{prefix}:short", "x")
        assert store.delete_scope() == DeletedScope(entries=3, bytes=5)


@pytest.mark.parametrize("count", [1, BULK_KEYS, BULK_KEYS + 300])
def test_many_entries_are_deleted_in_batches(valkey: RedisServer, prefix: str, count: int) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        references = store.write_many([StoreEntry(str(number), "x") for number in range(count)])
        valkey.client.config_resetstat()
        asyncio.run(store.delete_async([str(reference) for reference in references]))
        assert valkey.client.info("commandstats")["cmdstat_unlink"]["calls"] == -(-count // BULK_KEYS)
        assert store.delete_scope().entries == 0


TAGS = pytest.mark.parametrize("tag", ["", "{tag}"])


@TAGS
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_what_a_writer_that_was_killed_has_staged_goes_with_the_scope_and_is_no_entry(
    valkey: RedisServer, prefix: str, is_async: bool, tag: str
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix + tag, ttl=60) as store:
        run = store.scoped("user/run")
        run.write(key="a", content="12345")
        beside = [store, store.scoped("user"), store.scoped("user/run2"), store.scoped("other/user/run")]
        others = [RedisToolResultStore(valkey.url, prefix=name, ttl=60) for name in (f"{prefix}{tag}:x", f"x:{prefix}")]
        kept = []
        for other in (run, run.scoped("step"), *beside, *others):
            staged = stage_key(other._key(other._scope_path + "a"), "0011")
            valkey.client.set(staged, "half of something", ex=60)
            kept.append(staged)
        gone = kept[:2]
        deleted = asyncio.run(run.delete_scope_async()) if is_async else run.delete_scope()
        assert deleted == DeletedScope(1, 5)
        assert [valkey.client.exists(key) for key in kept] == [key not in gone for key in kept]
        assert store.delete_scope() == DeletedScope(0, 0)
        assert [valkey.client.exists(key) for key in kept] == [0] * 6 + [1] * 2
        for other in others:
            other.delete_scope()
            other.close()


@TAGS
def test_a_large_entry_that_is_staged_while_its_scope_is_removed_is_whole_or_fails(
    valkey: RedisServer, prefix: str, tag: str
) -> None:
    content = "0123456789" * 1_300_000
    with RedisToolResultStore(valkey.url, prefix=prefix + tag, ttl=60) as store:
        run = store.scoped("run")
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(lambda: [run.write_many([StoreEntry("large", content)])[0] for _ in range(5)])
            while not writing.done():
                run.delete_scope()
        for outcome in writing.result():
            assert isinstance(outcome, (str, StoreError))
            with suppress(ReferenceNotFoundError):
                assert run.read(run.reference("large")) == content
        run.write(key="large", content=content)
        assert run.delete_scope() == DeletedScope(1, len(content))
        assert valkey.client.keys(f"*{prefix}*") == []
