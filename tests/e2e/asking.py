"""Clients of the server examples: questions with their answers, models to be watched, and what a run leaves behind."""

import ftplib
import pickle
import poplib
import smtplib
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
from anyio import to_thread
from haystack.dataclasses import ChatMessage, StreamingChunk
from pydantic import SecretStr
from tests.services.ports import LOOPBACK
from tests.services.redis_servers import RedisServer
from tests.services.web_servers import (
    Heard,
    keys_of,
    listen,
)

from examples.server.model import StandIn
from examples.server.settings import Settings

# A question about a constant, and what its answer must contain.
FTP = ("What is FTP_PORT in ftplib?", f"In ftplib, FTP_PORT is {ftplib.FTP_PORT}.")
SMTP = ("What is SMTP_PORT in smtplib?", f"In smtplib, SMTP_PORT is {smtplib.SMTP_PORT}.")
POP = ("What is POP3_SSL_PORT in poplib?", f"In poplib, POP3_SSL_PORT is {poplib.POP3_SSL_PORT}.")
PICKLE = ("What is HIGHEST_PROTOCOL in pickle?", f"In pickle, HIGHEST_PROTOCOL is {pickle.HIGHEST_PROTOCOL}.")
ZIP = ("What is ZIP_STORED in zipfile?", f"In zipfile, ZIP_STORED is {zipfile.ZIP_STORED}.")


def settings_for(server: RedisServer, **others: Any) -> Settings:
    return Settings(store_url=SecretStr(f"{server.url}?ttl=600"), **others)


@asynccontextmanager
async def asking(client: httpx.AsyncClient, user: str, question: str) -> AsyncIterator[AsyncIterator[Heard]]:
    """Send a question, and listen until the block is left: then the client is gone, whatever the server still does."""
    async with client.stream("POST", "/runs", headers={"X-User": user}, json={"question": question}) as response:
        assert response.status_code == 200, await response.aread()
        async with aclosing(listen(response)) as events:
            yield events


async def ask(client: httpx.AsyncClient, user: str, question: str) -> list[Heard]:
    async with asking(client, user, question) as events:
        return [event async for event in events]


@asynccontextmanager
async def silent_client(client: httpx.AsyncClient) -> AsyncIterator[None]:
    """Send a question, and take nothing of the answer."""
    body = b'{"question": "Talk."}'
    request = b"POST /runs HTTP/1.1\r\nHost: x\r\nX-User: grace\r\nContent-Type: application/json\r\n"
    request += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    async with await anyio.connect_tcp(LOOPBACK, client.base_url.port or 0) as silent:
        await silent.send(request)
        yield


class Watched(StandIn):
    """The stand-in, with something to be done before each reply; it is told what the model sees."""

    def __init__(self, before: Callable[[list[ChatMessage]], Awaitable[None]]) -> None:
        super().__init__()
        self._before = before

    async def run_async(
        self, messages: list[ChatMessage], tools: Any = None, streaming_callback: Any = None
    ) -> dict[str, Any]:
        await self._before(messages)
        return await super().run_async(messages, tools, streaming_callback)


class Endless(StandIn):
    """Reads a module, and then talks until it is stopped."""

    def __init__(self, word: str = "word ", pause: float = 0.001) -> None:
        super().__init__()
        self.word = word
        self.pause = pause
        self.words = 0
        self.stopped = 0

    async def run_async(
        self, messages: list[ChatMessage], tools: Any = None, streaming_callback: Any = None
    ) -> dict[str, Any]:
        if not messages[-1].tool_call_results:
            return await super().run_async([ChatMessage.from_user(FTP[0])], tools, streaming_callback)
        try:
            while True:
                await streaming_callback(StreamingChunk(self.word))
                self.words += 1
                await anyio.sleep(self.pause)
        finally:
            self.stopped += 1


async def files_in(folder: Path) -> list[Path]:
    return await to_thread.run_sync(lambda: [file for file in folder.rglob("*") if file.is_file()])


async def holds_nothing(redis: RedisServer) -> bool:
    return not await keys_of(redis.client)
