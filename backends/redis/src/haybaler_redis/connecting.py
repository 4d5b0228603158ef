"""Making clients, one function for each colour; every time, limit and retry is stated, whatever the constructor."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import redis
import redis.asyncio as aioredis
from redis.asyncio.cluster import ClusterNode as AsyncClusterNode
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.connection import SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry
from redis.sentinel import Sentinel

from haybaler_redis.abandoned import abandon
from haybaler_redis.connections import PackingSentinelConnection, PackingTcpConnection, PackingUnixConnection
from haybaler_redis.settings import Settings
from haybaler_redis.tls import Verification, VerifiedConnection, VerifiedSentinelConnection, read_tickets, settle

R = TypeVar("R")

# A cluster client asks again after a redirection; without a retry it would not ask at all. Everything else is retried
# in `haybaler_redis.attempts`, in the same way for every kind of client.
_CLUSTER_RETRIES = 1


@dataclass(frozen=True, slots=True)
class Opened(Generic[R]):
    """
    A client, not connected yet.

    :param client: The client.
    :param close: Disconnects everything that belongs to it.
    :param drop_idle: Disconnects what is not in use, so that the next request connects anew.
    :param abandon: Disconnects what belongs to it once its event loop is closed, where nothing can be awaited; given
        nodes of a cluster that it has had before.
    """

    client: Any
    close: Callable[[], R]
    drop_idle: Callable[[], R]
    abandon: Callable[[Sequence[Any]], None]


def open_async(settings: Settings) -> Opened[Awaitable[None]]:
    """
    Make a client for the running event loop.

    :param settings: The settings.
    :returns: The client.
    """
    if settings.cluster:
        nodes = [AsyncClusterNode(host, port) for host, port in settings.endpoint.addresses("server")]
        cluster = aioredis.RedisCluster(
            startup_nodes=nodes,
            max_connections=settings.max_connections,
            retry=AsyncRetry(NoBackoff(), _CLUSTER_RETRIES),
            ssl=bool(settings.encryption),
            **_common(settings),
        )
        _connect_as_ours(cluster, settings)
        return Opened(cluster, cluster.aclose, _nothing_async, partial(abandon, cluster))
    retry = AsyncRetry(NoBackoff(), 0)
    if settings.sentinel:
        sentinel: Any = AsyncSentinel(**_sentinel_arguments(settings, retry))  # type: ignore[no-untyped-call]
        kind: type = VerifiedSentinelConnection if settings.encryption else PackingSentinelConnection
        client = sentinel.master_for(settings.sentinel, connection_class=kind, **_verification(settings))
        pools = [client.connection_pool, *(watcher.connection_pool for watcher in sentinel.sentinels)]
    else:
        kinds = {"rediss": VerifiedConnection, "unix": PackingUnixConnection}
        arguments = _pool_arguments(settings, retry, kinds.get(settings.endpoint.scheme, PackingTcpConnection))
        arguments |= _verification(settings)
        client = aioredis.Redis(connection_pool=aioredis.ConnectionPool(**arguments))
        pools = [client.connection_pool]

    async def close() -> None:
        for pool in pools:
            await pool.disconnect()

    async def drop_idle() -> None:
        await client.connection_pool.disconnect(inuse_connections=False)

    return Opened(client, close, drop_idle, partial(abandon, client))


def _verification(settings: Settings) -> dict[str, Any]:
    return {"verification": Verification(settings.tls)} if settings.encryption else {}


def _connect_as_ours(cluster: Any, settings: Settings) -> None:
    # The constructor of a cluster's client has no parameter for the class of its connections. Without TLS its own will
    # do, since no command to a cluster has many keys.
    if settings.encryption:
        own = _verification(settings)
        cluster.connection_kwargs.update(own, connection_class=VerifiedConnection)
        for node in cluster.nodes_manager.startup_nodes.values():
            node.connection_class = VerifiedConnection
            node.connection_kwargs.update(own)


def open_sync(settings: Settings) -> Opened[None]:
    """
    Make a client for callers without an event loop, in any number of threads. A cluster's client connects at once.

    :param settings: The settings.
    :returns: The client.
    :raises StoreConfigurationError: If the files of certificates cannot be read.
    """
    if settings.tls:
        Verification(settings.tls).read()
    if settings.cluster:
        nodes = [
            ClusterNode(host, port)  # type: ignore[no-untyped-call]
            for host, port in settings.endpoint.addresses("server")
        ]
        cluster = redis.RedisCluster(
            startup_nodes=nodes,
            max_connections=settings.max_connections,
            retry=Retry(NoBackoff(), _CLUSTER_RETRIES),
            ssl=bool(settings.encryption),
            **_once_connected(settings, read_tickets),
            **_common(settings),
        )
        return Opened(cluster, cluster.close, _nothing, keep)
    retry = Retry(NoBackoff(), 0)
    if settings.sentinel:
        sentinel: Any = Sentinel(**_sentinel_arguments(settings, retry))  # type: ignore[no-untyped-call]
        client = sentinel.master_for(settings.sentinel, **_once_connected(settings, settle))
        pools = [client.connection_pool, *(watcher.connection_pool for watcher in sentinel.sentinels)]
    else:
        kinds = {"rediss": SSLConnection, "unix": UnixDomainSocketConnection}
        arguments = _pool_arguments(settings, retry, kinds.get(settings.endpoint.scheme, redis.Connection))
        arguments |= _once_connected(settings, settle)
        client = redis.Redis(connection_pool=redis.ConnectionPool(**arguments))
        pools = [client.connection_pool]

    def close() -> None:
        for pool in pools:
            pool.disconnect()

    return Opened(client, close, lambda: client.connection_pool.disconnect(inuse_connections=False), keep)


def _once_connected(settings: Settings, encrypted: Callable[[Any], None]) -> dict[str, Any]:
    return {"redis_connect_func": encrypted} if settings.encryption else {}


def _common(settings: Settings) -> dict[str, Any]:
    return {**settings.connection, **settings.login, **settings.encryption}


def _pool_arguments(settings: Settings, retry: object, connection_class: object) -> dict[str, Any]:
    endpoint = settings.endpoint
    if endpoint.scheme == "unix":
        place: dict[str, Any] = {"path": endpoint.path}
    else:
        host, port = endpoint.addresses("server")[0]
        place = {"host": host, "port": port}
    return {
        "connection_class": connection_class,
        "max_connections": settings.max_connections,
        "retry": retry,
        "db": settings.db,
        **place,
        **_common(settings),
    }


def _sentinel_arguments(settings: Settings, retry: object) -> dict[str, Any]:
    encrypted = {"ssl": True, **settings.encryption} if settings.encryption else {}
    watchers = {**settings.connection, **encrypted, "retry": retry, "password": settings.sentinel_password}
    return {
        "sentinels": settings.endpoint.addresses("sentinel"),
        "sentinel_kwargs": watchers,
        "max_connections": settings.max_connections,
        "retry": retry,
        "db": settings.db,
        **settings.connection,
        **settings.login,
        **encrypted,
    }


def keep(replaced: Sequence[Any]) -> None:
    """Abandon nothing: the client belongs to no event loop, or to somebody else."""
    del replaced


def _nothing() -> None:
    return None


async def _nothing_async() -> None:
    return None
