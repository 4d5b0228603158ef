"""The same example through Hayhooks, over HTTP: Hayhooks' own command, and the application with a lifespan."""

import ftplib
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from pathlib import Path

import anyio
import httpx
import pytest
from anyio import to_thread
from tests.e2e.asking import holds_nothing
from tests.services.redis_servers import RedisServer, redis_server
from tests.services.web_servers import ROOT, Heard, client_of, eventually, keys_of, listen, told, web_process

pytestmark = pytest.mark.anyio

ANSWER = f"In ftplib, FTP_PORT is {ftplib.FTP_PORT}."
QUESTION = "What are FTP_PORT in ftplib, SMTP_PORT in smtplib and HIGHEST_PROTOCOL in pickle?"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


async def ask(client: httpx.AsyncClient, user: str, question: str, *, until: str = "") -> list[Heard]:
    """Send a question; be gone after the first event of a name."""
    heard = []
    request = {"headers": {"X-User": user}, "json": {"question": question}}
    async with client.stream("POST", "/agent/run", **request) as response:  # type: ignore[arg-type]
        assert response.status_code == 200, await response.aread()
        async with aclosing(listen(response)) as events:
            async for event in events:
                heard.append(event)
                if event.name == until:
                    break
    return heard


async def test_hayhooks_streams_the_answers_and_a_run_ends_with_its_client(redis: RedisServer, tmp_path: Path) -> None:
    def environment(_: int) -> Mapping[str, str]:
        return {"HAYBALER_STORE_URL": f"{redis.url}?ttl=600"}

    def arguments(port: int) -> list[str]:
        command = str(Path(sys.executable).with_name("hayhooks"))
        pipelines = ["--pipelines-dir", str(ROOT / "examples/server/pipelines"), "--additional-python-path", str(ROOT)]
        return [command, "run", "--host", "127.0.0.1", "--port", str(port), *pipelines]

    async with web_process(arguments, tmp_path, environment) as server, client_of(server.port) as client:
        heard: dict[str, list[Heard]] = {}

        async def one(user: str) -> None:
            heard[user] = await ask(client, user, "What is FTP_PORT in ftplib?")

        async with anyio.create_task_group() as group:
            for user in ("grace", "a/b"):
                group.start_soon(one, user)
        assert [told(events) for events in heard.values()] == [ANSWER, ANSWER]
        assert [events[-1].data["offloaded"] for events in heard.values()] == [1, 1]
        assert (await client.post("/agent/run", json={"question": "Who am I?"})).status_code == 401
        assert (await client.get("/openapi.json")).status_code == 200

        await ask(client, "grace", QUESTION, until="text")
        await eventually(lambda: holds_nothing(redis))
        assert told(await ask(client, "grace", "What is FTP_PORT in ftplib?")) == ANSWER
        await eventually(lambda: holds_nothing(redis))
        log = await to_thread.run_sync(server.process.log)
    assert "Traceback" not in log
    assert "RedisToolResultStore" in log


async def test_with_a_lifespan_hayhooks_reports_its_health_and_ends_streams_cleanly(
    redis: RedisServer, tmp_path: Path
) -> None:
    def arguments(port: int) -> list[str]:
        app = ["--factory", "examples.server.hayhooks_app:create_app", "--timeout-graceful-shutdown", "0"]
        return ["-m", "uvicorn", *app, "--port", str(port)]

    last: list[Heard] = []

    async def one() -> None:
        last.append((await ask(client, "grace", QUESTION))[-1])

    async with web_process(arguments, tmp_path, lambda _: {"HAYBALER_STORE_URL": redis.url}) as server:
        async with client_of(server.port) as client, anyio.create_task_group() as group:
            health = (await client.get("/health")).json()
            group.start_soon(one)
            await eventually(lambda: holds_something(redis))
            server.process.send(signal.SIGTERM)
        status = await to_thread.run_sync(server.process.ended)
        log = await to_thread.run_sync(server.process.log)
    assert health["status"] == "ok"
    assert last == [Heard("error", {"reason": "shutdown"})]
    assert status == -signal.SIGTERM, log
    assert "Traceback" not in log
    assert await keys_of(redis.client) == [], log


async def holds_something(redis: RedisServer) -> bool:
    return bool(await keys_of(redis.client))
