"""A server that says what it was told to say, for states in which a real one cannot be kept."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.ports import LOOPBACK


@contextmanager
def scripted_server(reply: bytes) -> Iterator[int]:
    """
    Run a server that answers each piece of what it receives with the same bytes.

    :param reply: The bytes.
    :returns: Its port, while it runs.
    """

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while self.request.recv(65536):
                self.request.sendall(reply)

    with socketserver.ThreadingTCPServer((LOOPBACK, 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
