"""The clients of a store: one for each event loop and one for all threads without, or the one that was given."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import redis
import redis.asyncio as aioredis

from haybaler.effects import Effect
from haybaler.errors import AsyncOnlyStoreError, ConfigurationError
from haybaler.per_loop import PerLoop
from haybaler.sharing import SyncShared
from haybaler.workers import run_in_worker
from haybaler_redis.connecting import Opened, keep, open_async, open_sync
from haybaler_redis.connections import keeps_one
from haybaler_redis.exchange import is_cluster, node_of
from haybaler_redis.features import Features, probe
from haybaler_redis.limits import largest
from haybaler_redis.links import AsyncLink, Request, SyncLink
from haybaler_redis.settings import Settings

R = TypeVar("R")

_ASYNC = (aioredis.Redis, aioredis.RedisCluster)
_SYNC = (redis.Redis, redis.RedisCluster)
# Connections of a client that says nothing else, by redis-py.
_MOST_BY_DEFAULT = 100


class Clients:
    """
    Opens clients when they are first used, and lends them out.

    :param make_async: Makes a client for the running loop; None if there is none in this colour.
    :param make_sync: Makes a client for threads without a loop; None if there is none in this colour.
    :param clustered: Whether they are clients of a cluster.
    :param limit: The most requests in flight in each loop, and in all threads without one.
    :param wait: Seconds to wait for a turn.
    :param announce: Told, once, what is known about the server.
    """

    def __init__(
        self,
        make_async: Callable[[], Opened[Awaitable[None]]] | None,
        make_sync: Callable[[], Opened[None]] | None,
        *,
        clustered: bool,
        limit: int,
        wait: float,
        announce: Callable[[Features], None],
    ) -> None:
        self.clustered = clustered
        self._make_async = make_async
        self._make_sync = make_sync
        self.limit = limit
        self._wait = wait
        self._announce = announce
        self._async: PerLoop[AsyncLink] = PerLoop(self._open_async, forget=AsyncLink.forget)
        self._sync: SyncLink | None = None
        self._lock = Lock()
        self._opening: SyncShared[SyncLink] = SyncShared()

    def request(self, request: Request[R]) -> Effect[R]:
        """
        Have a client carry out a request. Asynchronous callers of a synchronous client wait for a worker thread.

        :param request: What to ask for.
        :returns: The effect; it raises whatever the client raises.
        """
        return Effect(lambda: self._sync_link().run(request), lambda: self._run_async(request))

    def features(self) -> Effect[Features]:
        """Have the server asked about its features, once for each client."""
        return Effect(self._features, self._features_async)

    def largest(self, keys: Sequence[bytes]) -> Effect[list[int]]:
        """Have each server asked how large a value it takes under one of the keys, once for each client."""
        return Effect(partial(self._largest, keys), partial(self._largest_async, keys))

    def server_of(self, key: bytes) -> str | None:
        """Name the node of a cluster that keeps a key, for the running event loop; None if there is only one server."""
        if not self.clustered:
            return None
        link = self._sync_link() if self._make_async is None else self._async.get()
        return node_of(key, link.client)

    def look_around(self) -> Effect[None]:
        """Have a cluster's client find out anew which node keeps which keys."""
        return Effect(lambda: self._sync_link().look_around(), self._look_around_async)

    def drop_idle(self) -> Effect[None]:
        """Disconnect what is not in use, so that the next request finds the server that is in charge now."""
        return Effect(lambda: self._sync_link().drop_idle(), self._drop_idle_async)

    def close(self) -> None:
        """Disconnect the client of the threads without an event loop. The next use opens another."""
        self._async.forget_closed_loops()
        self._opening.settle()
        with self._lock:
            link, self._sync = self._sync, None
        if link is not None:
            link.close()

    async def close_async(self) -> None:
        """Disconnect the client of the running event loop. The next use opens another."""
        link = self._async.pop()
        if link is not None:
            await link.close()

    def _features(self) -> Features:
        link = self._sync_link()
        return link.features or self._learned(link, link.run(probe))

    async def _features_async(self) -> Features:
        if self._make_async is None:
            return await run_in_worker(self._features)
        link = self._async.get()
        return link.features or self._learned(link, await link.run(probe))

    def _largest(self, keys: Sequence[bytes]) -> list[int]:
        link = self._sync_link()
        return link.run(partial(largest, keys, link.limits))

    async def _largest_async(self, keys: Sequence[bytes]) -> list[int]:
        if self._make_async is None:
            return await run_in_worker(self._largest, keys)
        link = self._async.get()
        return await link.run(partial(largest, keys, link.limits))

    def _learned(self, link: AsyncLink | SyncLink, features: Features) -> Features:
        link.features = features
        announce, self._announce = self._announce, _ignore
        announce(features)
        return features

    async def _run_async(self, request: Request[R]) -> R:
        if self._make_async is None:
            return await run_in_worker(self._sync_link().run, request)
        return await self._async.get().run(request)

    async def _look_around_async(self) -> None:
        if self._make_async is None:
            await run_in_worker(self._sync_link().look_around)
        else:
            await self._async.get().look_around()

    async def _drop_idle_async(self) -> None:
        if self._make_async is None:
            await run_in_worker(self._sync_link().drop_idle)
        else:
            await self._async.get().drop_idle()

    def _open_async(self) -> AsyncLink:
        assert self._make_async is not None  # noqa: S101 - checked by every caller
        return AsyncLink(self._make_async(), limit=self.limit, wait=self._wait)

    def _sync_link(self) -> SyncLink:
        if self._make_sync is None:
            raise AsyncOnlyStoreError("The store was given an asynchronous client; use its `_async` methods.")
        self._async.forget_closed_loops()
        return self._sync or self._opening.run(partial(self._open_sync, self._make_sync))

    def _open_sync(self, make: Callable[[], Opened[None]]) -> SyncLink:
        # A cluster's client connects when it is made; nobody waits for that under a lock.
        link = self._sync
        if link is None:
            link = self._sync = SyncLink(make(), limit=self.limit, wait=self._wait)
        return link


