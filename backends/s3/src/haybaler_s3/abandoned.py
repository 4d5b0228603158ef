"""Closing the connections of an event loop that was closed before them. Nothing can be awaited there any more."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def abandon(client: Any) -> None:
    """
    Close the sockets of a client whose event loop is closed, without a warning and without that loop.

    Neither aiobotocore nor aiohttp nor asyncio has a public way, so this knows where they keep a connection's
    transport; where that is different, the sockets are closed a little later, by the garbage collector, which warns.

    :param client: An asynchronous client of aiobotocore.
    """
    http_session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    for session in getattr(http_session, "_sessions", {}).values():
        connector = session.connector
        session.detach()
        for transport in list(_transports(connector)):
            _close(transport)
        connector._close()  # noqa: SLF001 - without the loop it only forgets


def _transports(connector: Any) -> Iterator[Any]:
    idle = [protocol for held in getattr(connector, "_conns", {}).values() for protocol, *_ in held]
    for protocol in [*idle, *getattr(connector, "_acquired", ())]:
        transport = getattr(protocol, "transport", None)
        if transport is not None:
            yield transport


def _close(transport: Any) -> None:
    inner = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None) or transport
    for layer in (transport, inner):
        with suppress(RuntimeError):  # it would tell its protocol through the loop
            layer.abort()
    with suppress(AttributeError, RuntimeError):
        inner._call_connection_lost(None)  # noqa: SLF001
