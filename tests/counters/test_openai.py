"""The counter that asks OpenAI, against a local server that plays the endpoint."""

from collections.abc import Iterator

import pytest
from haystack.dataclasses import ChatMessage, ImageContent, ToolCall
from haystack.utils import Secret
from openai import APIStatusError
from tests.services.openai_endpoint import Endpoint, endpoint

from haybaler import OpenAITokenCounter

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


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
    counted = counter.count(MESSAGES)
    counter.close()
    (request,) = server.requests
    assert counted == server.tokens(request["input"])
    assert request["path"] == "/v1/responses/input_tokens"
    assert request["model"] == "a-model"
    kinds = [item.get("type") or item["role"] for item in request["input"]]
    assert kinds == ["system", "user", "assistant", "function_call", "function_call_output"]
    assert [part["type"] for part in request["input"][1]["content"]] == ["input_text", "input_image"]


@pytest.mark.anyio
async def test_asynchronous_callers_get_the_same_count_and_sent_the_same(server: Endpoint) -> None:
    counter = counter_for(server)
    counted = [await counter.count_async(MESSAGES)]
    await counter.close_async()
    counted.append(await counter.count_async(MESSAGES[:1]))
    await counter.close_async()
    assert [len(request["input"]) for request in server.requests] == [5, 1]
    assert counted == [server.tokens(request["input"]) for request in server.requests]


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
