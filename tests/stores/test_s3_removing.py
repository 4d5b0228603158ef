"""Scopes are removed page by page, and nothing else with them; a lifecycle rule does it by age."""

import asyncio
from typing import Any

import pytest
from tests.services.s3_faults import WELL, Answer, faulty_s3
from tests.services.s3_servers import BUCKET, S3Server

from haybaler.errors import ConfigurationError, StoreConfigurationError, StoreUnavailableError
from haybaler.stores.protocol import DeletedScope, StoreEntry
from haybaler_s3 import S3ToolResultStore

pytestmark = pytest.mark.usefixtures("s3_environment", "short_pauses")

both_colours = pytest.mark.parametrize("colour", ["sync", "async"])


@pytest.fixture(params=["rclone", "seaweedfs"])
def server(request: pytest.FixtureRequest) -> S3Server:
    server: S3Server = request.getfixturevalue(request.param)
    return server


def store_of(server: S3Server, prefix: str) -> S3ToolResultStore:
    return S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=server.endpoint)


def delete_scope(store: S3ToolResultStore, colour: str) -> DeletedScope:
    async def use() -> DeletedScope:
        async with store:
            return await store.delete_scope_async()

    if colour == "async":
        return asyncio.run(use())
    with store:
        return store.delete_scope()


def write_all(store: S3ToolResultStore, count: int) -> list[StoreEntry]:
    entries = [StoreEntry(f"key {number}", f"{number:05}") for number in range(count)]

    async def use() -> None:
        async with store:
            assert all(isinstance(outcome, str) for outcome in await store.write_many_async(entries))

    asyncio.run(use())
    return entries


@pytest.mark.parametrize(("name", "colour"), [("rclone", "sync"), ("rclone", "async"), ("seaweedfs", "async")])
def test_a_scope_of_more_entries_than_fit_into_one_request_is_removed(
    name: str, colour: str, prefix: str, request: pytest.FixtureRequest
) -> None:
    server: S3Server = request.getfixturevalue(name)
    store = store_of(server, prefix)
    write_all(store.scoped("run"), 1100)
    write_all(store.scoped("run/inner"), 5)
    write_all(store.scoped("other"), 3)
    assert delete_scope(store.scoped("run"), colour) == DeletedScope(1105, 1105 * 5)
    assert len(server.keys(prefix)) == 3
    assert delete_scope(store.scoped("run"), colour) == DeletedScope(0, 0)


@both_colours
def test_removing_everything_spares_what_is_not_the_stores(colour: str, server: S3Server, prefix: str) -> None:
    store = store_of(server, prefix)
    write_all(store, 3)
    write_all(store.scoped("run"), 3)
    write_all(store_of(server, f"{prefix}/longer"), 1)
    server.client.put_object(Bucket=BUCKET, Key=f"{prefix}/README", Body=b"of somebody else")
    before = set(server.keys(prefix))
    assert delete_scope(store, colour).entries == 6
    left = set(server.keys(prefix))
    assert left == {key for key in before if "/longer/" in key or key.endswith("README")}
    assert len(left) == 2


def test_many_are_deleted_in_few_requests(server: S3Server, prefix: str) -> None:
    store = store_of(server, prefix)
    references = [store.reference(entry.key) for entry in write_all(store, 1001)]
    asked: list[str] = []
    with store:
        with store._clients._thread_link().lent() as client:
            client.meta.events.register("before-call.s3", lambda model, **_: asked.append(model.name))
        store.delete([*references, store.reference("never written")])
    assert server.keys(prefix) == []
    assert asked == ["DeleteObjects", "DeleteObjects"]


@both_colours
def test_what_could_not_be_deleted_for_the_moment_is_asked_for_again(colour: str) -> None:
    with faulty_s3() as server:
        store = S3ToolResultStore("bucket", endpoint_url=server.endpoint, attempts=3)
        references = [store.reference(str(number)) for number in range(3)]
        failed = "<DeleteResult><Error><Key>haybaler/1</Key><Code>InternalError</Code></Error></DeleteResult>"
        server.bodies["DeleteObjects"] = [failed, ""]
        if colour == "async":
            asyncio.run(store.delete_async(references))
        else:
            with store:
                store.delete(references)
        assert server.count("DeleteObjects") == 2


PASSING = [Answer(409, "OperationAborted"), Answer(429, "TooManyRequests"), Answer(503, "SlowDown"), Answer(reset=True)]


@both_colours
@pytest.mark.parametrize("count", [1, 2, 20])
@pytest.mark.parametrize("many_at_once", [True, False], ids=["many at once", "one by one"])
@pytest.mark.parametrize("answer", PASSING, ids=lambda answer: answer.code or "reset")
def test_rows_45_and_47_a_deletion_is_asked_for_again_however_many_there_are(
    answer: Answer, many_at_once: bool, count: int, colour: str
) -> None:
    together = [answer, WELL] if many_at_once else [Answer(501, "NotImplemented")]
    with faulty_s3(DELETE=[answer, answer, WELL], DeleteObjects=together) as server:
        store = S3ToolResultStore("bucket", endpoint_url=server.endpoint, attempts=3)
        delete(store, colour, [store.reference(str(number)) for number in range(count)])
        if count == 1 or not many_at_once:
            assert server.count("DELETE") >= count + 2


