"""Large entries: uploaded in parts of one size, cleaned up whatever happens, and read in pages without the rest."""

import asyncio
import itertools
import re
import tracemalloc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from tests.services.proxy import proxy_to
from tests.services.s3_faults import WELL, Answer, FaultyS3, faulty_s3
from tests.services.s3_servers import BUCKET, S3Server

from haybaler.effects import Effect
from haybaler.errors import ConfigurationError, EntryTooLargeError, StoreConfigurationError, StoreError
from haybaler.stores.driver import page_of
from haybaler.stores.protocol import StoreEntry
from haybaler.testing import Cancellation, cancel_at
from haybaler.workers import run_in_worker
from haybaler_s3 import S3ToolResultStore
from haybaler_s3.records import Record, encoded, parts, pieces

pytestmark = pytest.mark.usefixtures("s3_environment", "short_pauses")

MIB = 1024 * 1024
PART = 5 * MIB
SMALLEST: dict[str, Any] = {"multipart_bytes": PART, "part_bytes": PART}


def store_of(server: S3Server | FaultyS3, prefix: str = "haybaler", **options: Any) -> S3ToolResultStore:
    return S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=server.endpoint, **options)


@pytest.fixture
def counting() -> Iterator[FaultyS3]:
    with faulty_s3() as server:
        yield server


@pytest.mark.parametrize(
    "content",
    ["", "a", "ä" * (3 * MIB), "\ud800\U0001f600" * MIB, b"", bytes(range(256)) * (5 * 4096), b"x" * (PART + 1)],
    ids=["empty text", "short text", "wide text", "surrogates", "empty", "one part", "one more"],
)
def test_parts_are_the_content_and_of_one_size(content: str | bytes) -> None:
    data = encoded(content)
    assert b"".join(pieces(content)) == data
    made = list(parts(content, PART))
    assert b"".join(made) == data
    assert {len(part) for part in made[:-1]} <= {PART}
    record = Record.of(content)
    assert record.size == len(data)
    assert record.content([data[:100], data[100:]]) == content


def test_parts_are_not_made_before_they_are_asked_for() -> None:
    content = "x" * (40 * MIB)
    tracemalloc.start()
    try:
        for _ in parts(content, PART):
            pass
        assert tracemalloc.get_traced_memory()[1] < 4 * PART
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("content", ["ä line\n" * (2 * MIB), b"\x00\xff" * (6 * MIB)], ids=["text", "bytes"])
def test_row_52_a_large_entry_goes_in_parts_and_comes_back(
    content: str | bytes, colour: str, seaweedfs: S3Server, prefix: str
) -> None:
    store = store_of(seaweedfs, prefix, **SMALLEST)

    async def use() -> None:
        async with store:
            reference = await store.write_async(key="key", content=content)
            assert await store.read_async(reference) == content

    if colour == "async":
        asyncio.run(use())
    else:
        with store:
            assert store.read(store.write(key="key", content=content)) == content
    # The tag of an object in parts is no digest.
    (key,) = seaweedfs.keys(prefix)
    assert seaweedfs.client.head_object(Bucket=BUCKET, Key=key)["ETag"].endswith(('-3"', '-4"'))
    assert seaweedfs.uploads() == []


