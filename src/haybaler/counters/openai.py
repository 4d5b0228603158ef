"""A counter that asks OpenAI how many tokens a request would have."""

import json
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCallResult
from haystack.tools import ToolsType, flatten_tools_or_toolsets
from haystack.utils import Secret, deserialize_secrets_inplace

from haybaler.per_loop import PerLoop
from haybaler.workers import run_in_worker

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class OpenAITokenCounter:
    """
    Counts tokens with OpenAI's endpoint `POST /responses/input_tokens`, which knows templates, images and files.

    Each count is a request. The endpoint rejects results without their calls, so give it whole conversations.
    Asynchronous callers are served by the asynchronous client, one for each event loop.

    In `CompactionHook`, it is asked once before each call of the model for which the trigger is near, always for the
    whole conversation. Single messages are estimated in its scale.

    :param model: The model whose tokens are counted.
    :param api_key: The key, by default the environment's `OPENAI_API_KEY`.
    :param api_base_url: The server; None for OpenAI's.
    :param organization: The organization's ID.
    :param timeout: Seconds for one request.
    :param max_retries: How often a failed request is tried again.
    :param http_client_kwargs: Further arguments for the clients of the `openai` package.
    """

    counts_conversations = True

    def __init__(
        self,
        model: str,
        *,
        api_key: Secret = Secret.from_env_var("OPENAI_API_KEY"),  # noqa: B008 - resolved at first use
        api_base_url: str | None = None,
        organization: str | None = None,
        timeout: float | None = 10.0,
        max_retries: int | None = 1,
        http_client_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.api_key = api_key
        self.api_base_url = api_base_url
        self.organization = organization
        self.timeout = timeout
        self.max_retries = max_retries
        self.http_client_kwargs = http_client_kwargs
        self._client: OpenAI | None = None
        self._lock = Lock()
        self._async_clients: PerLoop[list[AsyncOpenAI]] = PerLoop(list)

    def _arguments(self) -> dict[str, Any]:
        given = {
            "organization": self.organization,
            "base_url": self.api_base_url,
            "timeout": self.timeout,
            "max_retries": self.max_retries,
        }
        return {
            "api_key": self.api_key.resolve_value(),
            **{name: value for name, value in given.items() if value is not None},
            **(self.http_client_kwargs or {}),
        }

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Count the tokens of a conversation.

        :param messages: The messages, oldest first; every result with its call.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        if not messages and not tools:
            return 0
        client = self._synchronous()
        return int(client.responses.input_tokens.count(**self._request(messages, tools)).input_tokens)

    async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Count the tokens of a conversation without blocking the event loop.

        :param messages: The messages, oldest first; every result with its call.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        if not messages and not tools:
            return 0
        client = await self._asynchronous()
        return int((await client.responses.input_tokens.count(**self._request(messages, tools))).input_tokens)

    def _request(self, messages: list[ChatMessage], tools: ToolsType | None) -> dict[str, Any]:
        request: dict[str, Any] = {"model": self.model, "input": [i for m in messages for i in _items(m)]}
        if tools:
            request["tools"] = [{"type": "function", **tool.tool_spec} for tool in flatten_tools_or_toolsets(tools)]
        return request

    def _synchronous(self) -> "OpenAI":
        from openai import OpenAI  # noqa: PLC0415 - loading it takes a while, and few need it

        with self._lock:
            if self._client is None:
                self._client = OpenAI(**self._arguments())
            return self._client

    async def _asynchronous(self) -> "AsyncOpenAI":
        clients = self._async_clients.get()
        if not clients:
            # Making a client reads certificates from disk.
            made = await run_in_worker(self._made_asynchronous)
            clients.append(made)
        return clients[0]

    def _made_asynchronous(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI  # noqa: PLC0415

        return AsyncOpenAI(**self._arguments())

    def close(self) -> None:
        """Close the synchronous client. The next count opens another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def close_async(self) -> None:
        """Close the running loop's client. The next count opens another."""
        for client in self._async_clients.pop() or []:
            await client.close()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the counter itself, so that Agents can be copied: what it opened is shared, and its settings stay."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the counter.

        :returns: A dictionary with `type` and `init_parameters`; the key only as the name of its variable.
        """
        return default_to_dict(
            self,
            model=self.model,
            api_key=self.api_key.to_dict(),
            api_base_url=self.api_base_url,
            organization=self.organization,
            timeout=self.timeout,
            max_retries=self.max_retries,
            http_client_kwargs=self.http_client_kwargs,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a counter with the same settings.

        :param data: What `to_dict` returned.
        :returns: The counter.
        """
        deserialize_secrets_inplace(data["init_parameters"], keys=["api_key"])
        return default_from_dict(cls, data)


def _items(message: ChatMessage) -> list[dict[str, Any]]:
    """Return a message in the form of the Responses API: the message itself, its calls, its results."""
    items: list[dict[str, Any]] = []
    parts: list[str | ImageContent | FileContent] = [*message.texts, *message.images, *message.files]
    if parts:
        kind = "output_text" if message.role.value == "assistant" else "input_text"
        items.append({"role": message.role.value, "content": [_part(part, kind) for part in parts]})
    items.extend(
        {
            "type": "function_call",
            "call_id": call.id or call.tool_name,
            "name": call.tool_name,
            "arguments": json.dumps(call.arguments, default=str),
        }
        for call in message.tool_calls
    )
    items.extend(
        {"type": "function_call_output", "call_id": r.origin.id or r.origin.tool_name, "output": _output(r)}
        for r in message.tool_call_results
    )
    return items


def _output(result: ToolCallResult) -> str | list[dict[str, Any]]:
    return result.result if isinstance(result.result, str) else [_part(block, "input_text") for block in result.result]


def _part(part: str | TextContent | ImageContent | FileContent, text_kind: str) -> dict[str, Any]:
    if isinstance(part, ImageContent):
        url = f"data:{part.mime_type or 'image/png'};base64,{part.base64_image}"
        return {"type": "input_image", "image_url": url, "detail": part.detail or "auto"}
    if isinstance(part, FileContent):
        data = f"data:{part.mime_type or 'application/octet-stream'};base64,{part.base64_data}"
        return {"type": "input_file", "filename": part.filename or "file", "file_data": data}
    return {"type": text_kind, "text": part if isinstance(part, str) else part.text}
