"""
Every wrapper keeps every law of a store, around a store of each kind.

The whole kit around everything, in four colours, takes half an hour. By default, each wrapper has all laws in all
colours around memory; around files it has them in the asynchronous colour, cancellations included; around Redis those
about keys, batches, scopes and event loops; and around S3 two towers have those about contents, batches and scopes.
Other processes have a module of their own. With `HAYBALER_TEST_WHOLE_MATRIX=1`, everything is run.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.services.proxy import Proxy
from tests.services.redis_servers import RedisServer
from tests.services.s3_servers import S3Server
from tests.stores.test_filesystem_conformance import FileConformance
from tests.stores.test_redis_conformance import RedisConformance
from tests.stores.test_s3_conformance import S3Conformance
from tests.stores.wrappers.around import ENVIRONMENT, PASSING_ON, TOWERS, WRAPPERS, Build, inside

from haybaler import InMemoryToolResultStore
from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import MakeStore, StoreConformance
from haybaler.testing.access import ASYNC, COLOURS, Colour
from haybaler.testing.batches import BatchLaws
from haybaler.testing.content import ContentLaws
from haybaler.testing.keys import KeyLaws
from haybaler.testing.lifecycle import LifecycleLaws
from haybaler.testing.scopes import ScopeLaws
from haybaler_filesystem import FileSystemToolResultStore

WHOLE = "HAYBALER_TEST_WHOLE_MATRIX" in os.environ


class _Around(StoreConformance):
    """What the suites share: the wrapper around the store that the subclass makes."""

    def __init_subclass__(
        cls,
        builds: dict[str, Build] = WRAPPERS,
        colours: tuple[Colour, ...] = COLOURS,
        laws: tuple[type, ...] = (StoreConformance,),
        without: tuple[str, ...] = (),
    ) -> None:
        super().__init_subclass__()
        kept = {name for law in laws for name in dir(law) if WHOLE or not any(word in name for word in without)}
        for name in dir(cls):
            if name.startswith("test_") and name not in kept:
                setattr(cls, name, None)
        chosen = {**WRAPPERS, **TOWERS} if WHOLE else builds
        given = {
            "build": pytest.fixture(params=chosen.values(), ids=list(chosen))(_parameter),
            "colour": pytest.fixture(params=COLOURS if WHOLE else colours, ids=lambda colour: colour.name)(_parameter),
        }
        for name, fixture in given.items():
            setattr(cls, name, fixture)

    @pytest.fixture
    def make_store(self, build: Build, place: None, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        self.counts_as_written = build in PASSING_ON
        return lambda: build(self._store)

    def _store(self, name: str = "") -> Any:
        raise NotImplementedError

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        return super().damage(*inside(store, reference))


def _parameter(self: _Around, request: pytest.FixtureRequest) -> Any:
    return request.param


class TestAroundMemory(_Around, without=("process",)):
    durable = False

    @pytest.fixture
    def place(self) -> None:
        """Nothing is needed."""

    def _store(self, name: str = "") -> InMemoryToolResultStore:
        return InMemoryToolResultStore()


class TestAroundFiles(_Around, FileConformance, colours=(ASYNC,), without=("process",)):
    @pytest.fixture
    def place(self, tmp_path: Path) -> None:
        self._folder = tmp_path

    def _store(self, name: str = "") -> FileSystemToolResultStore:
        return FileSystemToolResultStore(self._folder / f"root{name}", references="relative")


class TestAroundRedis(
    _Around,
    RedisConformance,
    colours=(ASYNC,),
    laws=(KeyLaws, BatchLaws, ScopeLaws, LifecycleLaws),
):
    _store = RedisConformance._store

    @pytest.fixture
    def proxy(self, valkey_proxy: Proxy) -> Proxy:
        return valkey_proxy

    @pytest.fixture
    def raw(self, valkey: RedisServer) -> Any:
        return valkey.client


class TestAroundS3(
    _Around,
    S3Conformance,
    builds={name: TOWERS[name] for name in ("remote", "two places")},
    colours=(ASYNC,),
    laws=(ContentLaws, BatchLaws, ScopeLaws),
    without=("thousand", "large_batch"),
):
    _store = S3Conformance._store

    @pytest.fixture
    def s3_proxy(self, rclone_proxy: Proxy) -> Proxy:
        return rclone_proxy

    @pytest.fixture
    def s3_raw(self, rclone: S3Server) -> S3Server:
        return rclone
