"""Web servers: an application in the test's own event loop, or a command as a child process, and what clients hear."""

import json
import os
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx
import uvicorn
from anyio import to_thread
from tests.services.ports import LOOPBACK, free_port
from tests.services.processes import PATIENCE, ServerProcess

ROOT = Path(__file__).parents[2]


class Heard(NamedTuple):
    """One server-sent event."""

    name: str
    data: dict[str, Any]


@asynccontextmanager
async def serving(app: Any, *, grace: int | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """
    Serve an application over HTTP, in the running event loop, and shut it down afterwards as a signal would.

    :param app: The ASGI application.
    :param grace: Seconds that open responses have for that; None for as long as it takes.
    :returns: A client whose base is the server.
    """
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        config = uvicorn.Config(app, lifespan="on", loop="asyncio", log_config=None, timeout_graceful_shutdown=grace)
        server = uvicorn.Server(config)
        async with anyio.create_task_group() as group:
            group.start_soon(server.serve, [listener])
            await eventually(lambda: server.started)
            try:
                async with client_of(listener.getsockname()[1]) as client:
                    yield client
            finally:
                server.should_exit = True


def client_of(port: int) -> httpx.AsyncClient:
    """Return a client for a server on this machine, without limits to its connections."""
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(
        base_url=f"http://{LOOPBACK}:{port}", limits=limits, timeout=PATIENCE, verify=False, trust_env=False
    )


class WebProcess(NamedTuple):
    """A web server as a child process."""

    process: ServerProcess
    port: int


@asynccontextmanager
async def web_process(
    arguments: Callable[[int], Sequence[str]], folder: Path, environment: Callable[[int], Mapping[str, str]]
) -> AsyncIterator[WebProcess]:
    """
    Run a Python program that serves HTTP; warnings are errors.

    :param arguments: What follows the interpreter's name, for a port.
    :param folder: Where it runs; its log is there.
    :param environment: Variables besides those of the tests, for a port.
    :returns: The server, while it runs.
    """
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    for attempt in range(5):
        port = free_port()
        command = [sys.executable, "-W", "error", *arguments(port)]
        variables = {"OPENAI_API_KEY": "", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environment(port)}
        process = ServerProcess(command, folder, lambda port=port: _accepts(port), variables)  # type: ignore[misc]
        try:
            await to_thread.run_sync(process.start)
        except RuntimeError:
            if attempt == 4:
                raise
        else:
            break
    try:
        yield WebProcess(process, port)
    finally:
        await to_thread.run_sync(process.kill)


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0


async def listen(response: httpx.Response) -> AsyncGenerator[Heard, None]:
    """Yield the events of a streamed response as they come."""
    name = ""
    async for line in response.aiter_lines():
        kind, _, value = line.partition(": ")
        if kind == "event":
            name = value
        elif kind == "data":
            yield Heard(name, json.loads(value))


def told(events: Sequence[Heard]) -> str:
    """Return the text of an answer."""
    return "".join(event.data["text"] for event in events if event.name == "text")


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until something holds that nothing announces."""
    with anyio.fail_after(PATIENCE):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await anyio.sleep(0.02)


async def keys_of(client: Any) -> list[str]:
    """Return what a Redis server holds, without blocking the event loop."""
    return sorted(key.decode() for key in await to_thread.run_sync(client.keys))
