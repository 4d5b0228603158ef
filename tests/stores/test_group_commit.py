"""Group commit, on a backend that writes when it is told to: who writes what and when, and what each caller hears."""

import asyncio
import gc
import threading
import traceback
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from haybaler.errors import (
    ConfigurationError,
    EntryTooLargeError,
    ReferenceNotFoundError,
    StoreConfigurationError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from haybaler.stores import group_writer
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content
from haybaler.stores.group_commit import GroupCommit
from haybaler.stores.protocol import StoreEntry
from haybaler.testing import Cancellation, cancel_at, each_cancellation
from haybaler.workers import run_in_worker

pytestmark = pytest.mark.anyio

Items = Sequence[tuple[str, Content]]
caller: ContextVar[str] = ContextVar("caller", default="nobody")


class Recorder(BaseToolResultStore):
    """
    Keeps entries in a dictionary, one batch after another, and remembers what was written when.

    Writes wait at the gate while it is closed; an entry with the content "poison" spoils a whole batch.
    """

    def __init__(self, bounds: GroupCommit | None = None) -> None:
        super().__init__(location="recorder:", group_commit=bounds or GroupCommit(in_flight=1))
        self.entries: dict[str, Content] = {}
        self.batches: list[list[str]] = []
        self.callers: list[str] = []
        self.tasks: list[Any] = []
        self.in_flight: Counter[Hashable] = Counter()
        self.most_in_flight = 0
        self.gate: anyio.Event | None = None
        self.error: Callable[[], Exception] | None = None
        self.cancelled = 0

    def close_gate(self) -> anyio.Event:
        self.gate = anyio.Event()
        return self.gate

    async def _put_many_async(self, items: Items) -> list[StoreError | None]:
        self.batches.append([path for path, _ in items])
        self.callers.append(caller.get())
        self.tasks.append(asyncio.current_task())
        self.in_flight.update(path for path, _ in items)
        assert max(self.in_flight.values()) == 1, "two writes of one path at the same time"
        running = len(self.batches) - self.finished
        self.most_in_flight = max(self.most_in_flight, running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            else:
                await asyncio.sleep(0)
            if self.error is not None:
                raise self.error()
            if any(content == "poison" for _, content in items):
                raise ValueError("poison")
            self.entries.update(items)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight.subtract(path for path, _ in items)
            self.finished += 1
        return [EntryTooLargeError("too large") if content == "large" else None for _, content in items]

    finished = 0

    def _put(self, path: str, content: Content) -> None:
        self.batches.append([path])
        self.entries[path] = content

    def _get(self, path: str) -> Content:
        try:
            return self.entries[path]
        except KeyError:
            raise ReferenceNotFoundError("Nothing is stored under the reference.") from None

    def _remove(self, path: str) -> None:
        self.entries.pop(path, None)


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def writes(store: Recorder, *keys: str, content: str = "content") -> list[asyncio.Task[str]]:
    return [asyncio.ensure_future(store.write_async(key=key, content=content)) for key in keys]


def entries(*keys: str, content: str = "content") -> list[StoreEntry]:
    return [StoreEntry(key, content) for key in keys]


def is_idle(store: Recorder) -> bool:
    """Whether nothing is left of writes that are over."""
    assert store._groups is not None
    writer = store._groups.get()
    queue = writer._queue
    lanes = [lane for lane in queue._lanes.values() if lane.turns or lane.groups or lane.shares]
    return not (writer._begun or writer._tasks or queue._paths or queue._held or lanes)


async def test_a_write_goes_at_once_when_nothing_is_in_flight() -> None:
    store = Recorder()
    coroutine = store.write_async(key="a", content="content")
    coroutine.send(None)  # up to where it waits for the first time
    assert store.batches == [["a"]]
    coroutine.close()
    assert is_idle(store)


async def test_what_comes_while_all_places_are_taken_gathers_and_goes_together() -> None:
    store = Recorder(GroupCommit(in_flight=2))
    gate = store.close_gate()
    tasks = writes(store, *map(str, range(10)))
    await turns()
    assert store.batches == [["0"], ["1"]]
    gate.set()
    assert await asyncio.gather(*tasks) == [f"recorder:{number}" for number in range(10)]
    assert store.batches == [["0"], ["1"], [str(number) for number in range(2, 10)]]
    assert is_idle(store)


async def test_batches_of_many_callers_share_groups_and_each_gets_its_own_outcomes() -> None:
    store = Recorder()
    batches = [[StoreEntry(f"{name}{number}", name) for number in range(5)] for name in "abcdef"]
    batches[3][2] = StoreEntry("d2", "large")
    results = await asyncio.gather(*(store.write_many_async(batch) for batch in batches))
    assert len(store.batches) == 2
    for batch, outcomes in zip(batches, results, strict=True):
        for entry, outcome in zip(batch, outcomes, strict=True):
            if entry.key == "d2":
                assert isinstance(outcome, EntryTooLargeError)
            else:
                assert outcome == store.reference(entry.key)


async def test_scopes_share_groups_and_never_meet() -> None:
    store = Recorder()
    scopes = [store.scoped(f"run-{number}") for number in range(20)]
    references = await asyncio.gather(*(scope.write_async(key="key", content=scope._scope_path) for scope in scopes))
    assert len(store.batches) == 2
    assert references == [scope.reference("key") for scope in scopes]
    for scope in scopes:
        assert await scope.read_async(scope.reference("key")) == scope._scope_path


async def test_a_thousand_writers_stay_within_all_bounds() -> None:
    store = Recorder(GroupCommit(in_flight=3, entries=40, size=1_000))
    sizes = [number % 100 for number in range(1_000)]
    keys = {str(number): size for number, size in enumerate(sizes)}
    await asyncio.gather(*(store.write_async(key=key, content="x" * size) for key, size in keys.items()))
    assert store.most_in_flight == 3
    assert len(store.entries) == 1_000
    for batch in store.batches:
        assert len(batch) <= 40
        assert sum(keys[path] for path in batch) <= 1_000
    assert len(store.batches) < 1_000 / 15


async def test_a_batch_larger_than_a_group_is_cut_and_comes_back_in_order() -> None:
    store = Recorder(GroupCommit(in_flight=4, entries=10))
    outcomes = await store.write_many_async(entries(*map(str, range(105))))
    assert outcomes == [store.reference(str(number)) for number in range(105)]
    assert [len(batch) for batch in store.batches] == [10] * 10 + [5]
    assert store.most_in_flight == 2  # one is prepared while the other is on its way
    assert is_idle(store)


async def test_an_entry_larger_than_a_group_goes_alone_and_holds_up_nobody() -> None:
    store = Recorder(GroupCommit(in_flight=1, size=100))
    gate = store.close_gate()
    large = writes(store, "a", "b", content="x" * 101)
    await turns()
    assert store.batches == [["a"]]
    store.gate = None
    await asyncio.gather(*writes(store, "small"))
    assert not large[0].done()
    gate.set()
    await asyncio.gather(*large)


async def test_one_run_with_ten_thousand_entries_does_not_starve_the_others() -> None:
    store = Recorder(GroupCommit(in_flight=2, entries=100))
    large = asyncio.ensure_future(store.write_many_async(entries(*(f"large-{number}" for number in range(10_000)))))
    await turns(3)
    for number in range(10):
        before = len(store.batches)
        await asyncio.gather(*writes(store, *(f"small-{number}-{index}" for index in range(10))))
        assert len(store.batches) - before <= 6
    assert not large.done()
    assert len(await large) == 10_000


async def test_a_caller_whose_own_entries_are_done_returns_at_once_and_a_waiting_one_goes_on() -> None:
    store = Recorder(GroupCommit(in_flight=1, entries=2))
    order: list[str] = []

    async def write(key: str) -> None:
        await store.write_async(key=key, content="content")
        order.append(f"{key} after {len(store.batches)}")

    await asyncio.gather(*map(write, "abcdefg"))
    # When it is told, the next group is on its way, but no further one.
    assert order == ["a after 1", "b after 2", "c after 2", "d after 3", "e after 3", "f after 4", "g after 4"]


async def test_the_later_of_two_writes_of_a_path_wins() -> None:
    store = Recorder(GroupCommit(in_flight=3))
    tasks = [writes(store, "other", "same", "another", content=str(number)) for number in range(50)]
    await asyncio.gather(*(task for three in tasks for task in three))
    assert store.entries == {"other": "49", "same": "49", "another": "49"}


async def test_who_waits_for_another_write_of_its_path_holds_up_nobody_else() -> None:
    store = Recorder(GroupCommit(in_flight=3))
    gate = store.close_gate()
    first, second = writes(store, "same"), writes(store, "same", content="later")
    await turns()
    store.gate = None
    assert (await asyncio.gather(*writes(store, "other"))) == ["recorder:other"]
    assert store.batches == [["same"], ["other"]]
    second[0].cancel()
    third = writes(store, "same", content="last")
    await turns()
    gate.set()
    await asyncio.gather(*first, *third)
    assert second[0].cancelled()
    assert store.batches == [["same"], ["other"], ["same"]]
    assert store.entries["same"] == "last"
    assert is_idle(store)


async def test_an_entry_that_spoils_a_batch_for_all_fails_for_its_own_caller_only() -> None:
    store = Recorder()
    first = writes(store, "first")
    batches = [entries("a", "b"), [StoreEntry("c", "good"), StoreEntry("d", "poison")], entries("e", "f")]
    results = await asyncio.gather(*(store.write_many_async(batch) for batch in batches), *first)
    assert results[0] == [store.reference("a"), store.reference("b")]
    assert [type(outcome) for outcome in results[1]] == [StoreError, StoreError]
    assert results[2] == [store.reference("e"), store.reference("f")]
    assert store.batches == [["first"], ["a", "b", "c", "d", "e", "f"], ["a", "b"], ["c", "d"], ["e", "f"]]


@pytest.mark.parametrize("kind", [StoreUnavailableError, StoreTimeoutError, StoreConfigurationError])
async def test_what_concerns_the_whole_store_is_not_tried_again_caller_by_caller(kind: type[StoreError]) -> None:
    store = Recorder()
    store.error = lambda: kind("all of it")
    results = await asyncio.gather(*writes(store, *"abcdef"), return_exceptions=True)
    assert {type(result) for result in results} == {kind}
    assert len(store.batches) == 2


async def test_after_an_outage_a_caller_does_not_wait_as_long_once_more() -> None:
    store = Recorder(GroupCommit(in_flight=2, entries=10))
    store.error = lambda: ConnectionResetError("gone")
    outcomes = await store.write_many_async(entries(*map(str, range(1_000))))
    assert {type(outcome) for outcome in outcomes} == {StoreUnavailableError}
    assert len(store.batches) == 2
    store.error = lambda: StoreFullError("no room for this one")
    outcomes = await store.write_many_async(entries(*map(str, range(100))))
    assert {type(outcome) for outcome in outcomes} == {StoreFullError}
    assert len(store.batches) == 12


async def test_an_outage_of_one_server_says_nothing_of_another() -> None:
    class Sharded(Recorder):
        def _servers_of(self, paths: Sequence[str]) -> Sequence[Hashable]:
            return [path[0] for path in paths]

        async def _put_many_async(self, items: Items) -> list[StoreError | None]:
            if items[0][0].startswith("a"):
                raise ConnectionResetError("gone")
            return await super()._put_many_async(items)

    store = Sharded(GroupCommit(in_flight=1, entries=10))
    keys = [f"{name}{number}" for number in range(50) for name in "ab"]
    outcomes = dict(zip(keys, await store.write_many_async(entries(*keys)), strict=True))
    assert {type(outcome) for key, outcome in outcomes.items() if key[0] == "a"} == {StoreUnavailableError}
    assert all(outcome == store.reference(key) for key, outcome in outcomes.items() if key[0] == "b")


class Peculiar(StoreError):
    def __init__(self, number: int, text: str) -> None:
        super().__init__(text)
        self.number = number


def _fail() -> None:
    raise OSError(5, "the reason")


def _failure() -> Exception:
    error = StoreConfigurationError("of all")
    error.add_note("a note")
    try:
        _fail()
    except OSError as reason:
        error.__cause__ = reason
    return error


async def test_each_caller_gets_an_error_object_of_its_own_with_the_reasons_and_nobodys_frames() -> None:
    store = Recorder()
    store.error = _failure

    async def write(name: str) -> list[str | StoreError]:
        secret = f"secret of {name}"
        return await store.write_many_async([StoreEntry(f"{name}{number}", secret) for number in range(3)])

    results = await asyncio.gather(*map(write, "abcd"))
    errors = [{id(outcome): outcome for outcome in outcomes} for outcomes in results[1:]]
    assert [len(own) for own in errors] == [1, 1, 1]
    assert len({key for own in errors for key in own}) == 3
    for outcomes in results[1:]:
        error = outcomes[0]
        assert isinstance(error, StoreConfigurationError)
        assert str(error) == "of all"
        assert isinstance(error.__cause__, OSError)
        assert error.__cause__.strerror == "the reason"
        assert (error.__traceback__, error.__cause__.__traceback__) == (None, None)
        assert error.__notes__ == ["a note"]
        report = traceback.TracebackException.from_exception(error, capture_locals=True)
        assert "secret" not in "".join(report.format())
        error.add_note("another caller's")
    assert len({id(outcomes[0].__cause__) for outcomes in results[1:]}) == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("cause", "kept"),
    [
        (Peculiar(1, "its constructor takes something else"), type(None)),
        (ExceptionGroup("its parts have frames of their own", [ValueError("a")]), type(None)),
        (ValueError("plain"), ValueError),
    ],
)
async def test_an_error_that_cannot_be_copied_still_reaches_everybody(cause: Exception, kept: type) -> None:
    def failure() -> Exception:
        error = StoreConfigurationError("of all")
        error.__cause__ = cause
        return error

    store = Recorder()
    store.error = failure
    results = await asyncio.gather(*writes(store, *"abc"), return_exceptions=True)
    assert [str(result) for result in results] == ["of all"] * 3
    assert [type(result.__cause__) for result in results[1:]] == [kept, kept]  # type: ignore[union-attr]
    store.error = lambda: Peculiar(7, "peculiar")
    results = await asyncio.gather(*writes(store, *"abc"), return_exceptions=True)
    assert [str(result) for result in results] == ["peculiar"] * 3
    assert all(isinstance(result, StoreError) for result in results)
    assert len(set(map(id, results))) == 3


@pytest.mark.parametrize("answer", [[], [None] * 100, None, 5])
async def test_outcomes_in_the_wrong_number_are_no_outcomes(answer: Any) -> None:
    class Careless(Recorder):
        async def _put_many_async(self, items: Items) -> list[StoreError | None]:
            await super()._put_many_async(items)
            return answer  # type: ignore[no-any-return]

    store = Careless(GroupCommit(in_flight=1, entries=50))
    results = await asyncio.gather(*writes(store, *"abc"), return_exceptions=True)
    assert {type(result) for result in results} == {StoreError}
    assert {type(outcome) for outcome in await store.write_many_async(entries(*map(str, range(70))))} == {StoreError}
    assert is_idle(store)


async def test_context_variables_of_one_caller_never_reach_the_write_of_another() -> None:
    store = Recorder(GroupCommit(in_flight=1, entries=10))

    async def write(name: str, count: int) -> None:
        caller.set(name)
        await store.write_many_async(entries(*(f"{name}-{number}" for number in range(count))))
        assert caller.get() == name

    await asyncio.gather(*(write(name, 1) for name in ("alone", "a", "b", "c")))
    assert store.callers == ["alone", "nobody"]
    await write("large", 25)
    assert store.callers[2:] == ["large", "large", "large"]


async def test_a_write_that_shares_nothing_is_written_in_its_callers_own_task() -> None:
    store = Recorder()
    await store.write_async(key="a", content="content")
    assert store.tasks == [asyncio.current_task()]


async def test_who_waits_too_long_for_a_turn_is_told_so() -> None:
    store = Recorder(GroupCommit(in_flight=1, wait=0.02))
    gate = store.close_gate()
    first = writes(store, "a")
    results = await asyncio.gather(*writes(store, "b", "c"), return_exceptions=True)
    assert {type(result) for result in results} == {StoreTimeoutError}
    gate.set()
    assert await asyncio.gather(*first) == ["recorder:a"]
    assert store.batches == [["a"]]
    assert is_idle(store)


async def test_a_batch_that_goes_on_does_not_wait_too_long_whatever_it_takes() -> None:
    class Slow(Recorder):
        async def _put_many_async(self, items: Items) -> list[StoreError | None]:
            await asyncio.sleep(0.02)
            return await super()._put_many_async(items)

    store = Slow(GroupCommit(in_flight=1, entries=1, wait=0.1))
    outcomes = await store.write_many_async(entries(*map(str, range(20))))
    assert outcomes == [store.reference(str(number)) for number in range(20)]


async def test_what_is_in_flight_is_left_to_the_backends_own_times() -> None:
    store = Recorder(GroupCommit(in_flight=1, entries=1, wait=0.01))
    gate = store.close_gate()
    task = asyncio.ensure_future(store.write_many_async(entries(*"abc")))
    await asyncio.sleep(0.1)
    gate.set()
    assert await task == ["recorder:a", "recorder:b", "recorder:c"]


async def test_synchronous_callers_are_not_grouped() -> None:
    store = Recorder()
    gate = store.close_gate()
    task = writes(store, "a")
    await turns()
    assert store.write(key="b", content="content") == "recorder:b"
    gate.set()
    await asyncio.gather(*task)


async def test_closing_waits_for_what_has_begun_and_not_for_what_comes_later() -> None:
    store = Recorder()
    gate = store.close_gate()
    early = writes(store, "a", "b", "c")
    await turns()
    closing = asyncio.ensure_future(store.close_async())
    await turns()
    store.gate = None
    assert not closing.done()
    gate.set()
    await closing
    assert all(task.done() for task in early)
    await store.close_async()
    late = store.close_gate()
    task = writes(store, "d")
    await turns()
    with anyio.move_on_after(0.01):
        await store.close_async()
    late.set()
    assert await asyncio.gather(*task) == ["recorder:d"]
    assert is_idle(store)


def test_a_store_without_batches_of_its_own_cannot_group() -> None:
    class Singles(BaseToolResultStore):
        def __init__(self) -> None:
            super().__init__(group_commit=GroupCommit())

        async def _put_async(self, path: str, content: Content) -> None: ...

        async def _get_async(self, path: str) -> Content:
            return path

        async def _remove_async(self, path: str) -> None: ...

    with pytest.raises(ConfigurationError, match="_put_many_async"):
        Singles()


async def test_nothing_is_held_after_the_writes() -> None:
    class Text(str):
        __slots__ = ("__weakref__",)

    store = Recorder(GroupCommit(in_flight=1, entries=3))
    assert store._groups is not None
    held: list[weakref.ref[Text]] = []
    writer = store._groups.get()

    async def drop(items: Items) -> list[StoreError | None]:
        await asyncio.sleep(0)
        return [None for _ in items]

    async def write(name: str) -> None:
        items = [(f"{name}{number}", Text("content")) for number in range(5)]
        held.extend(weakref.ref(content) for _, content in items)
        await writer.write(drop, items, servers_of=lambda paths: [None] * len(paths))

    gc.disable()  # so no cycles hold anything either
    try:
        await asyncio.gather(*map(write, "abcdef"))
        await turns(2)
        assert len(held) == 30
        assert [reference() for reference in held] == [None] * 30
    finally:
        gc.enable()


# Cancellation


async def test_what_waits_when_it_is_cancelled_is_never_written() -> None:
    store = Recorder()
    gate = store.close_gate()
    tasks = writes(store, *"abcd")
    await turns()
    tasks[2].cancel()
    await turns()
    assert tasks[2].done()
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[2], asyncio.CancelledError)
    assert store.batches == [["a"], ["b", "d"]]
    assert is_idle(store)


