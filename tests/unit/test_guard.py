"""The guard of the test run itself."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
from blockbuster import BlockingError

from haybaler.workers import run_in_worker


@pytest.mark.anyio
async def test_an_async_test_that_blocks_is_refused() -> None:
    with pytest.raises(BlockingError):
        time.sleep(0.001)  # noqa: ASYNC251 - what the guard is for


def test_a_loop_that_a_test_starts_itself_is_guarded_too(tmp_path: Path) -> None:
    async def block() -> None:
        (tmp_path / "file").read_text()

    (tmp_path / "file").write_text("content")
    with pytest.raises(BlockingError):
        asyncio.run(block())


@pytest.mark.anyio
async def test_worker_threads_may_block() -> None:
    lock = threading.Lock()
    lock.acquire()
    waiting = asyncio.create_task(run_in_worker(lock.acquire))
    await run_in_worker(time.sleep, 0.001)
    lock.release()
    assert await waiting
