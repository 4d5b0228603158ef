"""The fault injection itself: it sees what goes wrong, and finds nothing where nothing does."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Any

import pytest
from tests.faults.injection.faults import Fault, Place, try_out
from tests.faults.injection.fleet import RESULTS, RUNS, STEPS
from tests.faults.injection.matrix import EXPERIMENTS, failures, table

from haybaler import InMemoryToolResultStore
from haybaler.errors import ReferenceNotFoundError, StoreError, StoreUnavailableError
from haybaler.stores.driver import Content


class Breakable(InMemoryToolResultStore):
    """A store in memory that breaks in a way of its own while it is struck."""

    def __init__(self) -> None:
        super().__init__()
        self.struck = [False]  # scopes share it

    @contextmanager
    def place(self) -> Iterator[Place]:
        def turn(struck: bool) -> None:
            self.struck[0] = struck

        yield Place(self, lambda _: turn(True), lambda: turn(False))


class Losing(Breakable):
    def _put(self, path: str, content: Content) -> None:
        if not self.struck[0]:
            super()._put(path, content)


class Tearing(Breakable):
    def _put(self, path: str, content: Content) -> None:
        super()._put(path, content[: len(content) // 2] if self.struck[0] else content)


class Away(Breakable):
    def _put(self, path: str, content: Content) -> None:
        if self.struck[0]:
            raise StoreUnavailableError("It is away.")
        super()._put(path, content)


class Slow(Breakable):
    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        await asyncio.sleep(0.2 if self.struck[0] else 0)
        return self._put_many(items)


class Forgetful(Breakable):
    def _get(self, path: str) -> Content:
        if self.struck[0]:
            raise ReferenceNotFoundError("It says.")
        return super()._get(path)


def fault(place: Callable[[], AbstractContextManager[Place]], delay: float = 30.0) -> Fault:
    return Fault("memory", "struck", place, delay=delay)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Random, "uniform", lambda self, low, high: low)


@pytest.mark.parametrize(("kind", "losses"), [(Losing, "lost"), (Tearing, "torn"), (Forgetful, "torn")])
def test_what_is_lost_or_torn_is_seen(kind: type[Any], losses: str) -> None:
    outcome = try_out(fault(kind().place), trials=2)
    assert getattr(outcome.tally, losses) > 0
    assert any("losses" in failure for failure in failures(outcome))


def test_a_store_that_is_away_leaves_everything_whole() -> None:
    outcome = try_out(fault(Away().place), trials=2)
    assert outcome.tally.kept > 0
    assert outcome.tally.kept + outcome.tally.offloaded == outcome.trials * RUNS * STEPS * RESULTS
    assert failures(outcome) == ([] if outcome.tally.offloaded else ["not a single result was offloaded"])


def test_a_delay_beyond_what_is_allowed_is_seen() -> None:
    outcome = try_out(fault(Slow().place, delay=0.1), trials=2)
    assert ["the runs took" in failure for failure in failures(outcome)] == [True]


def test_a_store_that_does_not_recover_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Away()

    @contextmanager
    def place() -> Iterator[Place]:
        with store.place() as place:
            yield Place(store, place.strike)

    monkeypatch.setattr("tests.faults.injection.faults.PATIENCE", 0.5)
    outcome = try_out(fault(place), trials=2)
    assert any("until results were offloaded again" in failure for failure in failures(outcome))


def test_every_fault_has_a_row_of_its_own() -> None:
    names = [(each.backend, each.name) for each in EXPERIMENTS]
    assert len(set(names)) == len(names) >= 20
    assert table([try_out(fault(Breakable().place), trials=2)]).row_count == 1
