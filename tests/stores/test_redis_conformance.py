"""The whole conformance kit on real servers, each behind a proxy that can be taken away."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from tests.services.proxy import Proxy, proxy_to
from tests.services.redis_servers import RedisServer
from tests.stores.conftest import EXTERNAL_REDIS

from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import MakeStore, StoreConformance
from haybaler_redis import RedisToolResultStore


class RedisConformance(StoreConformance):
    """What the suites share; `proxy` and `raw` come from them."""

    options: dict[str, Any] = {"ttl": 600}

    @pytest.fixture(autouse=True)
    def place(self, proxy: Proxy, raw: Any, prefix: str) -> Iterator[None]:
        self._proxy, self._raw, self._prefix = proxy, raw, prefix
        yield
        keys = [key for key in raw.scan_iter(match=f"*{prefix}*", count=10_000)]
        # No key of a store with a time to live is without one.
        assert [key for key in keys if raw.ttl(key) < 0] == [] or self.options["ttl"] is None
        if keys:
            raw.unlink(*keys)

    @pytest.fixture
    def make_store(self, place: None) -> MakeStore:
        return self._store

    def _store(self) -> RedisToolResultStore:
        url = f"redis://127.0.0.1:{self._proxy.port}"
        return RedisToolResultStore(url, prefix=self._prefix, retries=1, **self.options)

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        assert isinstance(store, RedisToolResultStore)
        key = store._key(store._path(reference))
        self._raw.setrange(key, self._raw.strlen(key) - 1, b"\x01")
        return True

    @contextmanager
    def _outage(self) -> Iterator[None]:
        self._proxy.cut()
        yield
        self._proxy.restore()

    def unavailable(self, store: ToolResultStore) -> AbstractContextManager[None]:
        return self._outage()


@pytest.fixture(scope="module")
def valkey_proxy(valkey: RedisServer) -> Iterator[Proxy]:
    with proxy_to(valkey.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def redis6_proxy(redis6: RedisServer) -> Iterator[Proxy]:
    with proxy_to(redis6.port) as proxy:
        yield proxy


if EXTERNAL_REDIS is None:

    class TestValkey(RedisConformance):
        @pytest.fixture
        def proxy(self, valkey_proxy: Proxy) -> Proxy:
            return valkey_proxy

        @pytest.fixture
        def raw(self, valkey: RedisServer) -> Any:
            return valkey.client

    class TestValkeyForEver(TestValkey):
        options = {"ttl": None}

    class TestRedis62(RedisConformance):
        @pytest.fixture
        def proxy(self, redis6_proxy: Proxy) -> Proxy:
            return redis6_proxy

        @pytest.fixture
        def raw(self, redis6: RedisServer) -> Any:
            return redis6.client

else:

    class TestExternal(RedisConformance):
        @pytest.fixture(scope="class")
        def proxy(self) -> Iterator[Proxy]:
            with proxy_to(urlsplit(EXTERNAL_REDIS).port or 6379) as proxy:
                yield proxy

        @pytest.fixture(scope="class")
        def raw(self) -> Iterator[Any]:
            with redis.Redis.from_url(EXTERNAL_REDIS) as client:
                yield client
