"""
Asynchronous connections that turn commands of many arguments into bytes in one go.

redis-py's own copy what they have with each small argument that they add; for a thousand values of 1 KB that takes
longer than all the rest.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection

_MANY = 16  # arguments


class PackingConnection(AbstractConnection):
    """What the connections share."""

    def pack_command(self, *args: Any) -> list[bytes]:
        """
        Put a command into the server's protocol.

        :param args: Its name and its arguments.
        :returns: The bytes to send, in any number of pieces.
        """
        if len(args) < _MANY or " " in args[0]:  # a name of two words is two arguments
            return super().pack_command(*args)
        encode: Callable[[Any], bytes] = self.encoder.encode
        encoded = [arg if isinstance(arg, bytes) else encode(arg) for arg in args]
        sizes = [b"\r\n$%d\r\n" % size for size in map(len, encoded)]
        return [b"".join([b"*%d" % len(args), *chain.from_iterable(zip(sizes, encoded, strict=True)), b"\r\n"])]


class PackingTcpConnection(PackingConnection, Connection):
    """A connection to a host and port."""


class PackingUnixConnection(PackingConnection, UnixDomainSocketConnection):
    """A connection through a socket in the file system."""


class PackingSentinelConnection(PackingConnection, SentinelManagedConnection):
    """A connection to the primary that sentinels name."""