def clients_of(settings: Settings, *, limit: int, wait: float, announce: Callable[[Features], None]) -> Clients:
    """
    Return the clients that the settings describe.

    :param settings: The settings.
    :param limit: The most requests in flight.
    :param wait: Seconds to wait for a turn.
    :param announce: Told what is known about the server.
    :returns: The clients, none of them open yet.
    """
    return Clients(
        partial(open_async, settings),
        partial(open_sync, settings),
        clustered=settings.cluster,
        limit=limit,
        wait=wait,
        announce=announce,
    )


def clients_from(client: object, *, limit: int, wait: float, announce: Callable[[Features], None]) -> Clients:
    """
    Return the clients of a store that was given one. It is never closed.

    :param client: A client of redis-py, in either colour, of one server or of a cluster.
    :param limit: The most requests in flight; fewer, if it cannot have as many connections.
    :param wait: Seconds to wait for a turn.
    :param announce: Told what is known about the server.
    :returns: The clients; in the other colour there is none.
    :raises ConfigurationError: If it is something else.
    """
    if isinstance(client, (aioredis.client.Pipeline, redis.client.Pipeline)) or not isinstance(client, _ASYNC + _SYNC):
        raise ConfigurationError(f"`client` must be a client of redis-py, not {type(client).__name__}.")
    opened: Any = (
        Opened(client, _nothing_async, _nothing_async, keep)
        if isinstance(client, _ASYNC)
        else Opened(client, _nothing, _nothing, keep)
    )
    return Clients(
        (lambda: opened) if isinstance(client, _ASYNC) else None,
        None if isinstance(client, _ASYNC) else (lambda: opened),
        clustered=is_cluster(client),
        limit=min(limit, _most_connections(client)),
        wait=wait,
        announce=announce,
    )


def _most_connections(client: Any) -> int:
    # Those of each node, in a cluster. Most pools raise where one more is wanted, instead of waiting for it.
    if is_cluster(client):
        nodes: Any = client if isinstance(client, _ASYNC) else client.nodes_manager
        most: int = nodes.connection_kwargs.get("max_connections") or _MOST_BY_DEFAULT
        return most
    most = getattr(client.connection_pool, "max_connections", _MOST_BY_DEFAULT)
    if most <= keeps_one(client):
        raise ConfigurationError("`client` keeps its only connection to itself; it needs another one to be used here.")
    return most - keeps_one(client)


def _ignore(features: Features) -> None:
    del features


def _nothing() -> None:
    return None


async def _nothing_async() -> None:
    return None
