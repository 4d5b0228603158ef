"""Times to live of objects, and sweeping, on real servers; only the time is made up."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from tests.services.s3_servers import BUCKET, S3Server

from haybaler.errors import ConfigurationError, ReferenceNotFoundError
from haybaler.stores.inventory import SweepReport
from haybaler.stores.protocol import DeletedScope, StoreEntry
from haybaler_s3 import S3ToolResultStore, lifespan, sweeping
from haybaler_s3.requests import Requests

pytestmark = pytest.mark.usefixtures("s3_environment")

HOUR = 3600.0
both_colours = pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])


@pytest.fixture(params=["rclone", "seaweedfs"])
def server(request: pytest.FixtureRequest) -> S3Server:
    server: S3Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def store(server: S3Server, prefix: str) -> S3ToolResultStore:
    return S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=server.endpoint, ttl=HOUR)


class Clock:
    """What the server's clock says, some time from now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.later = 0.0
        real = lifespan.server_time

        def server_time(answer: Mapping[str, Any]) -> Any:
            return real(answer) + timedelta(seconds=self.later)

        for module in (lifespan, sweeping):
            monkeypatch.setattr(module, "server_time", server_time)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def run(store: S3ToolResultStore, is_async: bool, name: str, *args: Any, **options: Any) -> Any:
    async def use() -> Any:
        async with store:
            if name == "list":
                return [entry async for entry in store.list_async()]
            return await getattr(store, f"{name}_async")(*args, **options)

    if is_async:
        return asyncio.run(use())
    with store:
        result = getattr(store, name)(*args, **options)
        return list(result) if name == "list" else result


@both_colours
def test_an_expired_entry_is_absent_and_a_sweep_removes_it_and_nothing_else(
    server: S3Server, store: S3ToolResultStore, clock: Clock, prefix: str, is_async: bool
) -> None:
    inner = store.scoped("run")
    old = inner.write(key="old", content="éé")
    clock.later = 1.25 * HOUR + 10
    for name in ("read", "stat"):
        with pytest.raises(ReferenceNotFoundError):
            run(inner, is_async, name, old)
    with pytest.raises(ReferenceNotFoundError):
        run(inner, is_async, "read_page", old, limit=1)
    assert run(store, is_async, "list") == []
    assert run(store.scoped("other"), is_async, "sweep") == SweepReport()
    assert server.keys(prefix) == [f"{prefix}/@run/old"]
    assert run(store, is_async, "sweep") == SweepReport(expired=1, bytes=4)
    assert server.keys(prefix) == []
    clock.later = 0.0
    inner.write(key="old", content="x")
    assert run(store, is_async, "sweep") == SweepReport()
    assert inner.read(old) == "x"


@both_colours
def test_reads_renew_at_most_once_in_a_quarter_of_the_time(
    server: S3Server, store: S3ToolResultStore, clock: Clock, prefix: str, is_async: bool
) -> None:
    reference = store.write(key="a", content="x" * 100_000)
    entry, mark = f"{prefix}/a", f"{prefix}/!a"
    clock.later = HOUR / 5
    assert run(store, is_async, "read_page", reference, limit=1).content == "x"
    assert server.keys(prefix) == [entry]  # it lives for long yet
    clock.later = HOUR / 2
    run(store, is_async, "stat", reference)
    assert server.keys(prefix) == [entry]
    run(store, is_async, "read_page", reference, limit=1)
    assert server.keys(prefix) == [mark, entry]
    marked = server.client.head_object(Bucket=BUCKET, Key=mark)["LastModified"]
    # The mark is dated by the real clock, as the entry is; later, both are that old.
    clock.later = 1.3 * HOUR
    with pytest.raises(ReferenceNotFoundError):
        run(store, is_async, "read", reference)
    assert server.client.head_object(Bucket=BUCKET, Key=mark)["LastModified"] == marked
    assert run(store, is_async, "sweep") == SweepReport(expired=1, bytes=100_000)
    assert server.keys(prefix) == []


def dated(monkeypatch: pytest.MonkeyPatch, ages: Mapping[str, float]) -> None:
    """Let objects whose key ends in one way be older than they are, in every answer."""
    sending = Requests.repeated

    def send(self: Requests, operation: str, **parameters: Any) -> Any:
        answer = yield from sending(self, self.once(operation, **parameters))
        found = answer.get("Contents") or ([answer] if "LastModified" in answer else [])
        for item in found:
            key = item.get("Key", parameters.get("Key"))
            age = next((age for end, age in ages.items() if key.endswith(end)), 0.0)
            item["LastModified"] -= timedelta(seconds=age)
        return answer

    monkeypatch.setattr(Requests, "send", send)


