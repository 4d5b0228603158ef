"""A server that has too much to do gets less at once, and later as much as before."""

import asyncio
from typing import Any

import pytest
from tests.services.s3_faults import WELL, Answer, faulty_s3

from haybaler_s3 import S3ToolResultStore
from haybaler_s3.pacing import CONTENT, SETTLING, Turns

pytestmark = pytest.mark.usefixtures("s3_environment")


@pytest.mark.parametrize("attempts", [1, 3], ids=["failing", "repeated by the client"])
@pytest.mark.parametrize("answer", [Answer(503, "SlowDown"), Answer(429, "TooManyRequests")], ids=lambda a: a.code)
def test_row_45_a_server_that_asks_to_slow_down_gets_half_as_many_requests_at_once(
    answer: Answer, attempts: int
) -> None:
    with faulty_s3(PUT=[answer] * 3 + [WELL]) as server:
        store = S3ToolResultStore("bucket", endpoint_url=server.endpoint, max_concurrency=16, attempts=attempts)

        async def write(count: int) -> list[Any]:
            writes = (store.write_async(key=str(number), content="content") for number in range(count))
            return await asyncio.gather(*writes, return_exceptions=True)

        async def use() -> None:
            async with store:
                await write(3)
                server.delay, server.most = 0.05, 0
                assert not [outcome for outcome in await write(100) if isinstance(outcome, Exception)]
                assert server.most == 8

        asyncio.run(use())


def test_row_45_the_limit_halves_once_for_each_burst_and_doubles_when_the_server_is_content() -> None:
    now = 0.0

    async def use() -> None:
        nonlocal now
        turns = Turns(20, lambda: now)
        for seconds, slow_down, limit in [
            (0, False, 20),
            (0, True, 10),
            (0, True, 10),
            (SETTLING, True, 5),
            (SETTLING, True, 2),
            (SETTLING, True, 1),
            (SETTLING, True, 1),
            (SETTLING, False, 1),
            (CONTENT, False, 2),
            (0, False, 2),
            (CONTENT, False, 4),
            (CONTENT, False, 8),
            (CONTENT, False, 16),
            (CONTENT, False, 20),
            (CONTENT, False, 20),
        ]:
            now += seconds
            turns.heard(slow_down=slow_down)
            assert turns.limit == limit

    asyncio.run(use())


def test_row_45_a_lower_limit_holds_for_those_who_wait_already_and_a_higher_one_lets_them_in() -> None:
    async def use() -> None:
        turns, end = Turns(4), asyncio.Event()
        inside = most = 0

        async def work() -> None:
            nonlocal inside, most
            async with turns.taken():
                inside += 1
                most = max(most, inside)
                await end.wait()
                await asyncio.sleep(0)
                inside -= 1

        tasks = [asyncio.create_task(work()) for _ in range(20)]
        await asyncio.sleep(0)
        turns.heard(slow_down=True)
        assert (inside, most) == (4, 4)
        end.set()
        await asyncio.gather(*tasks[:4])
        most = inside
        await asyncio.gather(*tasks)
        assert most == 2

    asyncio.run(use())
