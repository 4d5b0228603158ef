"""The soak itself: a warm-up, a first look at what is held, the same for longer, and a second look."""

import asyncio
import itertools
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from random import Random

from tests.soak.agents import agent
from tests.soak.findings import Findings
from tests.soak.places import Place, opened
from tests.soak.resources import Figures, held
from tests.soak.users import User

WARM_UP = 0.25  # of the time; then caches, pools and allocators have their size
THREADS = 4  # for what users do outside of the event loop


async def soak(
    places: Sequence[Place], findings: Findings, seconds: float, users: int, seed: int
) -> tuple[Figures, Figures]:
    """
    Let users come and go.

    :param places: The stores.
    :param findings: Where everything is noted.
    :param seconds: How long.
    :param users: How many of each store at once.
    :param seed: What they do depends on it.
    :returns: What was held after the warm-up, and at the end; nobody was there then, and the stores were open.
    """
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: findings.fault(f"asyncio: {context['message']}", context.get("exception"))
    )
    numbers = itertools.count()
    with ThreadPoolExecutor(THREADS, thread_name_prefix="soak") as threads:
        async with AsyncExitStack() as stack:
            for place in places:
                await stack.enter_async_context(opened(place))
            looks: list[Figures] = []
            for duration in (seconds * WARM_UP, seconds * (1 - WARM_UP)):
                names = (f"user {seed}-{number}" for number in numbers)
                await _crowds(places, findings, threads, names, users=users, end=time.monotonic() + duration)
                looks.append(held(places))
    return looks[0], looks[1]


async def _crowds(
    places: Sequence[Place], findings: Findings, threads: Executor, names: Iterator[str], *, users: int, end: float
) -> None:
    def going_on() -> bool:
        return time.monotonic() < end

    async def come_and_go(place: Place) -> None:
        shared = agent(place, findings)
        present: set[User] = set()

        async def seat() -> None:
            while going_on():
                user = User(next(names), place, shared, findings, threads)
                present.add(user)
                for other in list(present - {user})[:1]:
                    await other.refused_to(user)
                await user.live(going_on)
                present.remove(user)

        disturbing = asyncio.create_task(place.disturb(Random(next(names)), findings.did, going_on))
        await asyncio.gather(*(seat() for _ in range(users)))
        await disturbing

    await asyncio.gather(*map(come_and_go, places))
