"""Pages of large entries without the rest, and entries that live on because they are read."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.services.redis_servers import RedisServer, until

from haybaler.errors import ConfigurationError, CorruptEntryError, ReferenceNotFoundError
from haybaler.stores.protocol import StoreEntry, StorePage
from haybaler_redis import RedisToolResultStore
from haybaler_redis.commands import get_range
from haybaler_redis.exchange import exchange
from haybaler_redis.reading import FIRST_BYTES, RANGE_BYTES
from haybaler_redis.records import HEADER_BYTES

Page = Callable[[RedisToolResultStore, str, int, int], StorePage]

_ASCII = "".join(f"{number:07d}\n" for number in range(1_250_000))  # 10 MB
_CONTENTS: dict[str, str | bytes] = {
    "ascii": _ASCII,
    "bytes": _ASCII.encode(),
    "wide": "é中😀\ud800x" * 300_000,
    "wide at the end": "x" * 3_000_000 + "é",
    "small": "é中😀\ud800x" * 100,
    "empty": "",
    "at the first range": "x" * FIRST_BYTES,
    "beyond the first range": "é" * (FIRST_BYTES // 2) + "x",
}


def _page_async(store: RedisToolResultStore, reference: str, offset: int, limit: int) -> StorePage:
    return asyncio.run(store.read_page_async(reference, offset=offset, limit=limit))


def _page_sync(store: RedisToolResultStore, reference: str, offset: int, limit: int) -> StorePage:
    return store.read_page(reference, offset=offset, limit=limit)


@pytest.mark.parametrize("page", [_page_async, _page_sync])
@pytest.mark.parametrize("name", _CONTENTS)
def test_a_page_is_the_same_part_of_the_content(valkey: RedisServer, prefix: str, page: Page, name: str) -> None:
    content = _CONTENTS[name]
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        reference = store.write(key="a", content=content)
        total = len(content)
        for offset in (0, 1, 65_500, total // 2, total - 3, total, total + 5, -1, -70_000, -total, -total - 5):
            for limit in (0, 1, 5, 5_000):
                start = min(max(offset + total, 0) if offset < 0 else offset, total)
                assert page(store, reference, offset, limit) == StorePage(content[start : start + limit], start, total)
        assert page(store, reference, 7, 2 * total + 1).content == content[7:]
        store.delete([reference])


@pytest.mark.parametrize("page", [_page_async, _page_sync])
@pytest.mark.parametrize(("name", "most"), [("ascii", 200_000), ("bytes", 200_000), ("wide", 200_000)])
def test_a_page_of_10_mb_does_not_fetch_10_mb(
    valkey: RedisServer, prefix: str, page: Page, name: str, most: int
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        reference = store.write(key="a", content=_CONTENTS[name])
        for offset in (0, 1_000, -1_000) if name == "wide" else (0, 5_000_000, -1_000):
            before = valkey.client.info("stats")["total_net_output_bytes"]
            assert len(page(store, reference, offset, 1_000).content) == 1_000
            assert valkey.client.info("stats")["total_net_output_bytes"] - before < most
        store.delete([reference])


@pytest.mark.parametrize("offset", [0, 5_000_000, -10])
def test_damage_that_a_page_can_see_is_reported(valkey: RedisServer, prefix: str, offset: int) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        reference = store.write(key="a", content=_ASCII)
        key = f"{prefix}:a"
        whole = valkey.client.get(key)
        valkey.client.set(key, whole[: FIRST_BYTES // 2])  # cut off
        with pytest.raises(CorruptEntryError):
            store.read_page(reference, offset=offset, limit=2 * FIRST_BYTES)
        valkey.client.set(key, whole[:HEADER_BYTES] + b"\xff" * (len(whole) - HEADER_BYTES))
        with pytest.raises(CorruptEntryError):
            store.read_page(reference, offset=offset, limit=10)


@pytest.mark.parametrize("content", [_ASCII, "wide é" * 10, "ascii", b"bytes"])
def test_damage_of_any_kind_is_seen_by_a_whole_read(valkey: RedisServer, prefix: str, content: str | bytes) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        reference = store.write(key="a", content=content)
        key = f"{prefix}:a"
        whole = valkey.client.get(key)
        for damaged in (
            whole[:-1],
            whole[:-1] + b"x",
            b"x" + whole[1:],
            whole[:HEADER_BYTES],
            whole[:5],
            b"\xff" + whole,
        ):
            valkey.client.set(key, damaged)
            with pytest.raises(CorruptEntryError):
                store.read(reference)


@pytest.mark.parametrize("replaced", ["other " * 1_000_000, "short", None])
@pytest.mark.parametrize("paged", [True, False])
def test_an_entry_that_is_replaced_while_it_is_read_is_never_a_mixture(
    valkey: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, replaced: str | None, paged: bool
) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=60) as store:
        old = "first " * 1_000_000
        reference = store.write(key="a", content=old)
        ranges = 0

        def replace_in_the_middle(commands: Any, client: Any) -> Any:
            nonlocal ranges
            ranges += commands[0].arguments[0] == "GETRANGE"
            if ranges == 2 and commands[0] == get_range(commands[0].key, *_range_of(commands[0])):
                monkeypatch.undo()
                if replaced is None:
                    store.delete([reference])
                else:
                    store.write(key="a", content=replaced)
            return exchange(commands, client)

        monkeypatch.setattr("haybaler_redis.attempts.exchange", replace_in_the_middle)

        def read() -> str | bytes:
            return store.read_page(reference, offset=RANGE_BYTES, limit=100).content if paged else store.read(reference)

        if replaced is None:
            with pytest.raises(ReferenceNotFoundError):
                read()
        else:
            assert read() == (replaced[RANGE_BYTES : RANGE_BYTES + 100] if paged else replaced)


def _range_of(command: Any) -> tuple[int, int]:
    _, _, start, end = command.arguments
    return start, end - start + 1


@pytest.mark.parametrize("ttl", [100, 100.0, timedelta(seconds=100)])
def test_row_28_every_read_renews_the_time_to_live(valkey: RedisServer, prefix: str, ttl: float | timedelta) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=ttl) as store:
        small, large = store.write(key="small", content="x"), store.write(key="large", content="x" * 9_000_000)
        reads: list[Callable[[str], object]] = [
            store.read,
            lambda reference: asyncio.run(store.read_async(reference)),
            lambda reference: store.read_page(reference, limit=1),
            lambda reference: asyncio.run(store.read_page_async(reference, offset=-1, limit=1)),
        ]
        for reference in (small, large):
            key = f"{prefix}:{reference.rpartition('/')[2]}"
            for read in reads:
                assert 95 < valkey.client.ttl(key) <= 100
                valkey.client.expire(key, 5)
                read(reference)
            assert 95 < valkey.client.ttl(key) <= 100


def test_row_28_an_entry_expires_when_nobody_reads_it(valkey: RedisServer, prefix: str) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=0.05) as store:
        (outcome, _) = store.write_many([StoreEntry("a", "b"), StoreEntry("c", "d")])
        until(lambda: not valkey.client.exists(f"{prefix}:a"))
        with pytest.raises(ReferenceNotFoundError):
            store.read(str(outcome))


def test_without_a_ttl_entries_stay_and_reads_leave_them_alone(valkey: RedisServer, prefix: str) -> None:
    with RedisToolResultStore(valkey.url, prefix=prefix) as store:
        references = [store.write(key="small", content="x"), store.write(key="large", content="x" * 9_000_000)]
        for reference in references:
            store.read(reference)
            assert valkey.client.ttl(f"{prefix}:{reference.rpartition('/')[2]}") == -1
        store.delete(references)


@pytest.mark.parametrize("ttl", [0, -1, 1 << 60, float("nan"), float("inf"), True, "60", timedelta(0), 1e-9])
def test_row_32_a_time_to_live_that_is_none_is_refused(ttl: Any) -> None:
    with pytest.raises(ConfigurationError, match="`ttl`"):
        RedisToolResultStore("redis://localhost", ttl=ttl)
