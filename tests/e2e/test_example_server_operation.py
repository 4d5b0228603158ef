"""The FastAPI example for whoever operates it: its stores, limits and shutdown, and the commands in the documents."""

import logging
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import anyio
import pytest
from anyio import to_thread
from haystack.dataclasses import ChatMessage
from tests.e2e.asking import (
    FTP,
    PICKLE,
    POP,
    SMTP,
    ZIP,
    Endless,
    Watched,
    ask,
    asking,
    files_in,
    settings_for,
    silent_client,
)
from tests.services.ports import LOOPBACK, free_port
from tests.services.redis_servers import RedisServer, redis_server
from tests.services.web_servers import (
    ROOT,
    Heard,
    client_of,
    eventually,
    keys_of,
    listen,
    serving,
    told,
    web_process,
)

from examples.server import agent, model, store, streaming
from examples.server.app import create_app
from examples.server.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(autouse=True)
def no_key_and_no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(model, "PACE", 0)
    for name in [name for name in os.environ if name.startswith("HAYBALER_")]:
        monkeypatch.delenv(name)


async def test_redis_may_go_and_come_back_in_the_middle_of_a_run(redis: RedisServer) -> None:
    """The answer is right, results stay whole meanwhile, and offloading goes on in the same run, without a restart."""
    seen: list[str] = []

    async def before(messages: list[ChatMessage]) -> None:
        replies = sum(message.is_from("assistant") for message in messages)
        if replies == 1:  # what was read first is in Redis, and about to be searched for
            await to_thread.run_sync(redis.process.kill)
            seen.append((await client.get("/health")).json()["status"])
        if replies == 4:  # one module was read twice, another one once, and both were found
            await to_thread.run_sync(redis.process.start)
            seen.append((await client.get("/health")).json()["status"])

    question = "What are FTP_PORT in ftplib, HIGHEST_PROTOCOL in pickle and SMTP_PORT in smtplib?"
    async with serving(create_app(settings_for(redis), Watched(before))) as client:
        events = await ask(client, "grace", question)
        assert seen == ["degraded", "ok"]
        assert told(events) == f"{FTP[1]} {PICKLE[1]} {SMTP[1]}"
        tools = [event.data["name"] for event in events if event.name == "tool"]
        read, search = "read_module", "search_tool_result"
        assert tools == [read, search, read, read, read, search]
        assert (events[-1].name, events[-1].data["offloaded"]) == ("done", 2)
    assert await keys_of(redis.client) == []


async def test_a_store_that_is_away_at_the_start_is_used_as_soon_as_it_is_there(redis: RedisServer) -> None:
    await to_thread.run_sync(redis.process.kill)
    async with serving(create_app(settings_for(redis))) as client:
        health = await client.get("/health")
        assert health.status_code == 200
        assert health.json() == {
            "status": "degraded",
            "store": {"type": "RedisToolResultStore", "usable": False, "problem": "StoreUnavailableError"},
            "runs": 0,
        }
        without = await ask(client, "grace", FTP[0])
        await to_thread.run_sync(redis.process.start)
        assert (await client.get("/health")).json()["status"] == "ok"
        with_store = await ask(client, "grace", FTP[0])
    assert told(without) == told(with_store) == FTP[1]
    assert [without[-1].data["offloaded"], with_store[-1].data["offloaded"]] == [0, 1]