@both_colours
def test_what_was_marked_lives_on_and_is_listed(
    server: S3Server, store: S3ToolResultStore, prefix: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = store.scoped("a")
    read, unread = inner.write(key="read", content="x"), inner.write(key="unread", content="x")
    server.client.put_object(Bucket=BUCKET, Key=f"{prefix}/@a/!read", Body=b"used")
    dated(monkeypatch, {"/read": 2 * HOUR, "/unread": 2 * HOUR, "!read": HOUR / 2})
    assert [entry.reference for entry in run(store, is_async, "list")] == [read]
    assert run(inner, is_async, "stat", read).bytes == 1
    with pytest.raises(ReferenceNotFoundError):
        run(inner, is_async, "stat", unread)
    assert run(store, is_async, "sweep") == SweepReport(expired=1, bytes=1)
    assert server.keys(prefix) == [f"{prefix}/@a/!read", f"{prefix}/@a/read"]


def test_deleting_an_entry_or_a_scope_takes_the_marks_along(
    server: S3Server, store: S3ToolResultStore, prefix: str
) -> None:
    references = store.write_many([StoreEntry("a", "1"), StoreEntry("b", "2")])
    for key in ("!a", "!b", "@s/!c"):
        server.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=b"used")
    server.client.put_object(Bucket=BUCKET, Key=f"{prefix}/!not ours", Body=b"used")
    store.delete([str(references[0])])
    assert server.keys(prefix) == [f"{prefix}/{key}" for key in ("!b", "!not ours", "@s/!c", "b")]
    assert S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=server.endpoint).delete_scope() == DeletedScope(1, 1)
    assert server.keys(prefix) == [f"{prefix}/!not ours"]


@both_colours
def test_marks_without_an_entry_and_uploads_that_nobody_goes_on_with_are_left_behind(
    server: S3Server, prefix: str, clock: Clock, is_async: bool
) -> None:
    store = S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=server.endpoint)
    kept = store.write(key="a", content="x")
    for key in ("!a", "@s/!gone"):
        server.client.put_object(Bucket=BUCKET, Key=f"{prefix}/{key}", Body=b"used")
    for key in ("big", "@s/big", "Not ours"):
        server.client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}/{key}")
    assert run(store, is_async, "sweep") == SweepReport()
    clock.later = 2 * HOUR
    assert run(store, is_async, "sweep", safe_age=3 * HOUR) == SweepReport()
    assert run(store, is_async, "sweep") == SweepReport(leftovers=3)
    assert server.keys(prefix) == [f"{prefix}/!a", f"{prefix}/a"]
    assert [key for key in server.uploads() if key.startswith(prefix)] == [f"{prefix}/Not ours"]
    assert store.read(kept) == "x"
    clock.later = 1e9
    assert store.sweep() == SweepReport()


def at_requests(monkeypatch: pytest.MonkeyPatch, operation: str, action: Callable[[], object]) -> None:
    """Do something once, right before a request of one kind."""
    once = Requests.once
    done: list[str] = []

    def instead(self: Requests, name: str, **parameters: Any) -> Any:
        if name == operation and not done:
            done.append(name)
            action()
        return once(self, name, **parameters)

    monkeypatch.setattr(Requests, "once", instead)


@pytest.mark.parametrize(
    ("name", "moment"),
    [("rclone", "head_object"), ("seaweedfs", "head_object"), ("seaweedfs", "delete_object")],
)
def test_an_entry_that_is_replaced_while_it_is_swept_stays(
    name: str, moment: str, prefix: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look and the removal, that takes a server which removes on a condition, as Amazon's does."""
    server: S3Server = request.getfixturevalue(name)
    store = S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=server.endpoint, ttl=HOUR)
    reference = store.write(key="a", content="old")
    old = {"age": 2 * HOUR}

    class Ages(dict[str, float]):
        def items(self) -> Any:
            return [("/a", old["age"])]

    def replace() -> None:
        server.client.put_object(
            Bucket=BUCKET, Key=f"{prefix}/a", Body=b"new", Metadata={"haybaler": "b.3.3.0000000000000000"}
        )
        old["age"] = 0.0

    dated(monkeypatch, Ages())
    at_requests(monkeypatch, moment, replace)
    assert store.sweep() == SweepReport()
    assert server.client.get_object(Bucket=BUCKET, Key=f"{prefix}/a")["Body"].read() == b"new"
    assert store.stat(reference).bytes == 3


def test_the_time_to_live_is_checked_and_survives_serialization() -> None:
    store = S3ToolResultStore("bucket", ttl=timedelta(days=1))
    assert S3ToolResultStore.from_dict(store.to_dict()).to_dict() == store.to_dict()
    assert S3ToolResultStore.from_url("s3://bucket/haybaler?ttl=86400").to_dict() == store.to_dict()
    with pytest.raises(ConfigurationError):
        S3ToolResultStore("bucket", ttl=0)