async def shared_group(store: Recorder, *keys: str) -> tuple[list[asyncio.Task[str]], anyio.Event]:
    """Return writes in one group that is in flight, and what lets it go on."""
    first = store.close_gate()
    blocking = writes(store, "blocking")
    await turns()
    tasks = writes(store, *keys)
    await turns()
    second = store.close_gate()
    first.set()
    await asyncio.gather(*blocking)
    await turns()
    assert store.batches == [["blocking"], list(keys)]
    return tasks, second


@pytest.mark.parametrize("victim", [0, 1, 2], ids=["leader", "follower", "last"])
async def test_a_cancelled_caller_waits_for_the_end_of_its_group_which_is_written_to_the_end(victim: int) -> None:
    store = Recorder()
    tasks, gate = await shared_group(store, *"abc")
    tasks[victim].cancel()
    await turns()
    assert not any(task.done() for task in tasks)
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results.pop(victim), asyncio.CancelledError)
    assert results == [store.reference(key) for number, key in enumerate("abc") if number != victim]
    assert set(store.entries) == {"blocking", "a", "b", "c"}
    assert store.cancelled == 0
    assert is_idle(store)


async def test_a_caller_whose_cancel_scope_is_cancelled_waits_as_well() -> None:
    store = Recorder()
    scope = anyio.CancelScope()

    async def write() -> None:
        with scope:
            await store.write_async(key="victim", content="content")

    first = store.close_gate()
    blocking = writes(store, "blocking")
    await turns()
    victim, others = asyncio.ensure_future(write()), writes(store, "other")
    await turns()
    gate = store.close_gate()
    first.set()
    await asyncio.gather(*blocking)
    await turns()
    scope.cancel()
    await turns()
    assert store.batches == [["blocking"], ["victim", "other"]]
    assert not victim.done()
    gate.set()
    await asyncio.gather(victim, *others)
    assert scope.cancelled_caught
    assert is_idle(store)


