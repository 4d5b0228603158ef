"""What happens to stores behind the ladder for failure, when the server in it goes away and comes back."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from haystack.utils import Secret
from tests.faults.injection.faults import Fault, Place
from tests.faults.injection.redis_places import TIMEOUT
from tests.services.redis_servers import redis_server

from haybaler import CircuitBreakerStore, CompressedStore, EncryptedStore, FallbackStore, RetryingStore, TieredStore
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_redis import RedisToolResultStore

RECOVERY = 0.2  # seconds until a circuit breaker asks again

Ladder = Callable[[RedisToolResultStore, FileSystemToolResultStore], Any]


def _fallback(redis: RedisToolResultStore, files: FileSystemToolResultStore) -> Any:
    return FallbackStore(CircuitBreakerStore(redis, recovery_timeout=RECOVERY), files)


def _all_of_it(redis: RedisToolResultStore, files: FileSystemToolResultStore) -> Any:
    retrying = RetryingStore(redis, attempts=2, timeout=2 * TIMEOUT, wait_initial=0.01)
    ladder = FallbackStore(CircuitBreakerStore(retrying, recovery_timeout=RECOVERY), files)
    keys = [Secret.from_token(EncryptedStore.generate_key())]
    return CompressedStore(EncryptedStore(ladder, keys=keys))


def _tiers(redis: RedisToolResultStore, files: FileSystemToolResultStore) -> Any:
    return TieredStore(CircuitBreakerStore(redis, recovery_timeout=RECOVERY), files, threshold=5_000)


@contextmanager
def _without_server(ladder: Ladder) -> Iterator[Place]:
    """The server is killed, and comes back when the runs are over."""
    with redis_server(lasting=True) as server, tempfile.TemporaryDirectory(prefix="haybaler-") as folder:
        redis = RedisToolResultStore(server.url, timeout=TIMEOUT, connect_timeout=TIMEOUT, retries=1)
        store = ladder(redis, FileSystemToolResultStore(folder))
        yield Place(store, lambda _: server.process.kill(), server.process.start)


# Until the circuit breaker opens, each step takes two attempts to connect, which fail at once.
LADDER_FAULTS = [
    Fault("Redis, or files", "killed, back later", partial(_without_server, _fallback), delay=3.0),
    Fault("all wrappers", "killed, back later", partial(_without_server, _all_of_it), delay=3.0),
    Fault("Redis and files", "killed, back later", partial(_without_server, _tiers), delay=3.0),
]
