"""One client for each event loop and one for synchronous callers; ready ones are used as they are, and never closed."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aioboto3
import boto3
import pytest
from aiobotocore.session import get_session
from botocore.config import Config
from tests.services.s3_faults import FaultyS3, faulty_s3
from tests.services.s3_servers import BUCKET, ENVIRONMENT, S3Server

from haybaler.errors import AsyncOnlyStoreError, ConfigurationError, NotSerializableError, StoreConfigurationError
from haybaler.testing import each_cancellation
from haybaler.workers import run_in_worker
from haybaler_s3 import S3ToolResultStore
from haybaler_s3.abandoned import abandon
from haybaler_s3.sessions import Sessions

pytestmark = pytest.mark.usefixtures("s3_environment")

CONFIG = Config(s3={"addressing_style": "path"}, response_checksum_validation="when_required")
KEYS = {
    "aws_access_key_id": ENVIRONMENT["AWS_ACCESS_KEY_ID"],
    "aws_secret_access_key": ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
    "region_name": "us-east-1",
}


@pytest.fixture
def server() -> Iterator[FaultyS3]:
    with faulty_s3() as server:
        yield server


def store_of(server: FaultyS3, **options: Any) -> S3ToolResultStore:
    return S3ToolResultStore("bucket", endpoint_url=server.endpoint, **options)


def assert_disconnected(server: FaultyS3) -> None:
    gc.collect()
    deadline = time.monotonic() + 10
    while server.connections:
        assert time.monotonic() < deadline, "a connection is still open"
        time.sleep(0.01)


async def write_ten(store: S3ToolResultStore) -> None:
    await asyncio.gather(*(store.write_async(key=str(number), content="content") for number in range(10)))


def test_a_loop_that_ends_takes_its_connections_along(server: FaultyS3) -> None:
    store = store_of(server)
    asyncio.run(write_ten(store))
    assert_disconnected(server)
    asyncio.run(write_ten(store))
    assert_disconnected(server)


def test_rows_1_and_55_the_connections_of_a_loop_that_was_closed_without_a_word_are_closed_too(
    server: FaultyS3,
) -> None:
    store = store_of(server)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(write_ten(store))
    loop.close()
    assert server.connections
    asyncio.run(write_ten(store))
    assert_disconnected(server)


def test_rows_37_and_38_one_session_and_one_client_serve_a_whole_loop_and_the_next(server: FaultyS3) -> None:
    # Making them is what is slow, and what grows.
    store = store_of(server)
    sessions, make = [], store._clients._sessions.make

    def counted() -> tuple[Any, bool]:
        sessions.append(make())
        return sessions[-1]

    store._clients._sessions.make = counted  # type: ignore[method-assign]
    for _ in range(3):
        asyncio.run(write_ten(store))
    assert len(sessions) == 1


def test_a_store_that_is_dropped_after_its_loop_leaves_no_connection(server: FaultyS3) -> None:
    store = store_of(server)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(write_ten(store))
    loop.close()
    del store
    assert_disconnected(server)


def test_loops_in_threads_at_once_have_clients_of_their_own(server: FaultyS3) -> None:
    store = store_of(server)
    start = threading.Barrier(3)

    def run() -> None:
        start.wait()
        asyncio.run(write_ten(store))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(run) for _ in range(3)]:
            done.result()
    assert_disconnected(server)
    assert server.count("PUT") == 30


def test_closing_lets_requests_in_flight_finish(server: FaultyS3) -> None:
    server.delay = 0.2

    async def use() -> None:
        store = store_of(server)
        await store.warm_up_async()
        writing = asyncio.create_task(store.write_async(key="key", content="content"))
        await run_in_worker(server.busy.wait)
        await store.close_async()
        assert await writing == store.reference("key")

    asyncio.run(use())
    assert_disconnected(server)


def test_closing_lets_requests_of_other_threads_finish(server: FaultyS3) -> None:
    server.delay = 0.2
    store = store_of(server)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(store.write, key="key", content="content")
        server.busy.wait()
        store.close()
        assert writing.result() == store.reference("key")
    assert_disconnected(server)


def test_opening_can_be_cancelled_at_any_moment(server: FaultyS3) -> None:
    store = store_of(server)
    reached = [run for run in each_cancellation(store.warm_up_async, afterwards=store.close_async) if run[2]]
    assert len(reached) >= 3
    asyncio.run(write_ten(store))
    assert_disconnected(server)


def test_opening_reads_credentials_from_files_off_the_loop(
    server: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The guard of the tests raises where a file is read on the loop.
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = id\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    asyncio.run(write_ten(store_of(server)))


@pytest.mark.parametrize("make", [lambda: aioboto3.Session(**KEYS), get_session], ids=["aioboto3", "aiobotocore"])
def test_a_ready_session_serves_asynchronous_callers_of_any_loop(make: Any, server: FaultyS3) -> None:
    store = store_of(server, session=make())
    for _ in range(2):
        asyncio.run(write_ten(store))
    assert_disconnected(server)
    with pytest.raises(AsyncOnlyStoreError):
        store.write(key="key", content="content")
    with pytest.raises(NotSerializableError):
        store.to_dict()


def test_a_ready_client_is_used_and_never_closed(rclone: S3Server, prefix: str) -> None:
    session, _ = Sessions(None, find_credentials=True).make()

    async def use() -> None:
        async with session.create_client("s3", endpoint_url=rclone.endpoint, config=CONFIG) as client:
            store = S3ToolResultStore(BUCKET, prefix=prefix, client=client)
            async with store:
                reference = await store.write_async(key="key", content="content")
            assert await store.read_async(reference) == "content"
            await store.close_async()
            await client.head_bucket(Bucket=BUCKET)
            with pytest.raises(AsyncOnlyStoreError):
                store.read(reference)

    asyncio.run(use())


def test_row_36_a_ready_client_that_checks_a_part_against_the_checksum_of_the_whole_is_told_how_not_to(
    rclone: S3Server, prefix: str
) -> None:
    with S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint, checksums="when_supported") as store:
        reference = store.write(key="key", content="ä" * 1_000_000)
    session, _ = Sessions(None, find_credentials=True).make()
    config = Config(s3={"addressing_style": "path"})

    async def use() -> None:
        async with session.create_client("s3", endpoint_url=rclone.endpoint, config=config) as client:
            await S3ToolResultStore(BUCKET, prefix=prefix, client=client).read_page_async(reference, limit=10)

    with pytest.raises(StoreConfigurationError, match="when_required"):
        asyncio.run(use())
    # Of the other colour, the store reads past it.
    sync_client = boto3.session.Session().client("s3", endpoint_url=rclone.endpoint, config=config)
    try:
        ready = S3ToolResultStore(BUCKET, prefix=prefix, sync_client=sync_client)
        assert ready.read_page(reference, limit=10).content == "ä" * 10
    finally:
        sync_client.close()


_WITHOUT_AIOBOTO3 = """
import asyncio, sys
sys.modules["aioboto3"] = None  # as if it were not installed
import boto3
from aiobotocore.session import get_session
from haybaler_s3 import S3ToolResultStore

