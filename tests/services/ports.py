"""Free ports of the loopback interface."""

import secrets
import socket

LOOPBACK = "127.0.0.1"

# Below the ports that Linux (from 32,768) and the others (from 49,152) give to outgoing connections: one of those
# could else take a server's port before it starts, or between its crash and its restart.
_FIRST = 20_000
_PORTS = 12_000


def free_port() -> int:
    """
    Return a port on which nobody listens at the moment.

    :returns: The port. Somebody else may draw the same before it is used, so whoever starts a server tries again.
    """
    while True:
        port = _FIRST + secrets.randbelow(_PORTS)  # never seeded: workers side by side must not draw alike
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do, for ports in TIME_WAIT
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        return port
