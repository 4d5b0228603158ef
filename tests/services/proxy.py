"""A proxy in front of a server, which can be taken away, hold everything back, and speak TLS to clients."""

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.services.ports import LOOPBACK


class Proxy:
    """
    Passes on bytes between clients and a server, each connection in a thread of its own.

    :param target: The server's port.
    :param tls: For clients that speak TLS.
    :param host: The server's host.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None, host: str = LOOPBACK) -> None:
        self.target = target
        self._host = host
        self._before: list[int] = []
        self._tls = tls
        self._sockets: set[socket.socket] = set()
        self._listener = _listening(0)
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self.flow = threading.Event()  # while it is not set, nothing that clients send on open connections goes on
        self.flow.set()
        self._threads: list[threading.Thread] = []
        self._serve()

    def _serve(self) -> None:
        thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self.accepted += 1
            target = self._before.pop() if self._before else self.target
            thread = threading.Thread(target=self._pass_on, args=(client, target), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _pass_on(self, client: socket.socket, target: int) -> None:
        with contextlib.suppress(OSError), socket.create_connection((self._host, target)) as server, client:
            is_new = not self.flow.is_set()
            near = self._tls.wrap_socket(client, server_side=True) if self._tls else client
            self._sockets |= {near, server}
            with near:
                while True:
                    waiting = [near] if isinstance(near, ssl.SSLSocket) and near.pending() else []
                    for source in waiting or select.select([near, server], [], [])[0]:
                        if not is_new:
                            self.flow.wait()
                        data = source.recv(65536)
                        if not data:
                            return
                        (server if source is near else near).sendall(data)

    def then(self, target: int, *, connections: int) -> None:
        """Lead the next connections where it leads now, and all further ones to another server."""
        self._before = [self.target] * connections
        self.target = target

    def cut(self) -> None:
        """Refuse new connections and end those that are open."""
        self.flow.set()
        for held in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._sockets.clear()

    def restore(self) -> None:
        """Accept connections again, on the same port."""
        self._listener = _listening(self.port)
        self._serve()


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((LOOPBACK, port))
    listener.listen(128)
    return listener


@contextmanager
def proxy_to(port: int, tls: ssl.SSLContext | None = None, host: str = LOOPBACK) -> Iterator[Proxy]:
    """
    Run a proxy.

    :param port: The server's port.
    :param tls: For clients that speak TLS.
    :param host: The server's host.
    :returns: The proxy, while it runs.
    """
    proxy = Proxy(port, tls, host)
    try:
        yield proxy
    finally:
        proxy.cut()
