"""A real server is killed and comes back, and real entries expire."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.services.redis_servers import RedisServer, redis_server
from tests.stores.wrappers.around import encrypted
from tests.stores.wrappers.conftest import Check

from haybaler import (
    CircuitBreakerStore,
    CompressedStore,
    ContentAddressedStore,
    FallbackStore,
    ReferenceNotFoundError,
    RetryingStore,
    StoreEntry,
    StoreUnavailableError,
)
from haybaler.errors import StoreCircuitOpenError
from haybaler.testing.access import Access
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_redis import RedisToolResultStore

TEXT = "Revenue grew by 4 % in every region. " * 1_000


@pytest.fixture(scope="module")
def running() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def server(running: RedisServer) -> Iterator[RedisServer]:
    """A server that a test may kill."""
    yield running
    running.process.kill()
    running.process.start()


def redis(server: RedisServer, prefix: str) -> RedisToolResultStore:
    return RedisToolResultStore(server.url, prefix=prefix, retries=0, connect_timeout=1, timeout=1, ttl=600)


def test_retries_outlast_a_restart(check: Check, server: RedisServer, prefix: str) -> None:
    store = RetryingStore(redis(server, prefix), attempts=100, wait_initial=0.05, wait_max=0.1)

    def start_later() -> None:
        time.sleep(0.2)
        server.process.start()

    restart = threading.Thread(target=start_later)

    async def law(access: Access) -> None:
        await access.write("before", "before")
        await access.outside(server.process.kill)
        restart.start()
        outcomes = await access.write_many([StoreEntry(str(number), TEXT) for number in range(20)])
        assert outcomes == [store.reference(str(number)) for number in range(20)]
        assert await access.read(store.reference("19")) == TEXT
        with pytest.raises(ReferenceNotFoundError):  # the server has lost it, and says so
            await access.read(store.reference("before"))
        await access.outside(restart.join)

    check(store, law)


def test_a_dead_server_is_left_alone_and_found_again(check: Check, server: RedisServer, prefix: str) -> None:
    now = [0.0]
    store = CircuitBreakerStore(redis(server, prefix), failure_threshold=2, recovery_timeout=30, clock=lambda: now[0])

    async def law(access: Access) -> None:
        await access.outside(server.process.kill)
        for _ in range(2):
            with pytest.raises(StoreUnavailableError):
                await access.write("key", "content")
        # It runs again, and is still left alone: nobody asks.
        await access.outside(server.process.start)
        connections = await access.outside(server.connections)
        for _ in range(100):
            with pytest.raises(StoreCircuitOpenError):
                await access.write("key", "content")
        assert await access.outside(server.connections) == connections
        now[0] = 30
        assert await access.read(await access.write("key", "content")) == "content"
        assert not store.is_open

    check(store, law)


@pytest.mark.usefixtures("environment")
def test_a_ladder_goes_on_without_the_server_and_loses_nothing(
    check: Check, server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    now = [0.0]
    breaker = CircuitBreakerStore(
        RetryingStore(redis(server, prefix), attempts=2, wait_initial=0),
        failure_threshold=1,
        recovery_timeout=30,
        clock=lambda: now[0],
    )
    files = FileSystemToolResultStore(tmp_path, references="relative")
    store = CompressedStore(encrypted(FallbackStore(breaker, files)))
    written: dict[str, str] = {}

    async def write(access: Access, name: str) -> None:
        contents = {f"{name} {number}": f"{number} {TEXT}" for number in range(5)}
        outcomes = await access.write_many([StoreEntry(key, content) for key, content in contents.items()])
        assert outcomes == [store.reference(key) for key in contents]
        written.update(zip(map(str, outcomes), contents.values(), strict=True))

    async def law(access: Access) -> None:
        await write(access, "before")
        in_redis = dict(written)
        await access.outside(server.process.kill)
        await write(access, "during")
        assert breaker.is_open
        for reference, content in written.items():
            if reference in in_redis:
                with pytest.raises(StoreUnavailableError):  # it is there, and nobody says that it is not
                    await access.read(reference)
            else:
                assert await access.read(reference) == content
        await access.outside(server.process.start)
        await write(access, "later")  # still into the files
        now[0] = 30
        await write(access, "after")
        for reference in in_redis:  # a restart without persistence is a loss, not an outage
            with pytest.raises(ReferenceNotFoundError):
                await access.read(reference)
            del written[reference]
        for reference, content in written.items():
            assert await access.read(reference) == content
        await access.delete(list(written))
        for reference in written:
            with pytest.raises(ReferenceNotFoundError):
                await access.read(reference)

    check(store, law)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_what_an_entry_shares_lives_as_long_as_the_entry_does(check: Check, running: RedisServer, prefix: str) -> None:
    store = ContentAddressedStore(redis(running, prefix))

    def keys() -> list[bytes]:
        return list(running.client.scan_iter(match=f"*{prefix}*", count=1_000))

    def age() -> None:
        for key in keys():
            running.client.expire(key, 60)

    def renewed() -> set[str]:
        """Return what is to live longer than that: the end of the names."""
        names = [key.decode() for key in keys() if running.client.ttl(key) > 60]
        return {name.rpartition("/")[2].partition(".")[2] for name in names}

    async def law(access: Access) -> None:
        references = [await access.write(str(number), TEXT) for number in range(6)]
        for read in (0, 5):
            await access.outside(age)
            await access.read(references[read])
            marks = {f"held-{read}", *({"level-1"} if read > 3 else ())}
            assert await access.outside(renewed) == {"", "content", *marks}
        await access.delete(references)
        assert await access.outside(keys) == []

    check(store, law)
