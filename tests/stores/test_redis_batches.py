"""Batches: few round trips, bounded ones, the cheapest command there is, and an outcome for each entry."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import redis
from tests.services.redis_servers import REDIS, VALKEY, RedisServer, redis_server

from haybaler.effects import Steps
from haybaler.errors import EntryTooLargeError, StoreError, StoreFullError
from haybaler.stores.protocol import StoreEntry
from haybaler_redis import RedisToolResultStore
from haybaler_redis.commands import BULK_KEYS, FLUSH_BYTES, FLUSH_COMMANDS, Command, split_flushes
from haybaler_redis.exchange import exchange
from haybaler_redis.records import HEADER_BYTES

_MB = 1024 * 1024


def _entries(count: int, size: int) -> list[StoreEntry]:
    return [StoreEntry(f"key-{number}", f"{number:010d}" * (size // 10)) for number in range(count)]


def _calls(server: RedisServer) -> dict[str, int]:
    stats: dict[str, Any] = server.client.info("commandstats")
    return {name.removeprefix("cmdstat_"): figures["calls"] for name, figures in stats.items()}


@pytest.mark.parametrize(
    ("kind", "ttl", "command", "round_trips"),
    [(VALKEY, 60, "msetex", 1), (VALKEY, None, "mset", 1), (REDIS, None, "mset", 1), (REDIS, 60, "set", 1_001)],
)
def test_row_3b_a_batch_uses_the_cheapest_command_that_the_server_knows(
    request: pytest.FixtureRequest, prefix: str, kind: str, ttl: int | None, command: str, round_trips: int
) -> None:
    server: RedisServer = request.getfixturevalue("valkey" if kind == VALKEY else "redis6")
    server.client.config_resetstat()
    store = RedisToolResultStore(server.url, prefix=prefix, ttl=ttl)

    async def write_twice() -> list[str | StoreError]:
        await store.write_async(key="another", content="x")
        return await store.write_many_async(_entries(1_000, 1_000))

    assert asyncio.run(write_twice()) == [store.reference(f"key-{number}") for number in range(1_000)]
    calls = _calls(server)
    assert calls[command] == round_trips
    assert calls.get("command|info", calls.get("command")) == 1
    assert {server.client.ttl(f"{prefix}:key-{number}") > 0 for number in range(1_000)} == {ttl is not None}


def test_rows_2_and_33_a_round_trip_is_bounded_in_bytes_and_in_commands() -> None:
    sizes = [3 * _MB, _MB, 1, 9 * _MB, 1, *[1] * 300, 2 * _MB, 2 * _MB, 1]
    parts = list(split_flushes(sizes, most=FLUSH_COMMANDS))
    assert [size for part in parts for size in sizes[part]] == sizes
    for part in parts:
        assert 0 < len(sizes[part]) <= FLUSH_COMMANDS <= BULK_KEYS
        assert sum(sizes[part]) <= FLUSH_BYTES or len(sizes[part]) == 1
    assert list(split_flushes([], most=FLUSH_COMMANDS)) == []


@pytest.mark.parametrize("ttl", [60, None])
def test_a_thousand_entries_of_100_kb_are_written_and_read(valkey: RedisServer, prefix: str, ttl: int | None) -> None:
    entries = _entries(1_000, 100_000)
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=ttl) as store:
        references = asyncio.run(store.write_many_async(entries))
        for number in (0, 1, 499, 500, 999):
            assert asyncio.run(store.read_async(str(references[number]))) == entries[number].content
        assert (asyncio.run(store.delete_scope_async())).bytes == 1_000 * 100_000


@pytest.mark.parametrize("size", [5 * _MB, 100 * _MB])
@pytest.mark.parametrize("content", ["0123456789abcdef", b"\x00\xff\x80\r\n012345678", "é中😀x\ud800"])
def test_an_entry_of_100_mb_is_written_in_pieces_and_stands_whole(
    valkey: RedisServer, prefix: str, content: str | bytes, size: int
) -> None:
    large = content * (size // len(content) // (1 if len(content) == 16 else 3))
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        reference = store.write(key="large", content=large)
        assert 0 < valkey.client.ttl(f"{prefix}:large") <= 60
        assert store.read(reference) == large
        assert valkey.client.keys(f"*{prefix}*") == [f"{prefix}:large".encode()]
        store.delete([reference])


@pytest.mark.parametrize("moment", [2, 3, 4])
def test_a_large_entry_of_which_the_server_forgot_the_beginning_is_written_anew(
    valkey: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    content = "0123456789" * 1_000_000
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        store.warm_up()
        parts = 0

        def forget(commands: Sequence[Command], client: Any) -> Steps[list[Any]]:
            nonlocal parts
            parts += 1
            if parts == moment:  # as in a failover to a replica that lags behind
                valkey.client.unlink(commands[0].key)
            return exchange(commands, client)

        monkeypatch.setattr("haybaler_redis.attempts.exchange", forget)
        assert store.read(store.write(key="a", content=content)) == content
        assert parts > moment + 3
        assert valkey.client.keys(f"*{prefix}*") == [f"{prefix}:a".encode()]
        store.delete_scope()


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
@pytest.mark.parametrize("large", ["x" * 2_001, "é" * 1_001, b"x" * 2_001, "x" * 9 * _MB, "é" * 5 * _MB])
def test_an_entry_that_is_too_large_fails_alone(
    request: pytest.FixtureRequest, prefix: str, kind: str, large: str | bytes
) -> None:
    server: RedisServer = request.getfixturevalue("valkey" if kind == VALKEY else "redis6")
    with RedisToolResultStore(server.url, prefix=prefix, max_bytes=2_000, ttl=60) as store:
        first, refused, last = asyncio.run(
            store.write_many_async(
                [StoreEntry("a", "x" * 2_000), StoreEntry("b", large), StoreEntry("c", b"\xff" * 2_000)]
            )
        )
        assert isinstance(refused, EntryTooLargeError)
        assert isinstance(refused, ValueError)
        assert "2000" in str(refused)
        assert asyncio.run(store.read_async(str(first))) == "x" * 2_000
        assert asyncio.run(store.read_async(str(last))) == b"\xff" * 2_000
        assert server.client.exists(f"{prefix}:b") == 0


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
@pytest.mark.parametrize("ttl", [60, None])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("size", [_MB, 5 * _MB])
def test_row_17_an_entry_that_is_too_large_for_the_server_fails_alone(
    prefix: str, kind: str, ttl: int | None, is_async: bool, size: int
) -> None:
    fitting = _MB - HEADER_BYTES
    contents: list[str | bytes] = [
        "x",
        "x" * fitting,
        "é" * (size // 2),
        b"x" * (fitting + 1),
        b"x" * size,
        b"x" * fitting,
        "y",
    ]
    entries = [StoreEntry(f"key-{number}", content) for number, content in enumerate(contents)]
    with (
        redis_server(kind, "--proto-max-bulk-len", "1mb") as server,
        RedisToolResultStore(server.url, prefix=prefix, ttl=ttl) as store,
    ):
        for batch in (entries, entries[3:4]):
            outcomes = asyncio.run(store.write_many_async(batch)) if is_async else store.write_many(batch)
            for entry, outcome in zip(batch, outcomes, strict=True):
                if entry in entries[2:5]:
                    assert type(outcome) is EntryTooLargeError
                    assert f"the server takes at most {fitting}" in str(outcome)
                else:
                    assert store.read(str(outcome)) == entry.content
        assert len(server.client.keys(f"*{prefix}*")) == 4


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
def test_row_17_the_server_is_asked_once_what_it_takes_and_only_for_the_sake_of_large_entries(
    prefix: str, kind: str
) -> None:
    with redis_server(kind) as server, RedisToolResultStore(server.url, prefix=prefix, ttl=60) as store:

        def asked() -> int:
            calls = _calls(server)
            return calls.get("config|get", calls.get("config", 0))

        before = asked()  # some versions count what they read at their start
        store.write_many(_entries(300, 10_000))
        assert asked() == before
        for _ in range(3):
            store.write_many([StoreEntry("large", "x" * 3 * _MB), StoreEntry("other", "x" * 6 * _MB)])
        assert asked() == before + 1


def test_row_17_who_may_not_ask_what_the_server_takes_writes_large_entries_all_the_same(
    valkey: RedisServer, prefix: str
) -> None:
    valkey.client.execute_command("ACL SETUSER", prefix, "on", ">secret", "~*", "+@all", "-config")
    url = valkey.url.replace("redis://", f"redis://{prefix}:secret@")
    with RedisToolResultStore(url, prefix=prefix, ttl=60) as store:
        outcomes = store.write_many([StoreEntry("a", "x" * 3 * _MB), StoreEntry("b", "x" * 6 * _MB)])
        assert outcomes == [store.reference("a"), store.reference("b")]
    valkey.client.execute_command("ACL DELUSER", prefix)


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
@pytest.mark.parametrize("ttl", [60, None])
def test_row_17_a_full_server_refuses_what_has_no_room_and_still_reads(
    prefix: str, kind: str, ttl: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(kind, "--maxmemory", "8mb", "--maxmemory-policy", "noeviction") as server:
        store = RedisToolResultStore(server.url, prefix=prefix, ttl=ttl)
        outcomes = asyncio.run(store.write_many_async(_entries(200, 100_000)))
        written = [outcome for outcome in outcomes if isinstance(outcome, str)]
        refused = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
        assert written
        assert {type(outcome) for outcome in refused} == {StoreFullError}
        assert "memory limit" in str(refused[0])
        for outcome in outcomes:
            if isinstance(outcome, str):
                assert len(asyncio.run(store.read_async(outcome))) == 100_000
        with pytest.raises(StoreFullError):
            asyncio.run(store.write_async(key="large", content="x" * 9 * _MB))
        assert server.client.keys(f"{{{prefix}*") == []  # nothing of it is left
        asyncio.run(store.delete_async([str(reference) for reference in written]))
        assert isinstance(asyncio.run(store.write_async(key="again", content="x")), str)
    assert "keys when its memory is full" not in caplog.text


@pytest.mark.parametrize(
    ("policy", "ttl", "warns"),
    [("allkeys-lru", None, True), ("volatile-lru", 60, True), ("volatile-lru", None, False), ("noeviction", 60, False)],
)
def test_row_17_a_server_that_evicts_entries_is_announced_once(
    prefix: str, policy: str, ttl: int | None, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server(VALKEY, "--maxmemory", "100mb", "--maxmemory-policy", policy) as server:
        store = RedisToolResultStore(server.url, prefix=prefix, ttl=ttl)
        for number in range(3):
            asyncio.run(store.scoped(str(number)).write_async(key="a", content="b"))
    records = [record for record in caplog.records if "memory is full" in record.getMessage()]
    assert len(records) == warns
    assert all(vars(record)["maxmemory_policy"] == policy for record in records)


def test_a_command_that_the_user_may_not_use_is_replaced_by_single_ones(valkey: RedisServer, prefix: str) -> None:
    valkey.client.execute_command("ACL SETUSER", prefix, "on", ">secret", "~*", "+@all", "-msetex")
    url = valkey.url.replace("redis://", f"redis://{prefix}:secret@")
    with RedisToolResultStore(url, prefix=prefix, ttl=60) as store:
        assert all(isinstance(outcome, str) for outcome in asyncio.run(store.write_many_async(_entries(700, 10))))
    valkey.client.execute_command("ACL DELUSER", prefix)


def test_row_32_an_empty_batch_sends_nothing(valkey: RedisServer, prefix: str) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix) as store:
        before = valkey.connections()
        assert asyncio.run(store.write_many_async([])) == []
        asyncio.run(store.delete_async([]))
        assert valkey.connections() == before


@pytest.mark.parametrize("kind", [VALKEY, REDIS])
@pytest.mark.parametrize("ttl", [None, 60])
def test_a_large_batch_of_any_content_is_cut_into_round_trips_and_comes_back_whole(
    request: pytest.FixtureRequest, prefix: str, kind: str, ttl: int | None
) -> None:
    server: RedisServer = request.getfixturevalue("valkey" if kind == VALKEY else "redis6")
    contents: list[str | bytes] = [
        "",
        b"",
        "ü" * 999,
        b"\xff\x00" * 500,
        "x" * 3_000_000,
        b"\x00" * 5_000_000,
        *map(str, range(2_500)),
    ]
    entries = [StoreEntry(f"key-{number}", content) for number, content in enumerate(contents)]
    store = RedisToolResultStore(server.url, prefix=prefix, ttl=ttl)

    async def write_and_read() -> list[str | bytes]:
        references = await store.write_many_async(entries)
        assert references == [store.reference(entry.key) for entry in entries]
        return [await store.read_async(store.reference(f"key-{number}")) for number in range(len(contents))]

    assert asyncio.run(write_and_read()) == contents
    with RedisToolResultStore(client=redis.Redis.from_url(server.url), prefix=prefix, ttl=ttl) as ready:
        assert ready.write_many(entries) == [ready.reference(entry.key) for entry in entries]
        assert [ready.read(ready.reference(entry.key)) for entry in entries] == contents