@both_colours
@pytest.mark.parametrize("answer", PASSING[:3], ids=lambda answer: answer.code)
def test_row_47_a_deletion_that_never_succeeds_ends_after_its_attempts(answer: Answer, colour: str) -> None:
    with faulty_s3(DELETE=[answer]) as server:
        store = S3ToolResultStore("bucket", endpoint_url=server.endpoint, attempts=3)
        with pytest.raises(StoreUnavailableError):
            delete(store, colour, [store.reference("key")])
        assert server.count("DELETE") == 3


@both_colours
def test_what_may_not_be_deleted_is_an_error(colour: str) -> None:
    with faulty_s3() as server:
        store = S3ToolResultStore("bucket", endpoint_url=server.endpoint, attempts=3)
        references = [store.reference(str(number)) for number in range(3)]
        failed = "<DeleteResult><Error><Key>haybaler/1</Key><Code>AccessDenied</Code></Error></DeleteResult>"
        server.bodies["DeleteObjects"] = [failed]
        with pytest.raises(StoreConfigurationError):
            delete(store, colour, references)
        assert server.count("DeleteObjects") == 1


def delete(store: S3ToolResultStore, colour: str, references: list[str]) -> None:
    if colour == "async":
        asyncio.run(store.delete_async(references))
    else:
        with store:
            store.delete(references)


def ensure(store: S3ToolResultStore, colour: str, days: int) -> None:
    async def use() -> None:
        async with store:
            await store.ensure_expiry_rule_async(days)

    if colour == "async":
        asyncio.run(use())
    else:
        with store:
            store.ensure_expiry_rule(days)


@both_colours
def test_the_expiry_rule_is_set_and_replaced_and_others_stay(colour: str, seaweedfs: S3Server, prefix: str) -> None:
    def rules() -> dict[str, Any]:
        found = seaweedfs.client.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
        return {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in found}

    other = {"ID": "other", "Status": "Enabled", "Filter": {"Prefix": "other/"}, "Expiration": {"Days": 5}}
    seaweedfs.client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": [other]})
    ensure(store_of(seaweedfs, prefix), colour, 7)
    ensure(store_of(seaweedfs, prefix), colour, 3)
    ensure(store_of(seaweedfs, f"{prefix}/longer"), colour, 4)
    assert rules() == {"other/": 5, f"{prefix}/": 3, f"{prefix}/longer/": 4}
    seaweedfs.client.delete_bucket_lifecycle(Bucket=BUCKET)
    ensure(store_of(seaweedfs, prefix), colour, 2)
    assert rules() == {f"{prefix}/": 2}


@both_colours
def test_a_server_without_lifecycle_rules_says_so(colour: str, rclone: S3Server, prefix: str) -> None:
    with pytest.raises(StoreConfigurationError, match="does not know the operation"):
        ensure(store_of(rclone, prefix), colour, 7)


@both_colours
def test_setting_the_rule_without_permission_says_so(colour: str) -> None:
    with faulty_s3(PutLifecycle=[Answer(403, "AccessDenied")]) as server:
        store = S3ToolResultStore("bucket", endpoint_url=server.endpoint)
        with pytest.raises(StoreConfigurationError, match="no permission"):
            ensure(store, colour, 7)


@both_colours
def test_the_expiry_rule_of_a_scope_is_for_that_scope_only(colour: str, seaweedfs: S3Server, prefix: str) -> None:
    store = store_of(seaweedfs, prefix)
    for scoped in (store.scoped("user"), store_of(seaweedfs, "").scoped(prefix)):
        seaweedfs.client.delete_bucket_lifecycle(Bucket=BUCKET)
        ensure(scoped, colour, 7)
        (rule,) = seaweedfs.client.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
        with store:
            inside, outside = scoped.scoped("run").reference("key"), store.scoped("user-2").reference("key")
        start = f"s3://{BUCKET}/{rule['Filter']['Prefix']}"
        assert inside.startswith(start)
        assert not outside.startswith(start)
        assert not store.reference("key").startswith(start)


@both_colours
def test_no_expiry_rule_is_ever_for_the_whole_bucket(colour: str) -> None:
    with faulty_s3() as server:
        with pytest.raises(ConfigurationError, match="whole bucket"):
            ensure(S3ToolResultStore("bucket", prefix="", endpoint_url=server.endpoint), colour, 7)
        assert server.requests == []


@both_colours
@pytest.mark.parametrize("days", [0, -1, 1.5, 7.0, True, "7", None, float("nan")])
def test_the_days_of_an_expiry_rule_are_a_whole_number_of_at_least_one(days: Any, colour: str) -> None:
    with faulty_s3() as server:
        with pytest.raises(ConfigurationError, match="whole number"):
            ensure(S3ToolResultStore("bucket", endpoint_url=server.endpoint), colour, days)
        assert server.requests == []
