"""Writing a batch of entries into an S3 server."""

import asyncio
import os
from contextlib import nullcontext
from typing import Any

import aioboto3
from botocore.config import Config
from tests.services.s3_servers import BUCKET, ENVIRONMENT, s3_server

from benchmarks.batches import Write, batch_cases, write_all
from benchmarks.report import HAYBALER, LOOP, RAW, TIME, Group
from benchmarks.timing import measure
from haybaler import StoreEntry
from haybaler_s3 import S3ToolResultStore

IN_FLIGHT = 16  # the client is at its fastest from here on


# The same objects, so with metadata.
async def _raw(client: Any, entries: list[StoreEntry], *, limit: int) -> None:
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


async def s3(*, repetitions: int, quick: bool) -> Group:
    """Time batches of small, middling and big entries against `rclone serve s3`."""
    os.environ.update(ENVIRONMENT)
    with s3_server() as server:
        settings = Config(
            max_pool_connections=50,
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        store = S3ToolResultStore(BUCKET, endpoint_url=server.endpoint)
        async with aioboto3.Session().client("s3", endpoint_url=server.endpoint, config=settings) as client, store:
            writes: dict[str, Write[None]] = {
                HAYBALER: lambda _, entries: write_all(store, entries),
                "aioboto3, all at once": lambda _, entries: _raw(client, entries, limit=50),
                "aioboto3, one by one": lambda _, entries: _raw(client, entries, limit=1),
                RAW: lambda _, entries: _raw(client, entries, limit=IN_FLIGHT),
            }
            cases = batch_cases(writes, nullcontext, quick=quick)
            await measure(cases, repetitions=repetitions)
    target = f"Target: 1.15 x aioboto3 with {IN_FLIGHT} requests in flight; the loop stands still for at most 30 ms."
    return Group(
        name="s3",
        title="S3ToolResultStore.write_many_async",
        target=target,
        columns=[TIME, *LOOP],
        cases=cases,
    )