async def use(store):
    async with store:
        assert await store.read_async(await store.write_async(key="key", content="content")) == "content"

async def use_ready():
    async with get_session().create_client("s3", endpoint_url=sys.argv[1]) as client:
        await use(S3ToolResultStore("bucket", client=client))

asyncio.run(use_ready())
asyncio.run(use(S3ToolResultStore("bucket", session=get_session(), endpoint_url=sys.argv[1])))
asyncio.run(use(S3ToolResultStore("bucket", endpoint_url=sys.argv[1])))
client = boto3.client("s3", endpoint_url=sys.argv[1])
for store in (S3ToolResultStore("bucket", sync_client=client), S3ToolResultStore("bucket", endpoint_url=sys.argv[1])):
    with store:
        assert store.read(store.write(key="key", content="content")) == "content"
"""


def test_row_40_nothing_but_a_session_of_aioboto3_needs_aioboto3(server: FaultyS3) -> None:
    command = [sys.executable, "-c", _WITHOUT_AIOBOTO3, server.endpoint]
    done = subprocess.run(command, env={**os.environ}, check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert server.count("PUT") == 5


def test_a_ready_synchronous_client_serves_both_and_is_never_closed(rclone: S3Server, prefix: str) -> None:
    store = S3ToolResultStore(BUCKET, prefix=prefix, sync_client=rclone.client, multipart_bytes=5 * 1024 * 1024)
    with store:
        reference = store.write(key="key", content="content")
    large = "ä" * (3 * 1024 * 1024)

    async def use() -> None:
        async with store:
            assert await store.read_async(reference) == "content"
            assert await store.read_async(await store.write_async(key="large", content=large)) == large
            await store.delete_async([reference])

    asyncio.run(use())
    rclone.client.head_bucket(Bucket=BUCKET)
    assert len(rclone.keys(prefix)) == 1
    with pytest.raises(NotSerializableError):
        store.to_dict()


def test_both_ready_clients_serve_their_own_callers(server: FaultyS3, rclone: S3Server) -> None:
    store = store_of(server, session=aioboto3.Session(**KEYS), sync_client=rclone.client)
    asyncio.run(write_ten(store))
    assert server.count("PUT") == 10
    with pytest.raises(StoreConfigurationError):
        store.write(key="key", content="content")  # the bucket does not exist there
    assert server.count("PUT") == 10


def test_row_55_a_ready_client_in_another_loop_than_its_own_says_so(server: FaultyS3) -> None:
    # It fails there for ever.
    session, _ = Sessions(None, find_credentials=True).make()
    client: Any = None

    async def use() -> S3ToolResultStore:
        nonlocal client
        client = await session.create_client("s3", endpoint_url=server.endpoint, config=CONFIG).__aenter__()
        store = S3ToolResultStore("bucket", client=client)
        await write_ten(store)
        return store

    store = asyncio.run(use())
    with pytest.raises(StoreConfigurationError, match="another event loop"):
        asyncio.run(store.write_async(key="key", content="content"))
    abandon(client)
    assert_disconnected(server)


def test_what_is_of_the_wrong_kind_is_refused_at_once(rclone: S3Server) -> None:
    with pytest.raises(ConfigurationError, match="belongs into `sync_client`"):
        S3ToolResultStore("bucket", client=rclone.client)
    with pytest.raises(ConfigurationError, match="session of aioboto3"):
        S3ToolResultStore("bucket", session=boto3.session.Session())
    with pytest.raises(ConfigurationError, match="either"):
        S3ToolResultStore("bucket", session=get_session(), client=object())


_FORK = """
import os, sys
from haybaler_s3 import S3ToolResultStore

store = S3ToolResultStore("bucket", endpoint_url=sys.argv[1])
store.write(key="before", content="content")
client = store._clients._threads
child = os.fork()
if not child:
    try:
        store.write(key="after", content="content")
        os._exit(7 if store._clients._threads is client else 0)
    except BaseException:
        os._exit(8)
assert os.waitpid(child, 0)[1] == 0
store.write(key="later", content="content")
assert store._clients._threads is client
"""


def test_row_56_a_forked_process_makes_a_client_of_its_own(server: FaultyS3) -> None:
    done = subprocess.run([sys.executable, "-c", _FORK, server.endpoint], env={**os.environ}, check=False, timeout=60)
    assert done.returncode == 0
    assert server.count("PUT") == 3