@pytest.mark.parametrize("victim", [0, 1], ids=["leader", "follower"])
async def test_a_cancelled_caller_does_not_wait_for_ever(victim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_writer, "GRACE", 0.01)
    store = Recorder()
    tasks, gate = await shared_group(store, *"ab")
    tasks[victim].cancel()
    await asyncio.wait([tasks[victim]])
    assert tasks[victim].cancelled()
    assert not tasks[1 - victim].done()
    gate.set()
    assert await tasks[1 - victim] == store.reference("ab"[1 - victim])
    assert is_idle(store)


async def test_a_group_that_nobody_waits_for_any_more_is_cancelled_before_the_last_caller_returns() -> None:
    store = Recorder()
    strangers = asyncio.all_tasks()
    tasks, _ = await shared_group(store, *"abc")
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert store.cancelled == 1
    assert store.in_flight.total() == 0
    assert is_idle(store)
    assert asyncio.all_tasks() == strangers


async def test_the_last_callers_wait_for_a_backend_that_takes_its_time_to_be_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unhurried(Recorder):
        async def _put_many_async(self, items: Items) -> list[StoreError | None]:
            try:
                return await super()._put_many_async(items)
            except asyncio.CancelledError:
                await done.wait()
                raise

    monkeypatch.setattr(group_writer, "GRACE", 0.01)
    done = anyio.Event()
    store = Unhurried()
    tasks, _ = await shared_group(store, *"ab")
    for task in tasks:
        task.cancel()
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in tasks)
    done.set()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert is_idle(store)


