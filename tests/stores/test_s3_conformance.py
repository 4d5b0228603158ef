"""The whole conformance kit on real servers, each behind a proxy where it is to be taken away."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from tests.services.proxy import Proxy, proxy_to
from tests.services.s3_servers import BUCKET, S3Server
from tests.stores.conftest import EXTERNAL_S3
from tests.stores.s3_time import MadeUpTime

from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import MakeStore, StoreConformance
from haybaler_s3 import S3ToolResultStore


class S3Conformance(StoreConformance):
    """What the suites share; `s3_proxy` and `s3_server` come from them."""

    @pytest.fixture(autouse=True)
    def place(
        self, s3_proxy: Proxy, s3_raw: S3Server, prefix: str, s3_environment: None, request: pytest.FixtureRequest
    ) -> None:
        self._proxy, self._raw, self._prefix = s3_proxy, s3_raw, prefix
        # rclone breaks off reads of an object that is being replaced; in an outage each attempt only takes longer.
        is_taken_away = "cannot_be_reached" in request.node.name
        if is_taken_away:
            request.getfixturevalue("short_pauses")
        self._attempts = 2 if is_taken_away else 4
        self._address = s3_proxy.address if is_taken_away else s3_proxy.server

    ttl = 1000.0
    most_in_flight = 3 * 50 + 2  # for 50 requests: their own tasks, and two that aiohttp and each cancellation need

    @pytest.fixture
    def make_store(self, place: None, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
        self._patch = monkeypatch
        return self._store

    def limited(self, **limits: Any) -> ToolResultStore | None:
        self._time = MadeUpTime(self._patch)
        return self._store(**limits)

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        self._time.later += seconds

    def _store(self, name: str = "", **limits: Any) -> S3ToolResultStore:
        return S3ToolResultStore(
            BUCKET,
            prefix=self._prefix + name,
            endpoint_url=f"http://{self._address}",
            connect_timeout=2,
            read_timeout=10,
            attempts=self._attempts,
            **limits,
        )

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        self._raw.damage(reference.removeprefix(f"s3://{BUCKET}/"))
        return True

    @contextmanager
    def _outage(self) -> Iterator[None]:
        self._proxy.cut()
        yield
        self._proxy.restore()

    def unavailable(self, store: ToolResultStore) -> AbstractContextManager[None]:
        return self._outage()


@pytest.fixture(scope="module")
def seaweedfs_proxy(seaweedfs: S3Server) -> Iterator[Proxy]:
    with proxy_to(seaweedfs.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def external_proxy(external_s3: S3Server) -> Iterator[Proxy]:
    with proxy_to(external_s3.port) as proxy:
        yield proxy


if EXTERNAL_S3 is None:

    class TestRclone(S3Conformance):
        @pytest.fixture
        def s3_proxy(self, rclone_proxy: Proxy) -> Proxy:
            return rclone_proxy

        @pytest.fixture
        def s3_raw(self, rclone: S3Server) -> S3Server:
            return rclone

    class TestSeaweedFS(S3Conformance):
        @pytest.fixture
        def s3_proxy(self, seaweedfs_proxy: Proxy) -> Proxy:
            return seaweedfs_proxy

        @pytest.fixture
        def s3_raw(self, seaweedfs: S3Server) -> S3Server:
            return seaweedfs

else:

    class TestExternal(S3Conformance):
        @pytest.fixture
        def s3_proxy(self, external_proxy: Proxy) -> Proxy:
            return external_proxy

        @pytest.fixture
        def s3_raw(self, external_s3: S3Server) -> S3Server:
            return external_s3
