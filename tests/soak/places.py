"""The stores, with the servers behind them, and what happens to those."""

import asyncio
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import redis
from botocore.exceptions import ClientError
from tests.services.processes import ServerProcess
from tests.services.redis_servers import RedisServer, redis_server
from tests.services.s3_servers import S3Server, s3_server

from haybaler.stores.base import BaseToolResultStore
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_redis import RedisToolResultStore
from haybaler_s3 import S3ToolResultStore

# Seconds after the end of a disturbance in which a call may still fail for it.
AFTERMATH = 2.0
PAUSE = (4.0, 12.0)  # seconds between two disturbances

Disturbance = Callable[["Place", Random], Awaitable[None]]


@dataclass
class Place:
    """
    One store.

    :param name: What it is called here.
    :param store: The store.
    :param entries: Names what lies in it, leftovers of any kind included.
    :param connections: Counts its connections.
    :param disturbances: What happens to its server.
    """

    name: str
    store: BaseToolResultStore
    entries: Callable[[], list[str]]
    connections: Callable[[], int] = lambda: 0
    disturbances: dict[str, Disturbance] = field(default_factory=dict)
    disturbed: list[tuple[float, float]] = field(default_factory=list)

    @contextmanager
    def disturbance(self) -> Iterator[None]:
        """Note that the server may not answer inside the block."""
        begun = time.monotonic()
        self.disturbed.append((begun, float("inf")))
        try:
            yield
        finally:
            self.disturbed[-1] = (begun, time.monotonic() + AFTERMATH)

    def was_disturbed(self, since: float) -> bool:
        """Whether the server may have been away at any time since then."""
        return any(end >= since for _, end in self.disturbed)

    async def disturb(self, random: Random, did: Callable[[str], None], go_on: Callable[[], bool]) -> None:
        """
        Disturb the server now and then.

        :param random: When and how.
        :param did: Told of each disturbance.
        :param go_on: Says for how long.
        """
        while self.disturbances and go_on():
            await asyncio.sleep(random.uniform(*PAUSE))
            name = random.choice(list(self.disturbances))
            with self.disturbance():
                await self.disturbances[name](self, random)
            did(f"{self.name}: {name}")


@contextmanager
def files() -> Iterator[Place]:
    """Keep results in files."""
    with tempfile.TemporaryDirectory(prefix="haybaler-soak-") as folder:
        root = Path(folder)
        yield Place(
            "files",
            FileSystemToolResultStore(root / "results", references="relative"),
            entries=lambda: [str(path) for path in root.rglob("*") if path.is_file() or path.is_symlink()],
        )


@contextmanager
def valkey() -> Iterator[Place]:
    """Keep results in Valkey, which restarts, crashes, hangs and cuts its connections, but loses nothing."""
    with redis_server(lasting=True) as server:
        yield Place(
            "redis",
            RedisToolResultStore(server.url, timeout=10),
            entries=lambda: [f"{key}, ttl {server.client.ttl(key)} s" for key in server.client.scan_iter()],
            connections=server.connections,
            disturbances={
                "restarted": partial(_restart, server),
                "crashed": partial(_crash, server),
                "hung": partial(_hang, server.process),
                "connections cut": partial(_cut, server),
            },
        )


@contextmanager
def s3() -> Iterator[Place]:
    """Keep results in an S3 server, which hangs now and then. It keeps metadata in memory, so it is not restarted."""
    with s3_server() as server:
        yield Place(
            "s3",
            S3ToolResultStore("haybaler-test", endpoint_url=server.endpoint, multipart_bytes=5 * 1024 * 1024),
            entries=lambda: server.keys() + _uploads(server),
            disturbances={"hung": partial(_hang_s3, server)},
        )


PLACES = {"files": files, "redis": valkey, "s3": s3}


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[None]:
    """Open a store, and close what synchronous callers opened as well."""
    async with place.store:
        yield
    await asyncio.to_thread(place.store.close)


async def _restart(server: RedisServer, place: Place, random: Random) -> None:
    """Stop it in order."""
    await asyncio.to_thread(_shut_down, server)
    await _start(server, random)


def _shut_down(server: RedisServer) -> None:
    with suppress(redis.ConnectionError):
        server.client.shutdown()
    server.process.wait()


async def _crash(server: RedisServer, place: Place, random: Random) -> None:
    server.process.kill()
    await _start(server, random)


async def _start(server: RedisServer, random: Random) -> None:
    await asyncio.sleep(random.uniform(0, 1.0))
    await asyncio.to_thread(server.process.start)


async def _hang(process: ServerProcess, place: Place, random: Random) -> None:
    process.send(signal.SIGSTOP)
    try:
        await asyncio.sleep(random.uniform(0.1, 2.0))
    finally:
        process.send(signal.SIGCONT)


def _uploads(server: S3Server) -> list[str]:
    try:
        return server.uploads()
    except ClientError as error:  # rclone's way to say that there is none
        if error.response["Error"]["Code"] == "NoSuchUpload":
            return []
        raise


async def _hang_s3(server: S3Server, place: Place, random: Random) -> None:
    await _hang(server.process, place, random)


async def _cut(server: RedisServer, place: Place, random: Random) -> None:
    client: Any = server.client
    await asyncio.to_thread(client.execute_command, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
