"""
Connections with TLS that share what they check certificates with.

redis-py reads all of the system's certificate authorities for each connection, some 40 ms on the event loop.
"""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any

from redis.asyncio.connection import SSLConnection
from redis.asyncio.sentinel import SentinelManagedSSLConnection
from redis.exceptions import ResponseError

from haybaler.errors import StoreConfigurationError
from haybaler.workers import run_in_worker
from haybaler_redis.connections import PackingConnection


class Verification:
    """
    What certificates are checked with, read when it is first needed.

    :param files: `ssl_ca_certs`, by default the system's; `ssl_certfile` and `ssl_keyfile`, if the client has its own.
    """

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._lock = Lock()
        self._context: ssl.SSLContext | None = None

    async def context(self) -> ssl.SSLContext:
        """Return the context, without blocking the event loop."""
        context = self._context
        return context if context is not None else await run_in_worker(self.read)

    def read(self) -> ssl.SSLContext:
        """
        Return the context.

        :returns: The context.
        :raises StoreConfigurationError: If a file cannot be used.
        """
        with self._lock:
            if self._context is None:
                try:
                    self._context = _context(self._files)
                except OSError as error:
                    raise StoreConfigurationError("The files of certificates cannot be read.") from error
            return self._context


def _context(files: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=files.get("ssl_ca_certs"))
    if "ssl_certfile" in files:
        context.load_cert_chain(files["ssl_certfile"], files.get("ssl_keyfile"))
    return context


class VerifiedConnection(PackingConnection, SSLConnection):
    """
    A connection with TLS.

    :param verification: What it shares with others.
    :param kwargs: As for redis-py's.
    """

    def __init__(self, *, verification: Verification, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._verification = verification

    async def _connect(self) -> None:
        self.ssl_context.context = await self._verification.context()
        await super()._connect()  # type: ignore[no-untyped-call]


def settle(connection: Any) -> None:
    """
    Prepare a new synchronous connection with TLS.

    :param connection: The connection.
    """
    connection.on_connect()
    read_tickets(connection)


def read_tickets(connection: Any) -> None:
    """
    Read what a server sends after the handshake of TLS 1.3, which stands before the reply to a first command.

    redis-py takes it for the rest of an earlier reply, and gives up the connection.

    :param connection: The synchronous connection.
    """
    connection.send_command("PING", check_health=False)
    with suppress(ResponseError):  # the user may not be allowed to; it is a reply all the same
        connection.read_response()


class VerifiedSentinelConnection(VerifiedConnection, SentinelManagedSSLConnection):
    """A connection with TLS to the primary that sentinels name."""
