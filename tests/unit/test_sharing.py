"""One attempt for all who ask for it meanwhile, whether tasks or threads."""

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from haybaler.effects import Effect, Steps, await_effect, perform, perform_async
from haybaler.sharing import AsyncShared, SharedSteps, SyncShared


@pytest.mark.anyio
async def test_an_attempt_whose_caller_is_cancelled_is_begun_anew_and_ends_for_all() -> None:
    shared: AsyncShared[int] = AsyncShared()
    begun, go_on = 0, asyncio.Event()

    async def act() -> int:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return begun

    tasks = [asyncio.ensure_future(shared.run(act)) for _ in range(4)]
    await asyncio.sleep(0)
    tasks[0].cancel()  # who does it
    tasks[3].cancel()  # who waits
    for _ in range(5):
        await asyncio.sleep(0)
    go_on.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results[1:3] == [2, 2]
    assert [type(result) for result in (results[0], results[3])] == [asyncio.CancelledError] * 2
    assert await shared.run(act) == 3


def test_an_attempt_that_is_interrupted_in_its_thread_is_begun_anew_and_its_failure_is_shared() -> None:
    shared: SyncShared[int] = SyncShared()
    begun: list[str] = []
    waiting = threading.Barrier(4)

    def interrupted() -> int:
        begun.append("interrupted")
        waiting.wait()
        time.sleep(0.1)  # meanwhile the others come
        raise KeyboardInterrupt

    def fail() -> int:
        begun.append("fail")
        time.sleep(0.2)
        raise ValueError(len(begun))

    def wait() -> object:
        waiting.wait()
        try:
            return shared.run(fail)
        except ValueError as error:
            return error.args

    with ThreadPoolExecutor(4) as pool:
        one = pool.submit(shared.run, interrupted)
        while not begun:
            time.sleep(0.001)
        others = [pool.submit(wait) for _ in range(3)]
        assert isinstance(one.exception(), KeyboardInterrupt)
        assert {other.result() for other in others} == {(2,)}
    shared.settle()
    assert begun == ["interrupted", "fail"]


class Attempt:
    """Steps that wait to be allowed to end, and how often they were begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Event()

    def steps(self, name: str) -> Steps[int]:
        self.begun.append(name)
        number = len(self.begun)
        yield from await_effect(Effect(self._wait, self._wait_async))
        return number

    def _wait(self) -> None:
        assert self.may_end.wait(10)

    async def _wait_async(self) -> None:
        while not self.may_end.is_set():  # noqa: ASYNC110 - an event for threads, too
            await asyncio.sleep(0.001)


@pytest.mark.anyio
async def test_tasks_share_steps_under_one_name_and_leave_nothing_behind() -> None:
    shared: SharedSteps[int] = SharedSteps()
    attempt = Attempt()
    asking = [
        asyncio.create_task(perform_async(shared.run(name, lambda name=name: attempt.steps(name))))  # type: ignore[misc]
        for name in "aabab"
    ]
    await asyncio.sleep(0.01)
    attempt.may_end.set()
    assert await asyncio.gather(*asking) == [1, 1, 2, 1, 2]
    assert attempt.begun == ["a", "b"]
    assert await perform_async(shared.run("a", lambda: attempt.steps("a"))) == 3
    del asking
    gc.collect()
    assert len(shared._of_tasks.get()) == 0


def test_threads_share_steps_under_one_name_and_leave_nothing_behind() -> None:
    shared: SharedSteps[int] = SharedSteps()
    attempt = Attempt()
    with ThreadPoolExecutor(5) as pool:
        asking = [pool.submit(perform, shared.run(name, lambda name=name: attempt.steps(name))) for name in "aabab"]  # type: ignore[misc]
        while not all(each.running() for each in asking):
            time.sleep(0.001)
        time.sleep(0.2)  # until each of them waits
        attempt.may_end.set()
        results = [each.result() for each in asking]
    assert sorted(attempt.begun) == ["a", "b"]
    assert [results[0] == other for other in results] == [True, True, False, True, False]
    gc.collect()
    assert len(shared._of_threads) == 0


@pytest.mark.anyio
async def test_a_thread_never_waits_for_a_task_which_could_not_go_on() -> None:
    shared: SharedSteps[int] = SharedSteps()
    attempt = Attempt()
    task = asyncio.create_task(perform_async(shared.run("a", lambda: attempt.steps("a"))))
    await asyncio.sleep(0)
    attempt.may_end.set()
    assert perform(shared.run("a", lambda: attempt.steps("a"))) == 2
    assert await task == 1


def test_the_loops_of_two_threads_do_not_wait_for_each_other() -> None:
    shared: SharedSteps[int] = SharedSteps()
    attempt = Attempt()
    attempt.may_end.set()
    hanging = Attempt()

    async def hang() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await perform_async(shared.run("a", lambda: hanging.steps("a")))

    async def ask() -> int:
        return await perform_async(shared.run("a", lambda: attempt.steps("a")))

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(asyncio.run, hang())
        while not hanging.begun:
            time.sleep(0.001)
        assert asyncio.run(ask()) == 1
        other.result()
