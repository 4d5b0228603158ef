import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from haybaler.per_loop import PerLoop
from haybaler.workers import run_in_worker


class Client:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()


def test_each_event_loop_has_its_own_object() -> None:
    clients = PerLoop(Client)

    async def same() -> Client:
        assert clients.get() is clients.get()
        assert clients.get().loop is asyncio.get_running_loop()
        return clients.get()

    assert asyncio.run(same()) is not asyncio.run(same())


def test_event_loops_in_many_threads_at_once_have_their_own_objects() -> None:
    clients = PerLoop(Client)
    barrier = threading.Barrier(8)

    async def use() -> bool:
        client = clients.get()
        await run_in_worker(barrier.wait)  # every loop has its object now
        return clients.get() is client and client.loop is asyncio.get_running_loop()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda _: asyncio.run(use()), range(8))) == [True] * 8


def test_a_popped_object_is_made_anew() -> None:
    clients = PerLoop(Client)

    async def use() -> None:
        assert clients.pop() is None
        client = clients.get()
        assert clients.pop() is client
        assert clients.pop() is None
        assert clients.get() is not client

    asyncio.run(use())


def test_an_object_that_refers_to_its_loop_is_forgotten_once_that_loop_is_closed() -> None:
    clients = PerLoop(Client)

    async def use() -> "weakref.ref[Client]":
        return weakref.ref(clients.get())

    first = asyncio.run(use())
    asyncio.run(use())
    gc.collect()
    assert first() is None


@pytest.mark.parametrize("notices", ["get", "pop", "forget_closed_loops"])
def test_what_a_closed_loop_has_left_is_handed_over_as_soon_as_somebody_notices(notices: str) -> None:
    left: list[Client] = []
    clients = PerLoop(Client, forget=left.append)

    async def use() -> Client:
        return clients.get()

    async def notice() -> None:
        getattr(clients, notices)()

    async def go_on() -> None:
        clients.get()
        second = await run_in_worker(asyncio.run, use())
        assert second not in left
        await notice()
        assert left.count(second) == 1

    first = asyncio.run(use())
    assert left == []
    asyncio.run(notice())
    assert left == [first]
    asyncio.run(go_on())
    assert left.count(first) == 1


def test_a_factory_that_fails_is_asked_again() -> None:
    attempts: list[int] = []

    def fail_once() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError
        return "client"

    clients = PerLoop(fail_once)

    async def use() -> str:
        with pytest.raises(ConnectionError):
            clients.get()
        return clients.get()

    assert asyncio.run(use()) == "client"