async def test_without_a_setting_the_store_is_a_redis_on_this_machine_or_else_files(
    redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    await to_thread.run_sync(monkeypatch.chdir, tmp_path)
    said = {}
    for url in (redis.url, f"redis://{LOOPBACK}:{free_port()}"):
        caplog.clear()
        monkeypatch.setattr(store, "LOCAL_REDIS", url)
        async with serving(create_app(Settings())) as client:
            health = (await client.get("/health")).json()
            events = await ask(client, "grace", FTP[0])
        assert told(events) == FTP[1]
        assert events[-1].data["offloaded"] == 1
        assert health["status"] == "ok"
        said[health["store"]["type"]] = [record.getMessage() for record in caplog.records if "results" in record.msg]
    folder = tmp_path / "tool_results"
    assert said == {
        "RedisToolResultStore": ["Tool results go to the Redis on this machine."],
        "FileSystemToolResultStore": [
            f"Tool results go to files in {folder}: no Redis can be used on this machine (StoreUnavailableError).",
        ],
    }
    assert await files_in(folder) == []


async def test_a_full_window_moves_older_results_into_the_scope_of_the_run(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent, "LARGE_RESULT", 10**6)
    scopes: set[str] = set()

    async def before(_: list[ChatMessage]) -> None:
        scopes.update(key.rpartition("/")[0] for key in await keys_of(redis.client))

    question = " ".join(question for question, _ in (FTP, SMTP, POP, PICKLE))
    async with serving(create_app(settings_for(redis, context_window=40_000), Watched(before))) as client:
        events = await ask(client, "grace", question)
    assert told(events) == " ".join(answer for _, answer in (FTP, SMTP, POP, PICKLE))
    assert events[-1].data["offloaded"] > 0
    assert scopes == {f"haybaler:@grace/@{events[0].data['id']}"}
    assert await keys_of(redis.client) == []


async def test_runs_beyond_the_limit_are_refused_until_a_place_is_free(redis: RedisServer) -> None:
    async with serving(create_app(settings_for(redis, max_runs=2), Endless())) as client:
        request = {"headers": {"X-User": "grace"}, "json": {"question": "Talk."}}
        async with asking(client, "grace", "Talk.") as events:
            async with asking(client, "grace", "Talk.") as others:
                await anext(events), await anext(others)
                async with client.stream("POST", "/runs", **request) as refused:  # type: ignore[arg-type]
                    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
                assert (await client.get("/health")).json()["runs"] == 2

            async def has_one() -> bool:
                return bool((await client.get("/health")).json()["runs"] == 1)

            await eventually(has_one)
            async with asking(client, "grace", "Talk.") as others:
                assert (await anext(others)).name == "run"


async def test_a_shutdown_does_not_wait_for_a_client_that_takes_nothing(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "FAREWELL_SECONDS", 0.1)
    endless = Endless("word " * 20_000, pause=0)
    words = -1

    async def stands_still() -> bool:
        nonlocal words
        before, words = words, endless.words
        return before == words > 0

    async with AsyncExitStack() as afterwards, serving(create_app(settings_for(redis), endless), grace=0) as client:
        await afterwards.enter_async_context(silent_client(client))
        await eventually(stands_still)
    assert endless.stopped == 1
    assert await keys_of(redis.client) == []


@pytest.mark.parametrize("document", ["README.md", "examples/server/README.md"])
async def test_the_command_in_the_documents_shows_a_streamed_answer(document: str, redis: RedisServer) -> None:
    text = await to_thread.run_sync((ROOT / document).read_text)
    words = shlex.split(next(line for line in text.splitlines() if line.startswith("curl") and "/runs" in line))
    options = {option: [v for o, v in pairwise(words) if o == option] for option in ("-H", "-d")}
    headers = dict(header.split(": ") for header in options["-H"])
    async with (
        serving(create_app(settings_for(redis))) as client,
        client.stream("POST", "/runs", headers=headers, content=options["-d"][0]) as response,
    ):
        assert "http://127.0.0.1:8000/runs" in words
        events = [event async for event in listen(response)]
    assert FTP[1] in told(events)
    assert events[-1].name == "done"


@pytest.mark.parametrize(("grace", "end"), [(0, ("error", "shutdown")), (20, ("done", None))])
async def test_a_shutdown_with_open_streams_is_clean(
    grace: int, end: tuple[str, str | None], redis: RedisServer, tmp_path: Path
) -> None:
    """Streams have some time to end by themselves. Then each one is told, and its scope is emptied."""

    def environment(port: int) -> dict[str, str]:
        values = {"store_url": f"{redis.url}?ttl=600", "port": str(port), "shutdown_grace": str(grace)}
        return {f"HAYBALER_{name}".upper(): value for name, value in values.items()}

    question = " ".join(question for question, _ in (FTP, SMTP, POP, PICKLE, ZIP))
    latest: dict[str, Heard] = {}

    async def one(user: str) -> None:
        async with asking(client, user, question) as events:
            async for event in events:
                latest[user] = event

    async with web_process(lambda _: ["-m", "examples.server"], tmp_path, environment) as server:
        async with client_of(server.port) as client, anyio.create_task_group() as group:
            for user in ("grace", "alan", "ada"):
                group.start_soon(one, user)
            await eventually(lambda: [event.name for event in latest.values()] == ["tool"] * 3)
            server.process.send(signal.SIGTERM)
        status = await to_thread.run_sync(server.process.ended)
    log = await to_thread.run_sync(server.process.log)
    assert status == -signal.SIGTERM, log
    assert "Traceback" not in log
    assert ("Cancel 3 running task(s)" in log) == (grace == 0)
    assert {(event.name, event.data.get("reason")) for event in latest.values()} == {end}
    assert await keys_of(redis.client) == []
