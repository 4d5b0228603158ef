"""The servers that the tests of several modules share."""

import os
from collections.abc import Iterator
from secrets import token_hex

import pytest
from botocore.retries.standard import ExponentialBackoff
from tests.services.proxy import Proxy, proxy_to
from tests.services.redis_servers import REDIS, VALKEY, RedisServer, redis_cluster, redis_server
from tests.services.s3_servers import ENVIRONMENT, RCLONE, SEAWEEDFS, S3Server, external_server, s3_server

# Points the conformance tests at a server that somebody else runs.
EXTERNAL_REDIS = os.environ.get("HAYBALER_TEST_REDIS_URL")
EXTERNAL_S3 = os.environ.get("HAYBALER_TEST_S3_ENDPOINT")


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    with redis_server(VALKEY) as server:
        yield server


@pytest.fixture(scope="module")
def valkey_proxy(valkey: RedisServer) -> Iterator[Proxy]:
    with proxy_to(valkey.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def redis6() -> Iterator[RedisServer]:
    with redis_server(REDIS) as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[list[RedisServer]]:
    with redis_cluster() as servers:
        yield servers


@pytest.fixture(scope="session")
def rclone() -> Iterator[S3Server]:
    with s3_server(RCLONE) as server:
        yield server


@pytest.fixture(scope="module")
def rclone_proxy(rclone: S3Server) -> Iterator[Proxy]:
    with proxy_to(rclone.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[S3Server]:
    with s3_server(SEAWEEDFS) as server:
        yield server


@pytest.fixture(scope="session")
def external_s3() -> Iterator[S3Server]:
    assert EXTERNAL_S3 is not None
    with external_server(EXTERNAL_S3) as server:
        yield server


@pytest.fixture
def s3_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials where boto looks for them, and nothing of this machine's own."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many attempts on S3 as ever, a twentieth of the time apart, where only what comes of them matters."""
    pause = ExponentialBackoff.delay_amount
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: pause(self, context) / 20)
    monkeypatch.setattr("haybaler_s3.requests.FIRST_PAUSE", 0.01)


@pytest.fixture
def prefix() -> str:
    """Keys of one test only."""
    return f"test-{token_hex(6)}"
