"""A synchronous caller stops waiting after a while; the call goes on by itself, and is counted."""

import threading
from concurrent.futures import Future
from contextvars import ContextVar
from threading import BoundedSemaphore, Event
from types import SimpleNamespace

import pytest

from haybaler import deadlines
from haybaler.deadlines import WaitedTooLong, run_within


def test_the_result_or_the_error_is_that_of_the_function() -> None:
    room = BoundedSemaphore(1)
    assert run_within(lambda: "result", 10, room=room) == "result"
    error = TimeoutError("its own")

    def fail() -> None:
        raise error

    with pytest.raises(TimeoutError) as caught:
        run_within(fail, 10, room=room)
    assert caught.value is error
    assert run_within(lambda: "again", 10, room=room) == "again"


def test_it_runs_in_the_context_of_the_caller() -> None:
    user: ContextVar[str] = ContextVar("user")
    user.set("user-7")
    assert run_within(user.get, 10, room=BoundedSemaphore(1)) == "user-7"


def test_a_call_that_hangs_keeps_its_place_until_it_ends() -> None:
    room, go_on, ended = BoundedSemaphore(1), Event(), Event()

    def hang() -> None:
        go_on.wait()
        ended.set()

    with pytest.raises(WaitedTooLong):
        run_within(hang, 0.01, room=room)
    with pytest.raises(WaitedTooLong):  # there is no place
        run_within(lambda: "result", 0.01, room=room)
    go_on.set()
    assert run_within(ended.is_set, 10, room=room)


def test_what_comes_too_late_is_undone_whenever_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    room, go_on, taken_back = BoundedSemaphore(1), Event(), Event()
    undone: list[str] = []

    def late() -> str:
        assert go_on.wait(10)
        return "result"

    def undo(result: str) -> None:
        undone.append(result)
        taken_back.set()

    with pytest.raises(WaitedTooLong):
        run_within(late, 0.01, room=room, undo=undo)
    go_on.set()
    assert taken_back.wait(10)

    def wait_no_longer(calls: list["Future[str]"], timeout: float) -> SimpleNamespace:
        calls[0].result(10)  # it ends between the end of the waiting and what follows
        return SimpleNamespace(done=set())

    monkeypatch.setattr(deadlines, "wait", wait_no_longer)
    with pytest.raises(WaitedTooLong):
        run_within(late, 10, room=room, undo=undo)
    assert undone == ["result", "result"]
    monkeypatch.undo()
    assert run_within(late, 10, room=room, undo=undo) == "result"
    assert len(undone) == 2


def test_a_thread_that_cannot_be_started_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    room = BoundedSemaphore(1)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            run_within(lambda: None, 1, room=room)
    assert run_within(lambda: "result", 10, room=room) == "result"
