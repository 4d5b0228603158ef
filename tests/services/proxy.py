"""A proxy in front of a server, which can be taken away, hold everything back, lose an answer, and speak TLS."""

import contextlib
import re
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
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        listener = _listening(0)
        self._listener: socket.socket | None = listener
        self.port: int = listener.getsockname()[1]
        self.accepted = 0
        self.flow = threading.Event()  # while it is not set, nothing that clients send on open connections goes on
        self.flow.set()
        self.lost = 0  # answers
        self._unanswered: re.Pattern[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self._serve(listener)

    @property
    def address(self) -> str:
        """Host and port of the proxy, for clients."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def server(self) -> str:
        """Host and port of what stands behind it, for clients that do not want to wait for its threads."""
        return f"{self._host}:{self.target}"

    def _serve(self, listener: socket.socket) -> None:
        thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
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
            thread = threading.Thread(target=self._pass_on, args=(client, target, listener), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _pass_on(self, client: socket.socket, target: int, listener: socket.socket) -> None:
        with contextlib.suppress(OSError), socket.create_connection((self._host, target)) as server, client:
            is_new = not self.flow.is_set()
            is_unanswered = False
            near = self._tls.wrap_socket(client, server_side=True) if self._tls else client
            with self._lock:
                if self._listener is not listener:
                    return  # accepted just before the cut
                self._sockets |= {near, server}
            with near:
                while True:
                    waiting = [near] if isinstance(near, ssl.SSLSocket) and near.pending() else []
                    for source in waiting or select.select([near, server], [], [])[0]:
                        if not is_new:
                            self.flow.wait()
                        data = source.recv(65536)
                        if is_unanswered and source is server:
                            self.lost += 1
                            return
                        if not data:
                            return
                        if source is near and self._unanswered is not None and self._unanswered.search(data):
                            is_unanswered, self._unanswered = True, None
                        (server if source is near else near).sendall(data)

    def then(self, target: int, *, connections: int) -> None:
        """Lead the next connections where it leads now, and all further ones to another server."""
        self._before = [self.target] * connections
        self.target = target

    def lose_answer(self, request: re.Pattern[bytes]) -> None:
        """Pass on the next request like this one, and end the connection instead of passing on its answer."""
        self._unanswered = request

    def cut(self) -> None:
        """Refuse new connections and end those that are open."""
        self.flow.set()
        with self._lock:
            listener, self._listener = self._listener, None
            held = [*([listener] if listener else []), *self._sockets]
        for one in held:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        if listener:
            listener.close()
        while self._threads:
            self._threads.pop().join()
        self._sockets.clear()

    def restore(self) -> None:
        """Accept connections again, on the same port."""
        self._listener = _listening(self.port)
        self._serve(self._listener)


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
