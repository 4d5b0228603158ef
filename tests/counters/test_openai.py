"""The counter that asks OpenAI, against a local server that plays the endpoint."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, ImageContent, ToolCall
from haystack.utils import Secret
from openai import APIStatusError

from haybaler import OpenAITokenCounter

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Endpoint(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[dict[str, Any]] = []
        self.status = 200

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
        answer = json.dumps({"object": "response.input_tokens", "input_tokens": 10 * len(body["input"])}).encode()
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
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def server() -> Iterator[Endpoint]:
    with endpoint() as running:
        yield running


def counter_for(server: Endpoint) -> OpenAITokenCounter:
    return OpenAITokenCounter("a-model", api_key=Secret.from_token("key"), api_base_url=server.url, max_retries=0)


CALL = ToolCall("fetch", {"n": 1}, id="call")
MESSAGES = [
    ChatMessage.from_system("rules"),
    ChatMessage.from_user(content_parts=["look", ImageContent(PIXEL, "image/png")]),
    ChatMessage.from_assistant("yes", tool_calls=[CALL]),
    ChatMessage.from_tool("result", origin=CALL),
]


def test_a_whole_conversation_is_one_request(server: Endpoint) -> None:
    counter = counter_for(server)
    assert counter.count(MESSAGES) == 50
    counter.close()
    (request,) = server.requests
    assert request["path"] == "/v1/responses/input_tokens"
    assert request["model"] == "a-model"
    kinds = [item.get("type") or item["role"] for item in request["input"]]
    assert kinds == ["system", "user", "assistant", "function_call", "function_call_output"]
    assert [part["type"] for part in request["input"][1]["content"]] == ["input_text", "input_image"]


@pytest.mark.anyio
async def test_asynchronous_callers_get_the_same_count_and_sent_the_same(server: Endpoint) -> None:
    counter = counter_for(server)
    assert await counter.count_async(MESSAGES) == 50
    await counter.close_async()
    assert await counter.count_async(MESSAGES[:1]) == 10
    await counter.close_async()
    assert [len(request["input"]) for request in server.requests] == [5, 1]


def test_nothing_to_measure_is_no_request(server: Endpoint) -> None:
    assert counter_for(server).count([]) == 0
    assert server.requests == []


@pytest.mark.parametrize("status", [400, 429, 503])
def test_an_error_of_the_endpoint_is_raised(server: Endpoint, status: int) -> None:
    server.status = status
    counter = counter_for(server)
    with pytest.raises(APIStatusError):
        counter.count(MESSAGES)
    counter.close()


def test_the_key_is_serialized_as_the_name_of_its_variable_only() -> None:
    data = OpenAITokenCounter("a-model", api_key=Secret.from_env_var("SOME_KEY")).to_dict()
    assert data["init_parameters"]["api_key"]["env_vars"] == ["SOME_KEY"]
    assert (
        OpenAITokenCounter.from_dict(data).to_dict()
        == OpenAITokenCounter("a-model", api_key=Secret.from_env_var("SOME_KEY")).to_dict()
    )
