"""A local server that plays OpenAI's endpoint for counting input tokens."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Endpoint(ThreadingHTTPServer):
    """Counts ten tokens for each item and one for each four characters; rejects results without their calls."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.status = 200

    @staticmethod
    def tokens(items: list[dict[str, Any]]) -> int:
        return 10 * len(items) + len(json.dumps(items)) // 4

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append({"path": self.path, **body})
        calls = {item["call_id"] for item in body["input"] if item.get("type") == "function_call"}
        outputs = [item for item in body["input"] if item.get("type") == "function_call_output"]
        status = 400 if any(item["call_id"] not in calls for item in outputs) else self.server.status
        answer = json.dumps(
            {"object": "response.input_tokens", "input_tokens": self.server.tokens(body["input"])}
        ).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
