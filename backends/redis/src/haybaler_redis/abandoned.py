"""Closing the connections of an event loop that was closed before them. Nothing can be awaited there any more."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any


def abandon(client: Any, replaced: Sequence[Any]) -> None:
    """
    Close the sockets of a client whose event loop is closed, without a warning and without that loop.

    Neither redis-py nor asyncio has a public way, so this knows where they keep a connection's transport; where that
    is different, the sockets are closed a little later, by the garbage collector, which warns.

    :param client: An asynchronous client, of one server or of a cluster.
    :param replaced: Nodes of a cluster that the client has had before.
    """
    if hasattr(client, "nodes_manager"):
        client._initialize = True  # noqa: SLF001 - as after its `aclose`; otherwise it warns of itself
    for connection in chain(_connections(client), *map(_connections_of_node, replaced)):
        writer, connection._writer = getattr(connection, "_writer", None), None  # noqa: SLF001
        if writer is None:
            continue
        outer = writer.transport
        inner = getattr(getattr(outer, "_ssl_protocol", None), "_transport", None) or outer
        for transport in (outer, inner):
            with suppress(RuntimeError):  # it would tell its protocol through the loop
                transport.abort()
        with suppress(AttributeError, RuntimeError):
            inner._call_connection_lost(None)  # noqa: SLF001


def _connections(client: Any) -> Iterator[Any]:
    nodes = getattr(client, "nodes_manager", None)
    if nodes is not None:
        for node in chain(nodes.nodes_cache.values(), nodes.startup_nodes.values()):
            yield from _connections_of_node(node)
        return
    pool = client.connection_pool
    yield from getattr(pool, "_available_connections", ())
    yield from getattr(pool, "_in_use_connections", ())
    for watcher in getattr(getattr(pool, "sentinel_manager", None), "sentinels", ()):
        yield from _connections(watcher)


def _connections_of_node(node: Any) -> Sequence[Any]:
    return getattr(node, "_connections", ())
