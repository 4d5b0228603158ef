import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter
from typing import Any

import anyio
import pytest
from anyio import CapacityLimiter

from haybaler.testing import Cancellation, each_cancellation
from haybaler.workers import WORKERS, clean_up, map_bounded, run_in_worker, run_or_undo, see_through


@pytest.mark.anyio
async def test_results_are_in_the_order_of_the_items() -> None:
    events = [anyio.Event() for _ in range(5)]

    async def finish_last_first(index: int) -> int:
        if index < 4:
            await events[index + 1].wait()
        events[index].set()
        return index * 10

    assert await map_bounded(finish_last_first, range(5), limit=5) == [0, 10, 20, 30, 40]


@pytest.mark.anyio
@pytest.mark.parametrize(("items", "limit", "peak"), [(100, 7, 7), (3, 7, 3), (1, 1, 1), (0, 7, 0)])
async def test_at_most_the_limit_is_in_flight(items: int, limit: int, peak: int) -> None:
    in_flight = 0
    most = 0

    async def count(item: int) -> int:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        await anyio.lowlevel.checkpoint()
        in_flight -= 1
        return item

    assert await map_bounded(count, range(items), limit=limit) == list(range(items))
    assert most == peak


@pytest.mark.anyio
async def test_the_first_error_cancels_the_rest_and_is_raised_as_it_is() -> None:
    error = ConnectionResetError("reset")
    begun: list[int] = []
    cancelled: list[int] = []

    async def fail_at_three(item: int) -> None:
        begun.append(item)
        if item == 3:
            raise error
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(item)
            raise

    with pytest.raises(ConnectionResetError) as caught:
        await map_bounded(fail_at_three, range(1_000), limit=4)
    assert caught.value is error
    assert begun == [0, 1, 2, 3]
    assert sorted(cancelled) == [0, 1, 2]


@pytest.mark.anyio
async def test_an_error_stops_its_own_task_too() -> None:
    begun: list[int] = []

    async def fail(item: int) -> None:
        begun.append(item)
        raise ValueError(item)

    with pytest.raises(ValueError, match=r"^0$"):
        await map_bounded(fail, range(1_000), limit=1)
    assert begun == [0]


@pytest.mark.anyio
async def test_a_cancellation_from_outside_passes_through() -> None:
    started = asyncio.Event()

    async def hang(_: int) -> None:
        started.set()
        await anyio.sleep_forever()

    task = asyncio.create_task(map_bounded(hang, range(10), limit=3))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.anyio
async def test_an_error_does_not_hide_a_cancellation_from_outside() -> None:
    cleaning_up, may_end = asyncio.Event(), asyncio.Event()

    async def fail_or_clean_up(item: int) -> None:
        if item == 2:
            raise ValueError(item)
        try:
            await anyio.sleep_forever()
        finally:
            cleaning_up.set()
            await may_end.wait()

    task = asyncio.create_task(map_bounded(fail_or_clean_up, range(3), limit=3))
    await cleaning_up.wait()
    task.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.anyio
@pytest.mark.parametrize("cancelled", range(3))
async def test_an_item_that_is_cancelled_by_itself_cancels_all(cancelled: int) -> None:
    async def work(item: int) -> int:
        if item == cancelled:
            raise asyncio.CancelledError
        return item

    with pytest.raises(asyncio.CancelledError):
        await map_bounded(work, range(3), limit=3)


@pytest.mark.anyio
async def test_an_error_is_an_error_in_a_task_that_had_been_cancelled_before() -> None:
    async def fail(item: int) -> None:
        raise ValueError(item)

    async def cancelled_once() -> None:
        with suppress(asyncio.CancelledError):
            await anyio.sleep_forever()
        with pytest.raises(ValueError, match=r"^0$"):
            await map_bounded(fail, range(3), limit=3)

    task = asyncio.create_task(cancelled_once())
    await asyncio.sleep(0)
    task.cancel()
    await task


