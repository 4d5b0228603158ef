"""
Every wrapper keeps every law of a store, around a store of each kind.

Around memory, each wrapper has all laws in all colours, and towers of them take turns. Around files and Redis, each has
all laws in one colour, which changes from law to law and from wrapper to wrapper. Around S3, where the kit takes
longest, wrappers and towers take turns at the laws, without those about a thousand entries. Other processes have a
module of their own, which starts one for all. With `HAYBALER_TEST_WHOLE_MATRIX=1`, everything is run around everything,
in all colours and at every point of cancellation, which takes long.
"""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.services.proxy import Proxy
from tests.services.redis_servers import RedisServer
from tests.services.s3_servers import S3Server
from tests.stores.s3_time import MadeUpTime
from tests.stores.test_filesystem_conformance import FileConformance
from tests.stores.test_redis_conformance import RedisConformance
from tests.stores.test_s3_conformance import S3Conformance
from tests.stores.wrappers.around import ENVIRONMENT, PASSING_ON, TOWERS, WRAPPERS, Build, inside

from haybaler import InMemoryToolResultStore
from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import MakeStore, StoreConformance
from haybaler.testing.access import ASYNC, COLOURS, SYNC, Colour

WHOLE = "HAYBALER_TEST_WHOLE_MATRIX" in os.environ
SAMPLE = 1 if WHOLE else 10
BUILDS = {**WRAPPERS, **TOWERS}
LONG_BATCHES = {"test_a_thousand_outcomes_belong_to_their_entries", "test_a_large_batch_keeps_few_operations_in_flight"}
LAWS = [name for name in dir(StoreConformance) if name.startswith("test_")]


# How the laws, which are numbered, are divided among wrappers and colours: the cases of a law.
Cases = list[tuple[str, Colour]]
Plan = Callable[[int], Cases]


def in_all_colours(law: int) -> Cases:
    return [(name, colour) for name in WRAPPERS for colour in COLOURS] + in_turn(law, TOWERS)


def in_one_colour(law: int, builds: Collection[str] = WRAPPERS, colours: Sequence[Colour] = COLOURS) -> Cases:
    return [(name, colours[(law + number) % len(colours)]) for number, name in enumerate(builds)]


def in_turn(law: int, builds: Collection[str] = BUILDS, colours: Sequence[Colour] = COLOURS) -> Cases:
    return [in_one_colour(law, builds, colours)[law % len(builds)]]


def in_turn_in_one_loop(law: int) -> Cases:
    """Leave out batches of a thousand, and colours that open a client for each operation."""
    return [] if LAWS[law] in LONG_BATCHES else in_turn(law, BUILDS, (SYNC, ASYNC))


def whole(law: int) -> Cases:
    return [(name, colour) for name in BUILDS for colour in COLOURS]


class _Around(StoreConformance):
    """
    What the suites share: the wrapper around the store that the subclass makes.

    :param plan: What is run, unless the whole matrix is.
    """

    plan: ClassVar[Plan]

    def __init_subclass__(cls, plan: Plan = in_all_colours) -> None:
        super().__init_subclass__()
        cls.plan = staticmethod(whole if WHOLE else plan)
        for number, name in enumerate(LAWS):
            if not WHOLE and ("process" in name or not cls.plan(number)):
                setattr(cls, name, None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        cases = type(self).plan(LAWS.index(metafunc.function.__name__))
        if "colour" in metafunc.fixturenames:
            metafunc.parametrize("case", cases, ids=[f"{name}-{colour.name}" for name, colour in cases])
        else:
            cases = list(dict(cases).items())
            metafunc.parametrize("case", cases, ids=[name for name, _ in cases])

    @pytest.fixture
    def colour(self, case: tuple[str, Colour]) -> Colour:
        return case[1]

    @pytest.fixture
    def build(self, case: tuple[str, Colour]) -> Build:
        return BUILDS[case[0]]

    @pytest.fixture
    def make_store(self, build: Build, place: None, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        self.counts_as_written = build in PASSING_ON
        self._build, self._patch = build, monkeypatch
        return lambda: build(self._store)

    def _store(self, name: str = "", **limits: Any) -> Any:
        raise NotImplementedError

    def limited(self, **limits: Any) -> ToolResultStore | None:
        """Limits are those of the wrapped stores, which see the sizes of what is stored in them."""
        if not self.counts_as_written and limits.keys() != {"ttl"}:
            return None
        limited: ToolResultStore = self._build(lambda name: self._store(name, **limits))
        return limited

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        return super().damage(*inside(store, reference))


class TestAroundMemory(_Around, plan=in_all_colours):
    durable = False
    ttl = 1000.0

    @pytest.fixture
    def place(self) -> None:
        """Nothing is needed."""

    def _store(self, name: str = "", **limits: Any) -> InMemoryToolResultStore:
        store = InMemoryToolResultStore(**limits)
        self._made = [*getattr(self, "_made", ()), store]
        return store

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        for made in self._made:
            for held in made._entries.values():
                held.used -= seconds


class TestAroundFiles(_Around, FileConformance, plan=in_one_colour):
    settings: ClassVar[dict[str, Any]] = {"references": "relative"}
    _store = FileConformance._store

    @pytest.fixture
    def place(self, tmp_path: Path) -> None:
        self._root = tmp_path / "root"

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        for root in self._root.parent.iterdir():
            self._pass_time_below(root, seconds)


class TestAroundRedis(_Around, RedisConformance, plan=in_one_colour):
    cancelled_at_every = SAMPLE
    _store = RedisConformance._store

    @pytest.fixture
    def proxy(self, valkey_proxy: Proxy) -> Proxy:
        return valkey_proxy

    @pytest.fixture
    def raw(self, valkey: RedisServer) -> Any:
        return valkey.client


class TestAroundS3(_Around, S3Conformance, plan=in_turn_in_one_loop):
    cancelled_at_every = SAMPLE
    _store = S3Conformance._store

    def limited(self, **limits: Any) -> ToolResultStore | None:
        self._time = MadeUpTime(self._patch)
        return super().limited(**limits)

    @pytest.fixture
    def s3_proxy(self, rclone_proxy: Proxy) -> Proxy:
        return rclone_proxy

    @pytest.fixture
    def s3_raw(self, rclone: S3Server) -> S3Server:
        return rclone
