"""A server that speaks just enough of the S3 protocol to go wrong as it is told, and counts what it is asked."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from tests.services.ports import LOOPBACK

ERROR = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"


@dataclass(frozen=True)
class Answer:
    """
    What one request gets.

    :param status: The status.
    :param code: What the server calls the error; None for what a server that works would say.
    :param message: The error's text.
    :param reset: Whether the connection is reset instead.
    :param hang: Whether nothing is said, until the server stops.
    :param truncate: Whether the body breaks off in the middle.
    :param trickle: Whether the head of the answer comes a byte at a time, without an end.
    :param pace: How many bytes of the body come at a time, twenty times a second; None for all at once.
    :param bare: Whether the object comes without its metadata.
    """

    status: int = 200
    code: str | None = None
    message: str = "no comment"
    reset: bool = False
    hang: bool = False
    truncate: bool = False
    trickle: bool = False
    pace: int | None = None
    bare: bool = False


WELL = Answer()


@dataclass
class FaultyS3:
    """
    The script, and what happened.

    :param answers: For each operation, such as "PUT", what its requests get, in order; the last one stays.
    :param objects: Body and metadata of each object, by the path of its URL.
    :param bodies: What an operation that works says, in order; the last one stays.
    :param requests: The operations, in order.
    :param port: Where it listens.
    :param sent: The bytes of all bodies.
    :param most: The most requests at the same time.
    :param in_flight: The requests at the moment.
    :param delay: Seconds that each request takes.
    :param expected: The paths of requests that waited for permission to send their body.
    :param headers: The names of the headers of all requests.
    :param connections: The open connections.
    :param busy: Set once there was a request.
    :param stopped: Set when the server stops.
    """

    answers: Mapping[str, list[Answer]] = field(default_factory=dict)
    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    bodies: dict[str, list[str]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    port: int = 0
    sent: int = 0
    most: int = 0
    in_flight: int = 0
    delay: float = 0.0
    expected: list[str] = field(default_factory=list)
    headers: set[str] = field(default_factory=set)
    connections: set[object] = field(default_factory=set)
    busy: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{LOOPBACK}:{self.port}"

    def count(self, operation: str) -> int:
        """Return how often something was asked."""
        return self.requests.count(operation)

    def next_answer(self, operation: str) -> Answer:
        with self.lock:
            self.requests.append(operation)
            answers = self.answers.get(operation) or [WELL]
            return answers[min(self.requests.count(operation), len(answers)) - 1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: FaultyS3

    def handle_expect_100(self) -> bool:
        self.script.expected.append(self.path)
        return super().handle_expect_100()

    def setup(self) -> None:
        super().setup()
        with self.script.lock:
            self.script.connections.add(self.connection)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()
        with self.script.lock:
            self.script.connections.discard(self.connection)

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        query = parse_qs(parts.query, keep_blank_values=True)
        operation = self._operation(query)
        with self.script.lock:
            self.script.in_flight += 1
            self.script.headers.update(self.headers)
            self.script.busy.set()
            self.script.most = max(self.script.most, self.script.in_flight)
        try:
            if self.script.delay:
                time.sleep(self.script.delay)
            self._answer(operation, self.script.next_answer(operation), parts.path, body)
        finally:
            with self.script.lock:
                self.script.in_flight -= 1

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do

    def _operation(self, query: Mapping[str, list[str]]) -> str:
        names = {
            ("POST", "delete"): "DeleteObjects",
            ("POST", "uploads"): "CreateMultipartUpload",
            ("POST", "uploadId"): "CompleteMultipartUpload",
            ("PUT", "uploadId"): "UploadPart",
            ("DELETE", "uploadId"): "AbortMultipartUpload",
            ("GET", "lifecycle"): "GetLifecycle",
            ("PUT", "lifecycle"): "PutLifecycle",
            ("GET", "list-type"): "List",
        }
        return next(
            (name for (method, key), name in names.items() if method == self.command and key in query), self.command
        )

    def _answer(self, operation: str, answer: Answer, path: str, body: bytes) -> None:
        if answer.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self.close_connection = True
            self.connection.close()
        elif answer.hang:
            self.script.stopped.wait()
            self.close_connection = True
        elif answer.trickle:
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not self.script.stopped.wait(0.05):
                self.wfile.write(b"x")
        elif answer.code is not None:
            document = ERROR.format(code=answer.code, message=answer.message).encode()
            self._send(answer.status, document, truncate=answer.truncate)
        elif operation == "PUT":
            said = {name: value for name, value in self.headers.items() if name.lower().startswith("x-amz-meta-")}
            self.script.objects[path] = body, said
            self._send(200, b"", {"ETag": '"etag"'})
        elif operation == "GET":
            self._get(answer, path)
        elif operation == "CreateMultipartUpload":
            self._send(200, b"<R><UploadId>1</UploadId></R>")
        elif operation == "CompleteMultipartUpload":
            self._send(200, b"<R><ETag>etag</ETag></R>")
        elif operation in self.script.bodies:
            bodies = self.script.bodies[operation]
            self._send(200, bodies[min(self.script.count(operation), len(bodies)) - 1].encode())
        else:
            self._send(200 if self.command != "DELETE" else 204, b"", {"ETag": '"etag"'})

    def _get(self, answer: Answer, path: str) -> None:
        if path not in self.script.objects:
            self._send(404, ERROR.format(code="NoSuchKey", message="").encode())
            return
        data, said = self.script.objects[path]
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last or len(data)) + 1]
        said = {} if answer.bare else said
        if "Range" in self.headers:
            said = {**said, "Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"}
        self._send(206 if "Range" in self.headers else 200, part, said, truncate=answer.truncate, pace=answer.pace)

    def _send(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        truncate: bool = False,
        pace: int | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        sent = body[: len(body) // 2] if truncate else b"" if self.command == "HEAD" else body
        for start in range(0, len(sent), pace or len(sent) or 1):
            self.wfile.write(sent[start : start + (pace or len(sent))])
            if pace and self.script.stopped.wait(0.05):
                break
        self.script.sent += len(sent)
        self.close_connection = self.close_connection or truncate

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def faulty_s3(**answers: list[Answer]) -> Iterator[FaultyS3]:
    """
    Run a server.

    :param answers: As for `FaultyS3`.
    :returns: The server, while it runs.
    """
    script = FaultyS3(answers)
    handler = type("Handler", (_Handler,), {"script": script})
    with _Server((LOOPBACK, 0), handler) as server:
        script.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield script
        finally:
            script.stopped.set()
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that is gone is what a test wanted."""