async def test_a_second_cancellation_ends_the_wait_and_not_the_write() -> None:
    store = Recorder()
    tasks, gate = await shared_group(store, *"ab")
    tasks[0].cancel()
    await turns()
    tasks[0].cancel()
    await turns()
    assert tasks[0].cancelled()
    gate.set()
    assert await tasks[1] == store.reference("b")
    assert is_idle(store)


async def test_a_batch_of_which_a_part_is_in_flight_takes_out_the_rest_when_it_is_cancelled() -> None:
    store = Recorder(GroupCommit(in_flight=1, entries=2))
    gate = store.close_gate()
    task = asyncio.ensure_future(store.write_many_async(entries(*"abcdef")))
    await turns()
    others = writes(store, "other")
    await turns()
    task.cancel()
    gate.set()
    await asyncio.gather(*others)
    assert task.cancelled()
    assert store.batches == [["a", "b"], ["other"]]
    assert is_idle(store)


async def test_what_is_left_of_a_cancelled_batch_goes_with_no_other_group_while_the_caller_waits() -> None:
    store = Recorder(GroupCommit(in_flight=2, entries=4))
    first = store.close_gate()
    blocking = writes(store, "blocking", "another")
    await turns()
    victim = asyncio.ensure_future(store.write_many_async(entries(*(f"v{number}" for number in range(9)))))
    await turns()
    others = writes(store, "a", "b", "c")
    await turns()
    gate = store.close_gate()
    first.set()
    await asyncio.gather(*blocking)
    await turns()
    assert store.batches[2:] == [["v0", "a", "b", "c"], ["v1", "v2", "v3", "v4"]]
    victim.cancel()
    await turns()
    assert (store.cancelled, victim.done()) == (1, False)
    more = writes(store, "d")
    await turns()
    gate.set()
    await asyncio.gather(*others, *more)
    assert victim.cancelled()
    assert store.batches[4:] == [["d"]]
    assert is_idle(store)


