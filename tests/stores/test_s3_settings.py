"""What a store is made of: checked settings, URLs, and credentials that show nowhere."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from haystack.utils import Secret
from tests.services.s3_servers import BUCKET, S3Server

from haybaler.errors import (
    ConfigurationError,
    CorruptEntryError,
    NotSerializableError,
    ReferenceNotFoundError,
    StoreConfigurationError,
    StoreError,
)
from haybaler.stores.registry import store_from_url
from haybaler_s3 import S3ToolResultStore

pytestmark = pytest.mark.usefixtures("s3_environment")


def secrets() -> dict[str, Any]:
    return {
        "access_key_id": Secret.from_env_var("TEST_S3_KEY"),
        "secret_access_key": Secret.from_env_var("TEST_S3_SECRET"),
    }


def test_explicit_credentials_are_serialized_by_name_and_read_again(
    rclone: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, variable in (("TEST_S3_KEY", "AWS_ACCESS_KEY_ID"), ("TEST_S3_SECRET", "AWS_SECRET_ACCESS_KEY")):
        monkeypatch.setenv(name, rclone.credentials[variable])
        monkeypatch.delenv(variable)
    store = S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint, **secrets()).scoped("run")
    text = json.dumps(store.to_dict())
    assert rclone.credentials["AWS_SECRET_ACCESS_KEY"] not in text + repr(store) + repr(store.__dict__)
    again = S3ToolResultStore.from_dict(json.loads(text))
    assert again.to_dict() == store.to_dict()
    with store, again:
        assert again.read(store.write(key="key", content="content")) == "content"


def test_a_credential_whose_variable_is_not_set_says_so() -> None:
    store = S3ToolResultStore("bucket", **secrets())
    with pytest.raises(StoreConfigurationError, match="not set"):
        store.write(key="key", content="content")
    with pytest.raises(StoreConfigurationError, match="not set"):
        asyncio.run(store.write_async(key="key", content="content"))


def test_credentials_that_are_no_variables_are_not_serialized() -> None:
    token: dict[str, Any] = {name: Secret.from_token("hunter2") for name in secrets()}
    store = S3ToolResultStore("bucket", **token)
    with pytest.raises(NotSerializableError):
        store.to_dict()
    assert "hunter2" not in repr(store) + repr(store._settings_of_store) + repr(vars(store))


@pytest.mark.parametrize("name", ["access_key_id", "secret_access_key", "session_token"])
@pytest.mark.parametrize("value", ["hunter2", b"hunter2", ["hunter2"], ""], ids=repr)
def test_credentials_that_are_no_secrets_are_refused_at_once_and_not_repeated(name: str, value: Any) -> None:
    token: dict[str, Any] = {**secrets(), name: value}
    with pytest.raises(ConfigurationError, match=f"`{name}` must be a `Secret`") as caught:
        S3ToolResultStore("bucket", **token)
    stored = S3ToolResultStore("bucket", **secrets()).to_dict()
    stored["init_parameters"][name] = value
    with pytest.raises(ConfigurationError, match=f"`{name}` must be a `Secret`") as from_data:
        S3ToolResultStore.from_dict(stored)
    for error in (caught.value, from_data.value):
        assert "hunter2" not in str(error)
        assert (error.__cause__, error.__context__) == (None, None)


def test_a_url_names_bucket_prefix_and_options(rclone: S3Server, prefix: str) -> None:
    options = "max_concurrency=3&path_style=true&read_timeout=7.5&min_bytes_per_second=1000"
    url = f"s3://{BUCKET}/{prefix}/inner?endpoint_url={rclone.endpoint}&{options}"
    with store_from_url(url) as store:
        assert isinstance(store, S3ToolResultStore)
        reference = store.write(key="key", content="content")
        assert reference == f"s3://{BUCKET}/{prefix}/inner/key"
        assert rclone.keys(prefix) == [f"{prefix}/inner/key"]
    settings = store.to_dict()["init_parameters"]
    assert (settings["max_concurrency"], settings["path_style"], settings["read_timeout"]) == (3, True, 7.5)
    assert settings["min_bytes_per_second"] == 1000


def test_a_url_without_a_prefix_has_the_usual_one() -> None:
    for url in ("s3://bucket", "s3://bucket/"):
        assert store_from_url(url).reference("key") == "s3://bucket/haybaler/key"


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:hunter2@bucket/prefix",
        "s3://bucket?secret_access_key=hunter2",
        "s3://bucket?endpoint_url=https://user:hunter2@host",
        "s3://bucket?endpoint_url=https%3A%2F%2Fuser%3Ahunter2%40host",
        "s3://bucket/hunter2 x",
        "s3:///hunter2",
        "s3://bucket?max_concurrency=hunter2",
    ],
)
def test_a_url_with_credentials_or_mistakes_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        store_from_url(url)
    assert "hunter2" not in str(caught.value) + str(caught.value.__cause__)


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": ""},
        {"bucket": "a/b"},
        {"prefix": "/a"},
        {"prefix": "a//b"},
        {"prefix": ".."},
        {"prefix": "a/@b"},  # looks like a scope
        {"prefix": "ä"},
        {"prefix": "x" * 500},
        {"endpoint_url": "https://key:secret@host"},
        {"checksums": "always"},
        {"access_key_id": Secret.from_token("x")},
        {"max_concurrency": 0},
        {"attempts": 0},
        {"read_timeout": 0},
        {"min_bytes_per_second": 0},
        {"connect_timeout": -1},
    ],
    ids=str,
)
def test_settings_that_cannot_work_are_refused_at_once(options: dict[str, Any]) -> None:
    bucket = options.pop("bucket", "bucket")
    with pytest.raises(ConfigurationError):
        S3ToolResultStore(bucket, **options)


@pytest.mark.parametrize(
    ("endpoint", "given", "expected"),
    [
        (None, None, "eu-central-1"),
        ("http://127.0.0.1:1", None, "eu-central-1"),
        ("http://127.0.0.1:1", "eu-west-3", "eu-west-3"),
    ],
)
def test_the_region_is_the_given_one_else_the_environments(
    endpoint: str | None, given: str | None, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    store = S3ToolResultStore("bucket", endpoint_url=endpoint, region_name=given)
    with store, store._clients._thread_link().lent() as client:
        assert client.meta.region_name == expected


def test_a_server_of_ones_own_needs_no_region(rclone: S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint) as store:
        assert store.read(store.write(key="key", content="content")) == "content"


# What not every server knows is only used with Amazon's.
def test_row_35_checksums_and_addressing_fit_the_server() -> None:
    amazon, own = (S3ToolResultStore("b", endpoint_url=url).to_dict()["init_parameters"] for url in (None, "https://h"))
    assert (amazon["checksums"], amazon["path_style"]) == ("when_supported", False)
    assert (own["checksums"], own["path_style"]) == ("when_required", True)


def test_rows_48_and_50_the_longest_key_is_far_shorter_than_servers_allow(rclone: S3Server, prefix: str) -> None:
    # At most 512 characters, in parts of at most 81, none of them empty or dots.
    with S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint).scoped("a//../ä b+%&?#:" * 3) as store:
        reference = store.write(key="../" * 1000 + "+ %&?#:\n'\"\\NFÄ", content="content")
        (key,) = rclone.keys(prefix)
        assert reference == f"s3://{BUCKET}/{key}"
        assert all(0 < len(part) <= 81 and part.strip(".") and part.isascii() for part in key.split("/"))
        assert store.read(reference) == "content"


HOSTILE = ["../../other", "..", "/", "//", "/etc", "a/../..", "%2e%2e%2f", "@other/key", "\\..\\", "\0/..", "!mark"]


@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_row_49_no_key_and_no_scope_leads_out_of_its_own_scope(text: str, rclone: S3Server, prefix: str) -> None:
    with S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint).scoped("mine") as store:
        reference = store.write(key=text, content="by key")
        (key,) = rclone.keys(prefix)
        assert key.startswith(f"{prefix}/@mine/")
        assert key.count("/") == prefix.count("/") + 2
        with suppress(ConfigurationError):  # refused is as good
            store.scoped(text).write(key="key", content="by scope")
        assert all(key.startswith(f"{prefix}/@mine/") for key in rclone.keys(prefix))
        assert store.read(reference) == "by key"
        other = S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint).scoped("other")
        with pytest.raises(StoreError):
            other.read(reference)
        with pytest.raises(StoreError):
            store.read(f"{store.reference('key').rpartition('/')[0]}/{text}/@other/key")


def test_an_entry_is_an_ordinary_object_with_its_content_type(rclone: S3Server, prefix: str) -> None:
    with S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint) as store:
        text, binary = "text/plain; charset=utf-8", "application/octet-stream"
        for key, content, kind in (("a.txt", "ä", text), ("b", b"\xff", binary)):
            store.write(key=key, content=content)
            found = rclone.client.get_object(Bucket=BUCKET, Key=f"{prefix}/{key}")
            assert found["ContentType"] == kind
            assert found["Body"].read() == (content.encode() if isinstance(content, str) else content)


def test_an_object_of_somebody_else_is_corrupt_and_none_is_not_found(rclone: S3Server, prefix: str) -> None:
    with S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint) as store:
        rclone.client.put_object(Bucket=BUCKET, Key=f"{prefix}/key", Body=b"content")
        with pytest.raises(CorruptEntryError):
            store.read(store.reference("key"))
        with pytest.raises(ReferenceNotFoundError):
            store.read(store.reference("other"))
