"""The places in which stores of each backend keep their entries, and what really stands there; as fixtures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from haystack.utils import Secret
from tests.services.redis_servers import RedisServer
from tests.services.s3_servers import BUCKET, S3Server

from haybaler import CompressedStore, EncryptedStore, InMemoryToolResultStore
from haybaler.workers import run_in_worker
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_redis import RedisToolResultStore
from haybaler_s3 import S3ToolResultStore


@dataclass(frozen=True, slots=True)
class Place:
    """
    A store of one backend, and the view of it from outside.

    :param store: The store.
    :param start: What the name of everything begins with that it keeps.
    :param names: Returns the names of everything that stands where the store could reach.
    """

    store: Any
    start: str
    names: Callable[[], list[str]]

    async def everything(self) -> list[str]:
        """Return the names of everything, sorted."""
        return sorted(await run_in_worker(self.names))

    async def outside(self, scope: Any) -> list[str]:
        """Return what stands elsewhere than in a scope."""
        while hasattr(scope, "store"):  # a wrapper
            scope = scope.store
        start = self.start + scope._scope_path
        return [name for name in await self.everything() if not name.startswith(start)]


BACKENDS = ("memory", "wrapped memory", "files", "relative files", "redis", "s3")


@pytest.fixture(params=BACKENDS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place of each backend in turn, empty at the beginning; one server serves a whole module."""
    made: Place = request.getfixturevalue(f"place_in_{request.param.split()[-1]}")
    yield made
    made.store.close()


@pytest.fixture
def place_in_memory(request: pytest.FixtureRequest) -> Place:
    memory = InMemoryToolResultStore()
    names: Callable[[], list[str]] = lambda: list(memory._entries)  # noqa: E731
    if "wrapped" not in request.node.name:
        return Place(memory, "", names)
    keys = [Secret.from_token(EncryptedStore.generate_key())]
    return Place(CompressedStore(EncryptedStore(memory, keys=keys)), "", names)


@pytest.fixture
def place_in_files(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    relative = "relative" in request.node.name
    root = tmp_path / "place" / "root"
    store = FileSystemToolResultStore(root, references="relative" if relative else "absolute")
    return Place(store, "root/", lambda: _files(tmp_path / "place"))


def _files(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()]


@pytest.fixture
def place_in_redis(valkey: RedisServer, prefix: str) -> Place:
    valkey.client.flushall()
    store = RedisToolResultStore(valkey.url, prefix=prefix, ttl=600)
    return Place(store, f"{prefix}:", lambda: [key.decode() for key in valkey.client.keys("*")])


@pytest.fixture
def place_in_s3(rclone: S3Server, prefix: str, s3_environment: None) -> Place:
    for key in rclone.keys(""):
        rclone.client.delete_object(Bucket=BUCKET, Key=key)
    store = S3ToolResultStore(BUCKET, prefix=prefix, endpoint_url=rclone.endpoint)
    return Place(store, f"{prefix}/", rclone.keys)