async def test_when_a_stranger_ends_the_task_of_a_group_its_callers_hear_of_an_interruption() -> None:
    store = Recorder()
    tasks, _ = await shared_group(store, *"ab")
    store.tasks[-1].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {StoreUnavailableError}
    assert results[0] is not results[1]
    store.gate = None
    assert await asyncio.gather(*writes(store, "c")) == ["recorder:c"]


async def test_after_an_entry_spoilt_a_group_what_was_cancelled_meanwhile_is_not_written() -> None:
    store = Recorder()
    first = store.close_gate()
    blocking = writes(store, "blocking")
    await turns()
    tasks = [*writes(store, "a"), *writes(store, "b", content="poison"), *writes(store, "c")]
    await turns()
    gate = store.close_gate()
    first.set()
    await asyncio.gather(*blocking)
    await turns()
    tasks[0].cancel()
    await turns()
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError, StoreError, str]
    assert store.batches == [["blocking"], ["a", "b", "c"], ["b"], ["c"]]
    assert is_idle(store)


class Scene:
    """A victim among others, whose writes go on whatever becomes of it."""

    def __init__(self, place: int, count: int) -> None:
        self.place, self.count = place, count
        self.store = Recorder(GroupCommit(in_flight=2, entries=4, wait=1e9))  # some cancellations move the clock
        self.others: list[asyncio.Task[list[str | StoreError]]] = []
        self.results: list[list[str | StoreError]] = []

    def _write(self, name: str, count: int) -> Awaitable[list[str | StoreError]]:
        return self.store.write_many_async(entries(*(f"{name}-{number}" for number in range(count)), content=name))

    def _start(self, *names: str) -> None:
        self.others += [asyncio.ensure_future(self._write(name, 3)) for name in names]

    async def victim(self) -> None:
        names = ["a", "b", "c", "d", "e"]
        self._start(*names[: self.place])
        if self.place:
            await asyncio.sleep(0)
        self._start(*names[self.place :])
        await self._write("victim", self.count)

    async def finish(self) -> None:
        self.results = await asyncio.gather(*self.others)
        await asyncio.gather(*writes(self.store, "afterwards", "and again"))
        assert is_idle(self.store)

    def check(self) -> None:
        for name, outcomes in zip("abcde", self.results, strict=False):
            assert outcomes == [self.store.reference(f"{name}-{number}") for number in range(3)]
        assert {path.partition("-")[0] for path, content in self.store.entries.items() if content != "content"} <= {
            *"abcde",
            "victim",
        }