def write(store: S3ToolResultStore, colour: str, content: str | bytes) -> str:
    async def use() -> str:
        async with store:
            return await store.write_async(key="key", content=content)

    if colour == "async":
        return asyncio.run(use())
    with store:
        return store.write(key="key", content=content)


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("name", ["rclone", "seaweedfs"])
def test_row_47_an_upload_whose_completion_got_no_answer_is_stored_if_it_is_there(
    name: str, colour: str, prefix: str, request: pytest.FixtureRequest
) -> None:
    # A completion that is asked for again is "no such upload" on some servers, and well on others.
    server: S3Server = request.getfixturevalue(name)
    content = b"\x00\xff" * PART
    with proxy_to(server.port) as proxy:
        proxy.lose_answer(re.compile(rb"POST [^ ]*uploadId="))
        store = S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=f"http://{proxy.address}", **SMALLEST)
        reference = write(store, colour, content)
        assert proxy.lost == 1
    with store_of(server, prefix) as store:
        assert store.read(reference) == content


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("name", ["rclone", "seaweedfs"])
@pytest.mark.parametrize("before", [None, b"y" * (2 * PART), "y" * (2 * PART)], ids=["nothing", "bytes", "text"])
def test_row_47_an_upload_that_somebody_aborted_is_not_taken_for_stored(
    before: str | bytes | None, name: str, colour: str, prefix: str, request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(name)
    store = store_of(server, prefix, **SMALLEST)
    if before is not None:
        write(store, colour, before)
    once = store._writing._requests.once

    def after_abortion(operation: str, **parameters: Any) -> Effect[Any]:
        effect = once(operation, **parameters)
        if operation != "complete_multipart_upload":
            return effect
        upload = {"Bucket": BUCKET, "Key": parameters["Key"], "UploadId": parameters["UploadId"]}

        def run() -> Any:
            server.client.abort_multipart_upload(**upload)
            return effect.run()

        async def run_async() -> Any:
            await run_in_worker(partial(server.client.abort_multipart_upload, **upload))
            return await effect.run_async()

        return Effect(run, run_async)

    store._writing._requests.once = after_abortion  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="NoSuchUpload"):
        write(store, colour, b"x" * (2 * PART))
    with store:
        assert bool(server.keys(prefix)) == (before is not None)
        assert before is None or store.read(store.reference("key")) == before


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(
    "operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "AbortMultipartUpload"]
)
@pytest.mark.parametrize("answer", [Answer(409, "OperationAborted"), Answer(429, "TooManyRequests")])
def test_row_47_each_request_of_an_upload_is_made_again_where_another_got_in_its_way(
    answer: Answer, operation: str, colour: str
) -> None:
    failing = {"UploadPart": [Answer(403, "AccessDenied")]} if operation == "AbortMultipartUpload" else {}
    with faulty_s3(**failing, **{operation: [answer, WELL]}) as server:
        store = store_of(server, **SMALLEST)
        if failing:
            with pytest.raises(StoreConfigurationError):
                write(store, colour, b"x" * (PART + 1))
            assert server.count(operation) == 2
        else:
            write(store, colour, b"x" * (PART + 1))
            assert server.count(operation) == (3 if operation == "UploadPart" else 2)
            assert server.count("AbortMultipartUpload") == 0


# Not by a timeout: for that the clock is moved, and requests run out of time as well, the one that aborts among them.
@pytest.mark.parametrize("by", [Cancellation.TASK, Cancellation.SCOPE], ids=lambda by: by.value)
def test_row_42_a_cancelled_upload_leaves_no_parts_at_any_moment(
    by: Cancellation, seaweedfs: S3Server, prefix: str
) -> None:
    store = store_of(seaweedfs, prefix, **SMALLEST)
    content = b"x" * (PART + 1)
    for step in itertools.count(1):
        cancelled = cancel_at(
            lambda: store.write_async(key="key", content=content), step=step, by=by, afterwards=store.close_async
        )
        assert seaweedfs.uploads() == [], f"cancelled at suspension {step}"
        with store:
            found = store.read(store.reference("key")) if seaweedfs.keys(prefix) else None
            assert found == content or (cancelled and found is None)
            store.delete([store.reference("key")])
        if not cancelled:
            break


def test_row_42_a_batch_of_large_entries_holds_few_bytes_at_once(counting: FaultyS3) -> None:
    counting.delay = 0.05
    store = store_of(counting, multipart_bytes=8 * MIB)
    content = b"x" * (8 * MIB)

    async def use() -> None:
        async with store:
            await asyncio.gather(*(store.write_async(key=str(number), content=content) for number in range(20)))

    asyncio.run(use())
    assert counting.count("PUT") == 20
    assert counting.most <= 8  # 64 MiB


