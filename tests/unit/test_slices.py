"""Long computations let other threads in between; never on an event loop, where nothing may sleep."""

import asyncio
import threading
from collections.abc import Iterator

import pytest
from blockbuster import BlockingError

from haybaler import slices
from haybaler.slices import give_way, in_slices


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    made: list[float] = []
    monkeypatch.setattr(slices, "SLICE", 0.0)  # over after each item
    monkeypatch.setattr(slices, "sleep", made.append)
    return made


@pytest.fixture
def neighbour() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    yield
    end.set()
    thread.join()


@pytest.mark.usefixtures("neighbour")
def test_the_items_come_as_they_are_and_others_run_in_between(pauses: list[float]) -> None:
    assert list(in_slices(iter("abc"))) == ["a", "b", "c"]
    assert len(pauses) == 3


@pytest.mark.usefixtures("neighbour")
def test_in_the_thread_of_an_event_loop_nothing_sleeps(pauses: list[float]) -> None:
    async def iterate() -> list[int]:
        return list(in_slices(range(5)))

    assert asyncio.run(iterate()) == list(range(5))
    assert pauses == []


def test_in_a_process_of_one_thread_nothing_sleeps(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "active_count", lambda: 1)
    assert list(in_slices(range(5))) == list(range(5))
    assert pauses == []


@pytest.mark.usefixtures("neighbour")
def test_a_slice_that_is_not_over_goes_on(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE", 1e9)
    assert list(in_slices(range(5))) == list(range(5))
    assert pauses == []


@pytest.mark.usefixtures("neighbour")
def test_whoever_stops_early_may(pauses: list[float]) -> None:
    assert next(in_slices(range(5))) == 0
    assert pauses == []


@pytest.mark.usefixtures("neighbour")
def test_whoever_gives_way_sleeps_for_a_moment_and_alone_not_at_all(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    give_way()
    assert len(pauses) == 1
    assert 0 < pauses[0] < 0.0001
    monkeypatch.setattr(slices, "active_count", lambda: 1)
    give_way()
    assert len(pauses) == 1


@pytest.mark.usefixtures("neighbour")
def test_a_guard_against_blocking_calls_stops_nobody_who_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def guarded(seconds: float) -> None:
        raise BlockingError("time.sleep")

    monkeypatch.setattr(slices, "sleep", guarded)
    give_way()
