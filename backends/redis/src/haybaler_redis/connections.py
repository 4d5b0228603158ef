"""
Asynchronous connections that turn commands of many arguments into bytes in one go.

redis-py's own copy what they have with each small argument that they add; for a thousand values of 1 KB that takes
longer than all the rest.
"""

from collections.abc import Callable
from typing import Any

from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection

_MANY = 16  # arguments


class _Lengths(dict[int, bytes]):
    """What stands before an argument of a length. Many arguments have the same."""

    def __missing__(self, length: int) -> bytes:
        self[length] = packed = b"\r\n$%d\r\n" % length
        return packed


class PackingConnection(AbstractConnection):
    """What the connections share."""

    def pack_command(self, *args: Any) -> list[bytes]:
        """
        Put a command into the server's protocol.

        :param args: Its name and its arguments; bytes may be in two pieces.
        :returns: The bytes to send, in any number of pieces.
        """
        if len(args) < _MANY or " " in args[0]:  # a name of two words is two arguments
            return super().pack_command(*(b"".join(arg) if isinstance(arg, tuple) else arg for arg in args))
        encode: Callable[[Any], bytes] = self.encoder.encode
        lengths, packed = _Lengths(), [b"*%d" % len(args)]
        for arg in args:
            if isinstance(arg, tuple):
                header, data = arg
                packed += (lengths[len(header) + len(data)], header, data)
            else:
                data = arg if isinstance(arg, bytes) else encode(arg)
                packed += (lengths[len(data)], data)
        packed.append(b"\r\n")
        return [b"".join(packed)]


class PackingTcpConnection(PackingConnection, Connection):
    """A connection to a host and port."""


class PackingUnixConnection(PackingConnection, UnixDomainSocketConnection):
    """A connection through a socket in the file system."""


class PackingSentinelConnection(PackingConnection, SentinelManagedConnection):
    """A connection to the primary that sentinels name."""


def takes_pieces(client: Any) -> bool:
    """Whether the connections of a client are of this kind, so that an argument may be in pieces."""
    pool = getattr(client, "connection_pool", None)
    return issubclass(getattr(pool, "connection_class", object), PackingConnection)


def keeps_one(client: Any) -> bool:
    """Whether a client has a connection for its single commands, one after another; pipelines do without it."""
    # An asynchronous client says so and takes it at its first command; one for threads has it from the beginning.
    return getattr(client, "single_connection_client", False) or getattr(client, "connection", None) is not None


def caches(client: Any) -> bool:
    """Whether a client answers from its own memory; single commands have to name their keys then, pipelines do not."""
    return getattr(getattr(client, "connection_pool", None), "cache", None) is not None
