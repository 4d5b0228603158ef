"""Free ports of the loopback interface."""

import socket

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """
    Return a port on which nobody listens at the moment.

    :returns: The port. Somebody else may take it before it is used, so whoever starts a server tries again.
    """
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
