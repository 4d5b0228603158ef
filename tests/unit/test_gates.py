"""Threads and tasks of any event loop wait for something that happens once."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from haybaler.gates import Gate


def test_whoever_waits_goes_on_when_it_is_opened_and_whoever_comes_later_does_not_wait() -> None:
    gate = Gate()
    ready = threading.Barrier(5)

    def wait() -> bool:
        ready.wait()
        return gate.wait(10)

    def wait_in_a_loop() -> bool:
        async def waiting() -> bool:
            await asyncio.sleep(0)
            return await gate.wait_async(10)

        ready.wait()
        return asyncio.run(waiting())

    with ThreadPoolExecutor(4) as pool:
        waiters = [pool.submit(function) for function in (wait, wait, wait_in_a_loop, wait_in_a_loop)]
        ready.wait()
        gate.open()
        assert [waiter.result() for waiter in waiters] == [True] * 4
    assert gate.wait(0)
    assert asyncio.run(gate.wait_async(0))
    gate.open()


def test_waiting_ends_after_its_time() -> None:
    gate = Gate()
    assert not gate.wait(0.01)
    assert not asyncio.run(gate.wait_async(0.01))
    gate.open()  # the loop that waited is closed, and nobody minds


@pytest.mark.anyio
async def test_a_cancelled_task_waits_no_longer() -> None:
    gate = Gate()
    task = asyncio.create_task(gate.wait_async())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open()
