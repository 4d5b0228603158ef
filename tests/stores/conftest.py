"""The servers that the tests of several modules share."""

import os
from collections.abc import Iterator
from secrets import token_hex
from urllib.parse import urlsplit

import pytest
import redis
from tests.services.proxy import Proxy, proxy_to
from tests.services.redis_servers import REDIS, VALKEY, RedisServer, redis_cluster, redis_server

# Points the conformance tests at a server that somebody else runs.
EXTERNAL_REDIS = os.environ.get("HAYBALER_TEST_REDIS_URL")


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    with redis_server(VALKEY) as server:
        yield server


@pytest.fixture(scope="session")
def redis6() -> Iterator[RedisServer]:
    with redis_server(REDIS) as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[list[RedisServer]]:
    with redis_cluster() as servers:
        yield servers


@pytest.fixture
def prefix() -> str:
    """Keys of one test only."""
    return f"test-{token_hex(6)}"