@pytest.mark.parametrize("place", [0, 1, 2, 5])
@pytest.mark.parametrize("count", [1, 11])
def test_a_caller_that_is_cancelled_at_any_suspension_harms_no_other(place: int, count: int) -> None:
    reached = 0
    for by in Cancellation:
        for step in range(1, 200):
            scene = Scene(place, count)
            if not cancel_at(scene.victim, step=step, by=by, afterwards=scene.finish):
                break
            reached += 1
            scene.check()
        scene.check()
    assert reached > 10


def test_a_run_of_many_callers_that_is_cancelled_at_any_suspension_leaves_nothing() -> None:
    store = Recorder(GroupCommit(in_flight=2, entries=4, wait=1e9))

    async def write_all() -> None:
        async with anyio.create_task_group() as group:
            for name in "abcdef":
                group.start_soon(store.write_many_async, entries(*(f"{name}{number}" for number in range(3))))

    async def check() -> None:
        await asyncio.gather(*writes(store, "afterwards"))
        assert is_idle(store)

    assert len(list(each_cancellation(write_all, afterwards=check))) > 20


# Event loops


def test_two_event_loops_in_two_threads_never_wait_for_each_other() -> None:
    store = Recorder(GroupCommit(in_flight=1, entries=5))
    one_is_held = threading.Event()
    others_are_done = threading.Event()

    async def hold() -> None:
        gate = store.close_gate()
        task = writes(store, "held")
        await turns()
        store.gate = None
        one_is_held.set()
        await run_in_worker(others_are_done.wait)
        gate.set()
        await asyncio.gather(*task)

    async def work() -> list[str]:
        return await asyncio.gather(*writes(store, *(str(number) for number in range(50))))

    def run() -> list[str]:
        one_is_held.wait()
        try:
            return asyncio.run(work())
        finally:
            others_are_done.set()

    with ThreadPoolExecutor(2) as pool:
        holding, working = pool.submit(asyncio.run, hold()), pool.submit(run)
        assert len(working.result()) == 50
        holding.result()
    assert "held" in store.entries


def test_an_event_loop_that_is_closed_in_the_middle_leaves_no_trace_for_the_next_one() -> None:
    store = Recorder(GroupCommit(in_flight=1, entries=2))

    async def begin(together: bool) -> None:
        first = store.close_gate()
        writes(store, *"abcdef")
        await turns()
        if together:
            store.close_gate()
            first.set()
            await turns()

    for together in (False, True):
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda loop, context: None)  # for the tasks, which are destroyed with their loop
        loop.run_until_complete(begin(together))
        loop.close()
        assert len(store.batches[-1]) == 1 + together
        store.gate = None
        last = store.tasks.pop()
        store.tasks.clear()
        del loop

        async def write() -> list[str]:
            return await asyncio.gather(*writes(store, *"abcdef"))

        store.in_flight.clear()
        assert asyncio.run(write()) == [f"recorder:{name}" for name in "abcdef"]
        gc.collect()  # of those who still wait in the loop that is closed
        del last
        gc.collect()
    assert store._groups is not None
    assert len(store._groups._objects) == 1
