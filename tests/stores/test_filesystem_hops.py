"""How a batch is cut into hops, and the threads that run them."""

import asyncio
import subprocess
import sys
from pathlib import Path
from threading import Event, current_thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybaler_filesystem.hops import HOP_BYTES, HOP_ENTRIES, split_hops
from haybaler_filesystem.pool import WorkerPool


@given(st.lists(st.integers(0, 2 * HOP_BYTES), max_size=40), st.integers(1, 6))
def test_hops_cover_the_batch_in_order_within_the_bounds(sizes: list[int], at_least: int) -> None:
    hops = [sizes[hop] for hop in split_hops(sizes, at_least=at_least)]
    assert [size for hop in hops for size in hop] == sizes
    assert all(hop for hop in hops)
    assert all(sum(hop) <= HOP_BYTES or len(hop) == 1 for hop in hops)
    assert all(len(hop) <= max(1, -(-len(sizes) // at_least)) for hop in hops)


def test_a_batch_of_small_entries_needs_few_hops() -> None:
    hops = list(split_hops([1] * 1000))
    assert [hop.stop - hop.start for hop in hops] == [HOP_ENTRIES] * 3 + [1000 - 3 * HOP_ENTRIES]


def test_a_batch_is_spread_over_as_many_hops_as_are_asked_for() -> None:
    assert [hop.stop - hop.start for hop in split_hops([1] * 10, at_least=4)] == [3, 3, 3, 1]
    assert [hop.stop - hop.start for hop in split_hops([1, 1], at_least=4)] == [1, 1]


@pytest.mark.anyio
async def test_a_job_has_ended_before_its_cancellation_is_seen_however_often_it_comes() -> None:
    pool = WorkerPool(1)
    stop, begun, may_end, ended = Event(), Event(), Event(), Event()

    def job() -> None:
        begun.set()
        may_end.wait()
        ended.set()

    task = asyncio.create_task(pool.run(job, stop=stop))
    await asyncio.wrap_future(WorkerPool(1).submit(begun.wait))
    for _ in range(3):
        task.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not task.done()
        assert stop.is_set()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.anyio
async def test_a_job_that_waits_for_a_thread_never_begins_after_its_cancellation() -> None:
    pool = WorkerPool(1)
    may_end, late = Event(), Event()
    first = asyncio.create_task(pool.run(may_end.wait, stop=Event()))
    await asyncio.sleep(0)
    second = asyncio.create_task(pool.run(late.set, stop=Event()))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    may_end.set()
    await first
    await pool.run(list, stop=Event())
    assert not late.is_set()


def test_a_pool_is_bounded_and_opens_again_after_its_end() -> None:
    pool = WorkerPool(2)
    for _ in range(3):
        threads = {job.result() for job in [pool.submit(current_thread) for _ in range(50)]}
        assert len(threads) <= 2
        pool.shutdown(wait=True)
        assert not any(thread.is_alive() for thread in threads)
        pool.shutdown()


def test_a_forked_child_has_threads_of_its_own(tmp_path: Path) -> None:
    script = """
import asyncio, os, signal, sys
from haybaler_filesystem import FileSystemToolResultStore
store = FileSystemToolResultStore(sys.argv[1])
asyncio.run(store.write_async(key="parent", content="parent"))
child = os.fork()
if not child:
    signal.alarm(20)
    asyncio.run(store.write_async(key="child", content="child"))
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(tmp_path)], check=True)
    assert (tmp_path / "child").read_text() == "child"
