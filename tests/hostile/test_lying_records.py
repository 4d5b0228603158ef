"""A header, metadata or a seal that lies about a content: the right error at once, whatever length it claims."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.case import each
from tests.hostile.corpus_records import DATA, GIB, REDIS, S3, SEALS
from tests.services.redis_servers import RedisServer
from tests.services.s3_servers import BUCKET, S3Server
from xxhash import xxh3_64_intdigest

from haybaler.errors import CorruptEntryError
from haybaler.stores.protocol import StorePage
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_filesystem.seals import Seal
from haybaler_redis import RedisToolResultStore
from haybaler_s3 import S3ToolResultStore

PAGES = [(0, 100), (-100, 100), (100_000, 100), (GIB - 10, 5), (-GIB, GIB), (0, GIB)]


def is_part(page: StorePage) -> bool:
    """Whether a page has nothing in it but bytes that are stored."""
    content = page.content.encode() if isinstance(page.content, str) else page.content
    return content in 2 * DATA


async def refused(store: Any, reference: str) -> None:
    """See that a read fails, and that a page fails or has only what is there; all within a bounded time."""
    async with asyncio.timeout(20):
        with pytest.raises(CorruptEntryError):
            await store.read_async(reference)
        for offset, limit in PAGES:
            try:
                page = await store.read_page_async(reference, offset=offset, limit=limit)
            except CorruptEntryError:
                continue
            assert is_part(page)
        await store.close_async()


@pytest.fixture
def redis_store(valkey: RedisServer, prefix: str) -> Iterator[RedisToolResultStore]:
    with RedisToolResultStore(valkey.url, prefix=prefix, ttl=600) as store:
        yield store


@each(REDIS)
def test_a_redis_record_that_lies_is_damage(case: Any, redis_store: RedisToolResultStore, valkey: RedisServer) -> None:
    reference = redis_store.reference("key")
    key = redis_store._key("key")
    valkey.client.set(key, case.value(key))
    valkey.client.config_resetstat()
    asyncio.run(refused(redis_store, reference))
    assert valkey.client.info("commandstats")["cmdstat_getrange"]["calls"] < 40
    with pytest.raises(CorruptEntryError):
        redis_store.read(reference)
    assert redis_store.read(redis_store.write(key="key", content="new")) == "new"


@each(S3)
@pytest.mark.usefixtures("s3_environment")
def test_an_s3_object_whose_metadata_lie_is_damage(case: Any, rclone: S3Server, prefix: str) -> None:
    with S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint) as store:
        reference = store.reference("key")
        rclone.client.put_object(Bucket=BUCKET, Key=f"{prefix}/key", Body=DATA, Metadata={"haybaler": case.value})
        asyncio.run(refused(store, reference))
        with pytest.raises(CorruptEntryError):
            store.read(reference)
        assert store.read(store.write(key="key", content="new")) == "new"


@each(SEALS)
def test_a_seal_that_lies_is_none(case: Any, tmp_path: Path) -> None:
    with FileSystemToolResultStore(tmp_path) as store:
        reference = store.write(key="key", content=DATA.decode())
        entry, (seal,) = tmp_path / "key", (tmp_path / ".seals").iterdir()
        forged = seal.with_name(case.value("key", xxh3_64_intdigest(DATA), entry.stat().st_ino))
        assert Seal.parse(forged.name) in {None, _as_it_says(forged.name)}
        seal.rename(forged)
        asyncio.run(refused(store, reference))
        assert store.read(store.write(key="key", content="new")) == "new"
        store.delete_scope()
        assert list(tmp_path.rglob("key*")) == []


def _as_it_says(name: str) -> Seal | None:
    seal = Seal.parse(name)
    return seal if seal is not None and seal.file_name == name else None