@pytest.mark.anyio
async def test_an_error_is_an_error_where_tasks_start_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they do from Python 3.12 on with asyncio's own `eager_task_factory`."""

    def create_eagerly(group: asyncio.TaskGroup, coroutine: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        with pytest.raises(StopIteration):  # what is awaited here never waits
            coroutine.send(None)
        done.set_result(None)
        return done

    async def fail_at_one(item: int) -> int:
        asked.append(item)
        if item == 1:
            raise ValueError(item)
        return item

    asked: list[int] = []
    monkeypatch.setattr(asyncio.TaskGroup, "create_task", create_eagerly)
    with pytest.raises(ValueError, match=r"^1$"):
        await map_bounded(fail_at_one, range(5), limit=3)
    assert asked == [0, 1]
    assert await map_bounded(fail_at_one, [0, 2, 3], limit=2) == [0, 2, 3]


@pytest.mark.anyio
async def test_row_75_a_worker_leaves_the_default_executor_to_others() -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the default executor was used")

    class Refusing(ThreadPoolExecutor):
        submit = refuse  # type: ignore[assignment]

    asyncio.get_running_loop().set_default_executor(Refusing(1))
    assert await run_in_worker(threading.get_ident) != threading.get_ident()


@pytest.mark.anyio
async def test_row_75_workers_work_while_the_default_executor_is_full() -> None:
    loop = asyncio.get_running_loop()
    release = threading.Event()
    pool = ThreadPoolExecutor(1)
    loop.set_default_executor(pool)
    stuck = loop.run_in_executor(None, release.wait)
    assert await run_in_worker(lambda: "done") == "done"
    release.set()
    await stuck


@pytest.mark.anyio
async def test_a_single_item_costs_no_task() -> None:
    async def task_of(item: int) -> asyncio.Task[object] | None:
        return asyncio.current_task()

    assert await map_bounded(task_of, [1], limit=5) == [asyncio.current_task()]
    assert await map_bounded(task_of, [], limit=5) == []


@pytest.mark.anyio
async def test_workers_are_bounded_by_their_own_limiter() -> None:
    lock = threading.Lock()
    in_flight = 0
    most = 0
    barrier = threading.Barrier(WORKERS)

    def meet() -> None:
        nonlocal in_flight, most
        with lock:
            in_flight += 1
            most = max(most, in_flight)
        barrier.wait()  # passes only when as many threads as allowed are here
        with lock:
            in_flight -= 1

    await asyncio.gather(*(run_in_worker(meet) for _ in range(2 * WORKERS)))
    assert most == WORKERS
    assert anyio.to_thread.current_default_thread_limiter().borrowed_tokens == 0


@pytest.mark.anyio
@pytest.mark.parametrize("moment", ["while the thread works", "when it is done, and nobody has heard of it"])
async def test_what_a_thread_has_changed_is_undone_once_if_nobody_gets_its_result(moment: str) -> None:
    begun, go_on, taken_back = threading.Event(), threading.Event(), threading.Event()
    undone: list[str] = []

    def change() -> str:
        begun.set()
        assert go_on.wait(10)
        return "result"

    def undo(result: str) -> None:
        undone.append(result)
        taken_back.set()

    task = asyncio.create_task(run_or_undo(change, undo, seconds=10))
    assert await run_in_worker(begun.wait, 10)
    if moment != "while the thread works":
        go_on.set()
        until = perf_counter() + 0.1
        while perf_counter() < until:  # the event loop is busy meanwhile
            pass
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await run_in_worker(taken_back.wait, 10)
    await asyncio.sleep(0.02)
    assert undone == ["result"]


@pytest.mark.anyio
async def test_abandoned_calls_count_until_they_end() -> None:
    release = threading.Event()
    begun = threading.Semaphore(0)
    ran: list[str] = []

    def hang() -> None:
        begun.release()
        release.wait()

    hung = [asyncio.create_task(run_in_worker(hang)) for _ in range(WORKERS)]
    await anyio.to_thread.run_sync(lambda: [begun.acquire() for _ in range(WORKERS)])
    for task in hung:
        task.cancel()
    assert all(isinstance(end, asyncio.CancelledError) for end in await asyncio.gather(*hung, return_exceptions=True))
    late = [asyncio.create_task(run_in_worker(ran.append, name)) for name in ("cancelled", "kept")]
    for _ in range(10):
        await asyncio.sleep(0)
    assert ran == []
    late[0].cancel()
    release.set()
    await late[1]
    assert ran == ["kept"]
    assert late[0].cancelled()


def test_a_call_cancelled_at_any_suspension_gives_its_place_back() -> None:
    calls: list[int] = []
    limiters: list[CapacityLimiter] = []

    async def operation() -> None:
        limiters.append(CapacityLimiter(1))
        await run_in_worker(calls.append, 1, limiter=limiters[-1])

    async def afterwards() -> None:
        await run_in_worker(lambda: None, limiter=limiters[-1])  # would wait for ever for a lost place
        assert limiters[-1].borrowed_tokens == 0

    runs = list(each_cancellation(operation, afterwards=afterwards))
    assert {by for by, _, cancelled in runs if cancelled} == set(Cancellation)
    assert len(calls) >= len(Cancellation)


def test_a_call_may_outlive_its_event_loop() -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    def outlive() -> None:
        begun.set()
        release.wait()
        ended.set()

    async def leave() -> None:
        task = asyncio.create_task(run_in_worker(outlive))
        await anyio.to_thread.run_sync(begun.wait)
        task.cancel()

    asyncio.run(leave())
    release.set()
    assert ended.wait(60)


@pytest.mark.anyio
async def test_an_error_of_the_function_is_raised_as_it_is() -> None:
    error = KeyError("key")

    def fail() -> None:
        raise error

    with pytest.raises(KeyError) as caught:
        await run_in_worker(fail)
    assert caught.value is error


@pytest.mark.anyio
async def test_a_caller_may_bring_a_limiter() -> None:
    limiter = CapacityLimiter(1)
    assert await run_in_worker(lambda: limiter.borrowed_tokens, limiter=limiter) == 1
    assert limiter.borrowed_tokens == 0


def test_workers_serve_one_event_loop_after_another() -> None:
    for _ in range(3):
        assert asyncio.run(run_in_worker(lambda: "done")) == "done"


@pytest.mark.anyio
async def test_a_clean_up_runs_in_a_task_that_is_not_cancelled() -> None:
    """Timeouts of libraries in a cancelled task end at once what they are put around, in some versions of Python."""
    cancellations: list[int] = []

    async def tidy() -> None:
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        cancellations.append(task.cancelling())

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await clean_up(tidy, seconds=10)
            raise

    running = asyncio.create_task(work())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert cancellations == [0]


@pytest.mark.anyio
async def test_a_clean_up_that_takes_too_long_is_given_up() -> None:
    await clean_up(lambda: asyncio.sleep(60), seconds=0.01)


@pytest.mark.anyio
async def test_the_error_of_a_clean_up_is_raised_as_it_is() -> None:
    async def tidy() -> None:
        raise OSError(5, "no")

    with pytest.raises(OSError, match="no"):
        await clean_up(tidy, seconds=10)


@pytest.mark.anyio
async def test_what_is_seen_through_begins_anew_after_each_cancellation() -> None:
    begun: list[int] = []

    async def work() -> str:
        begun.append(len(begun))
        await asyncio.sleep(0.001)
        return "done"

    async def own() -> tuple[str | None, int]:
        task = asyncio.current_task()
        assert task is not None
        return await see_through(work, seconds=20), task.cancelling()

    task = asyncio.create_task(own())
    for number in range(1, 4):
        while len(begun) < number:  # noqa: ASYNC110 - it begins in its own time
            await asyncio.sleep(0)
        task.cancel()
    assert await task == ("done", 0)
    assert len(begun) == 4


@pytest.mark.anyio
async def test_seeing_through_ends_when_its_time_is_over_and_not_with_a_scope_around_it() -> None:
    reached: list[str | None] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        reached.append(await see_through(lambda: asyncio.sleep(0, "done"), seconds=20))
        reached.append(await see_through(lambda: asyncio.sleep(3600, "done"), seconds=0.01))
    assert reached == ["done", None]
