"""Writing a batch of entries into an S3 server."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import aioboto3
from botocore.config import Config
from tests.services.s3_servers import BUCKET, ENVIRONMENT, s3_server

from benchmarks.report import HAYBALER, LOOP, RAW, TIME, Group
from benchmarks.timing import Action, Case, measure
from haybaler import StoreEntry
from haybaler_s3 import S3ToolResultStore

ENTRIES = 1_000
IN_FLIGHT = 16  # the client is at its fastest from here on

Write = Callable[[Any, S3ToolResultStore, list[StoreEntry]], Awaitable[None]]


async def _haybaler(client: Any, store: S3ToolResultStore, entries: list[StoreEntry]) -> None:
    outcomes = await store.write_many_async(entries)
    assert all(isinstance(outcome, str) for outcome in outcomes), "an entry was not written"


# The same objects, so with metadata.
async def _raw(client: Any, store: S3ToolResultStore, entries: list[StoreEntry], *, limit: int) -> None:
    remaining = iter(entries)

    async def put() -> None:
        for entry in remaining:
            await client.put_object(
                Bucket=BUCKET,
                Key=f"raw/{entry.key}",
                Body=str(entry.content).encode(),
                ContentType="text/plain; charset=utf-8",
                Metadata={"haybaler": "t.1024.1024.00000000"},
            )

    await asyncio.gather(*(put() for _ in range(limit)))


def _writing(
    write: Write, client: Any, store: S3ToolResultStore, entries: list[StoreEntry]
) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        yield partial(write, client, store, entries)

    return prepare


async def s3(*, repetitions: int, quick: bool) -> Group:
    """Time batches of small, middling and big entries against `rclone serve s3`."""
    os.environ.update(ENVIRONMENT)
    cases: list[Case] = []
    with s3_server() as server:
        settings = Config(
            max_pool_connections=50,
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        store = S3ToolResultStore(BUCKET, endpoint_url=server.endpoint)
        async with aioboto3.Session().client("s3", endpoint_url=server.endpoint, config=settings) as client, store:
            for kilobytes in [10] if quick else [1, 10, 100]:
                text = "x" * (kilobytes * 1024)
                entries = [StoreEntry(f"{number}.txt", f"{number:06}{text[6:]}") for number in range(ENTRIES)]
                writes: dict[str, Write] = {
                    HAYBALER: _haybaler,
                    "aioboto3, all at once": partial(_raw, limit=50),
                    "aioboto3, one by one": partial(_raw, limit=1),
                    RAW: partial(_raw, limit=IN_FLIGHT),
                }
                cases += [
                    Case(f"{ENTRIES:,} x {kilobytes} KB", who, _writing(write, client, store, entries))
                    for who, write in writes.items()
                ]
            await measure(cases, repetitions=repetitions)
    target = f"Target: 1.15 x aioboto3 with {IN_FLIGHT} requests in flight; the loop stands still for at most 30 ms."
    return Group(
        name="s3",
        title="S3ToolResultStore.write_many_async",
        target=target,
        columns=[TIME, *LOOP],
        cases=cases,
    )