def test_row_43_parts_that_are_sent_at_once_never_share_what_they_read_from(counting: FaultyS3) -> None:
    # Each part is bytes of its own before its request begins, and each comes in the order in which it was cut.
    store = store_of(counting, **SMALLEST)
    content = bytes(range(256)) * (3 * PART // 256 + 1)
    once, sent = store._writing._requests.once, dict[int, Any]()

    def watched(operation: str, **parameters: Any) -> Effect[Any]:
        if operation == "upload_part":
            sent[parameters["PartNumber"]] = parameters["Body"]
        return once(operation, **parameters)

    store._writing._requests.once = watched  # type: ignore[method-assign]
    for colour in ("sync", "async"):
        sent.clear()
        write(store, colour, content)
        assert all(type(body) is bytes for body in sent.values())
        assert b"".join(body for _, body in sorted(sent.items())) == content


def test_a_huge_entry_and_small_ones_do_not_wait_for_each_other_for_ever(counting: FaultyS3) -> None:
    store = store_of(counting)

    async def use() -> None:
        async with store:
            writes = [store.write_async(key=f"large {number}", content=b"x" * (100 * MIB)) for number in range(2)]
            writes += [store.write_async(key=str(number), content="x") for number in range(10)]
            await asyncio.gather(*writes)

    asyncio.run(use())
    assert counting.count("CompleteMultipartUpload") == 2
    assert counting.count("PUT") == 10


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_row_53_what_is_too_large_is_refused_before_anything_is_sent(colour: str, counting: FaultyS3) -> None:
    # In bytes, not in characters.
    store = store_of(counting, max_bytes=100)
    for content in ("x" * 101, "ä" * 51, b"x" * 101):
        entries = [StoreEntry("key", content)]
        (outcome,) = asyncio.run(store.write_many_async(entries)) if colour == "async" else store.write_many(entries)
        assert isinstance(outcome, EntryTooLargeError)
    assert counting.requests == []
    with store:
        assert store.read(store.write(key="key", content="ä" * 50)) == "ä" * 50


@pytest.mark.parametrize(
    "options", [{"part_bytes": PART - 1}, {"part_bytes": 9 * MIB}, {"max_bytes": 0}, {"max_bytes": 10_000 * PART + 1}]
)
def test_row_53_sizes_that_the_protocol_does_not_allow_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        S3ToolResultStore("bucket", **options)


LARGE = 100 * MIB


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize(
    ("offset", "most"),
    [(0, 0.1), (LARGE // 2, 0.1), (-1000, 0.1), (LARGE - 10, 0.1), (LARGE + 5, 0.1)],
    ids=["beginning", "middle", "before the end", "at the end", "beyond"],
)
def test_row_59_a_page_of_a_large_ascii_entry_fetches_little(
    offset: int, most: float, colour: str, counting: FaultyS3
) -> None:
    store = store_of(counting)
    content = (b"0123456789abcdef" * (LARGE // 16)).decode()
    counting.objects[f"/{BUCKET}/haybaler/key"] = content.encode(), _said(content)
    assert _page(store, colour, offset, 1000) == page_of(content, offset, 1000)
    assert counting.sent <= most * MIB + 1000


@pytest.mark.parametrize(
    ("offset", "most"),
    [(0, 0.1), (50_000, 0.4), (1_000_000, 5), (-1000, 0.2), (-60_000, 0.4)],
    ids=["first", "near", "later", "last", "nearly last"],
)
def test_row_59_a_page_of_a_large_entry_of_any_script_fetches_no_more_than_it_must(
    offset: int, most: float, counting: FaultyS3
) -> None:
    store = store_of(counting)
    content = "日本語 text ä" * 2_000_000
    counting.objects[f"/{BUCKET}/haybaler/key"] = content.encode(), _said(content)
    assert _page(store, "async", offset, 1000) == page_of(content, offset, 1000)
    assert counting.sent <= most * MIB


@pytest.mark.parametrize("content", ["", "short", "ä" * 100_000, "x" * 200_000, b"", b"\xff" * 200_000])
def test_rows_35_and_36_pages_are_the_same_on_real_servers(
    content: str | bytes, rclone: S3Server, seaweedfs: S3Server, prefix: str
) -> None:
    # Also where ranged answers carry the checksum of the whole.
    for server in (rclone, seaweedfs):
        with store_of(server, prefix) as store:
            reference = store.write(key="key", content=content)
            for offset in (0, 1, 65_535, 65_536, 150_000, -1, -70_000):
                for limit in (0, 1, 1000, 300_000):
                    page = store.read_page(reference, offset=offset, limit=limit)
                    assert page == page_of(content, offset, limit), (offset, limit)


def test_an_entry_that_is_replaced_between_two_requests_is_not_mixed(counting: FaultyS3) -> None:
    store = store_of(counting)
    key = f"/{BUCKET}/haybaler/key"
    old, new = "a" * 300_000, "b" * 300_000
    counting.objects[key] = old.encode(), _said(old)
    answer = counting.next_answer

    def replacing(operation: str) -> Any:
        if counting.count("GET") == 1:
            counting.objects[key] = new.encode(), _said(new)
        return answer(operation)

    counting.next_answer = replacing  # type: ignore[method-assign]
    with store:
        assert store.read_page(store.reference("key"), offset=60_000, limit=100_000).content == "b" * 100_000


def _said(content: str | bytes) -> dict[str, str]:
    metadata: Any = Record.of(content).parameters["Metadata"]
    return {f"x-amz-meta-{name}": value for name, value in metadata.items()}


def _page(store: S3ToolResultStore, colour: str, offset: int, limit: int) -> Any:
    async def use() -> Any:
        async with store:
            return await store.read_page_async(store.reference("key"), offset=offset, limit=limit)

    if colour == "async":
        return asyncio.run(use())
    with store:
        return store.read_page(store.reference("key"), offset=offset, limit=limit)
