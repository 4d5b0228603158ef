"""The whole conformance kit on real servers, each behind a proxy where it is to be taken away."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from tests.services.ports import LOOPBACK
from tests.services.proxy import Proxy, proxy_to
from tests.services.redis_servers import RedisServer
from tests.stores.conftest import EXTERNAL_REDIS

from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import MakeStore, StoreConformance
from haybaler.testing.batches import BatchLaws
from haybaler.testing.content import ContentLaws
from haybaler.testing.scopes import ScopeLaws
from haybaler_redis import RedisToolResultStore


class RedisConformance(StoreConformance):
    """What the suites share; `proxy` and `raw` come from them."""

    lasting = False  # whether entries live for ever
    group_commit = True
    ttl = 600.0

    @pytest.fixture(autouse=True)
    def place(self, proxy: Proxy, raw: Any, prefix: str, request: pytest.FixtureRequest) -> Iterator[None]:
        self._proxy, self._raw, self._prefix = proxy, raw, prefix
        self._address = proxy.address if "cannot_be_reached" in request.node.name else proxy.server
        yield
        keys = list(raw.scan_iter(match=f"*{prefix}*", count=10_000))
        lives = raw.pipeline(transaction=False)
        for key in keys:
            lives.ttl(key)
        # No key of a store with a time to live is without one.
        assert [key for key, left in zip(keys, lives.execute(), strict=True) if left < 0] == [] or self.lasting
        if keys:
            raw.unlink(*keys)

    @pytest.fixture
    def make_store(self, place: None) -> MakeStore:
        return self._store

    def _store(self, name: str = "", **limits: Any) -> RedisToolResultStore:
        url = f"redis://{self._address}"
        settings = {"ttl": None if self.lasting else self.ttl, "group_commit": self.group_commit, **limits}
        return RedisToolResultStore(url, prefix=self._prefix + name, retries=1, **settings)

    def limited(self, **limits: Any) -> ToolResultStore | None:
        return self._store(**limits)

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        for key in self._raw.scan_iter(match=f"*{self._prefix}*", count=10_000):
            left = self._raw.pttl(key) - int(seconds * 1000)
            self._raw.pexpire(key, left)  # one that is over removes the key

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        assert isinstance(store, RedisToolResultStore)
        key = store._key(store._path(reference))
        (last,) = self._raw.getrange(key, -1, -1)
        self._raw.setrange(key, self._raw.strlen(key) - 1, bytes([last ^ 1]))
        return True

    @contextmanager
    def _outage(self) -> Iterator[None]:
        self._proxy.cut()
        yield
        self._proxy.restore()

    def unavailable(self, store: ToolResultStore) -> AbstractContextManager[None]:
        return self._outage()


@pytest.fixture(scope="module")
def redis6_proxy(redis6: RedisServer) -> Iterator[Proxy]:
    with proxy_to(redis6.port) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def external() -> Iterator[tuple[Proxy, Any]]:
    """Lead to the server of EXTERNAL_REDIS, which has no password and keeps no other data in its database 0."""
    assert EXTERNAL_REDIS is not None
    url = urlsplit(EXTERNAL_REDIS)
    with (
        proxy_to(url.port or 6379, host=url.hostname or LOOPBACK) as proxy,
        redis.Redis(host=LOOPBACK, port=proxy.port) as client,
    ):
        yield proxy, client


if EXTERNAL_REDIS is None:

    class TestValkey(RedisConformance):
        @pytest.fixture
        def proxy(self, valkey_proxy: Proxy) -> Proxy:
            return valkey_proxy

        @pytest.fixture
        def raw(self, valkey: RedisServer) -> Any:
            return valkey.client

    class TestRedis62ForEver(RedisConformance):
        lasting = True
        group_commit = False

        @pytest.fixture
        def proxy(self, redis6_proxy: Proxy) -> Proxy:
            return redis6_proxy

        @pytest.fixture
        def raw(self, redis6: RedisServer) -> Any:
            return redis6.client

else:

    class TestExternal(RedisConformance):
        @pytest.fixture
        def proxy(self, external: tuple[Proxy, Any]) -> Proxy:
            return external[0]

        @pytest.fixture
        def raw(self, external: tuple[Proxy, Any]) -> Any:
            return external[1]


class TestCluster(ContentLaws, BatchLaws, ScopeLaws):
    """The laws on which the division of keys among servers has a bearing."""

    @pytest.fixture
    def make_store(self, cluster: list[RedisServer], prefix: str) -> MakeStore:
        nodes = ",".join(f"127.0.0.1:{server.port}" for server in cluster)
        return lambda: RedisToolResultStore(f"redis://{nodes}", cluster=True, prefix=prefix, ttl=600)


class TestReadySynchronousClient(ContentLaws, BatchLaws, ScopeLaws):
    """Its asynchronous callers are served by worker threads, whatever it makes of replies."""

    @pytest.fixture
    def make_store(self, redis6: RedisServer, prefix: str) -> Iterator[MakeStore]:
        with redis.Redis(port=redis6.port, decode_responses=True, encoding="latin-1") as client:
            yield lambda: RedisToolResultStore(client=client, prefix=prefix, ttl=600)
