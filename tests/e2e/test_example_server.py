"""The FastAPI example, over HTTP and with a real server for its results: what it promises to users and operators."""

import ftplib
import imaplib
import logging
import os
import pickle
import shlex
import signal
import smtplib
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio import to_thread
from haystack.dataclasses import ChatMessage, StreamingChunk, ToolCall
from pydantic import SecretStr
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
from examples.server.agent import build_agent
from examples.server.app import create_app
from examples.server.model import HELP, StandIn
from examples.server.service import AHEAD, AgentService
from examples.server.settings import Settings
from haybaler import InMemoryToolResultStore
from haybaler_filesystem import FileSystemToolResultStore

pytestmark = pytest.mark.anyio

# A question about a constant, and what its answer must contain.
FTP = ("What is FTP_PORT in ftplib?", f"In ftplib, FTP_PORT is {ftplib.FTP_PORT}.")
SMTP = ("What is SMTP_PORT in smtplib?", f"In smtplib, SMTP_PORT is {smtplib.SMTP_PORT}.")
IMAP = ("What is IMAP4_SSL_PORT in imaplib?", f"In imaplib, IMAP4_SSL_PORT is {imaplib.IMAP4_SSL_PORT}.")
PICKLE = ("What is HIGHEST_PROTOCOL in pickle?", f"In pickle, HIGHEST_PROTOCOL is {pickle.HIGHEST_PROTOCOL}.")
ZIP = ("What is ZIP_STORED in zipfile?", f"In zipfile, ZIP_STORED is {zipfile.ZIP_STORED}.")


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


async def test_each_of_many_concurrent_users_gets_the_own_answer_and_nothing_stays_behind(redis: RedisServer) -> None:
    questions = {"grace": FTP, "alan": SMTP, "a": IMAP, "a/b": PICKLE, "../grace": ZIP}
    heard: list[tuple[str, list[Heard]]] = []

    async def one(user: str) -> None:
        heard.append((user, await ask(client, user, questions[user][0])))

    async with serving(create_app(settings_for(redis))) as client, anyio.create_task_group() as group:
        for _ in range(3):
            for user in questions:
                group.start_soon(one, user)
    assert len(heard) == 15
    for user, events in heard:
        assert [event.name for event in events if event.name != "text"] == ["run", "tool", "tool", "done"]
        assert told(events) == questions[user][1]
        assert events[-1].data == {"exit_reason": "text", "steps": 3, "offloaded": 1}
    assert len({events[0].data["id"] for _, events in heard}) == 15
    assert await keys_of(redis.client) == []


async def test_a_run_has_its_results_in_its_own_scope_and_no_other_run_can_read_them(redis: RedisServer) -> None:
    """The other one knows the reference, has the same Agent, and a name that looks like the run's place."""
    go_on = anyio.Event()
    references: list[str] = []
    answers: list[str] = []

    class WithThieves(StandIn):
        async def run_async(
            self, messages: list[ChatMessage], tools: Any = None, streaming_callback: Any = None
        ) -> dict[str, Any]:
            offloaded = messages[-1].meta.get("tool_result_offloaded", [])
            results = messages[-1].tool_call_results
            if any(message.text == "Steal." for message in messages):
                answers.extend(str(result.result) for result in results)
                steal = ToolCall("read_tool_result", {"reference": references[0]}, id="1")
                reply = ChatMessage.from_assistant("So.", tool_calls=[] if results else [steal])
                return {"replies": [reply]}
            if offloaded:
                references.extend(offloaded)
                await go_on.wait()
            return await super().run_async(messages, tools, streaming_callback)

    async with (
        serving(create_app(settings_for(redis), WithThieves())) as client,
        asking(client, "grace", FTP[0]) as events,
    ):
        run = (await anext(events)).data["id"]
        await eventually(lambda: bool(references))
        assert references[0].startswith(f"redis:haybaler/@grace/@{run}/")
        assert await keys_of(redis.client) == [references[0].replace("redis:haybaler/", "haybaler:")]
        for thief in ("alan", "grace", f"grace/{run}", f"@grace/@{run}"):
            await ask(client, thief, "Steal.")
        go_on.set()
        rest = [event async for event in events]
    assert len(answers) == 4
    assert all("is not a reference of this run's store" in answer for answer in answers)
    assert told(rest) == FTP[1]
    assert await keys_of(redis.client) == []


def test_no_name_of_a_user_reaches_into_the_scope_of_another() -> None:
    names = ["a", "a/b", "a%2Fb", "A", "..", "../a", "", "/", "a/", "\ud800", "\U0001f600", "@a", "a" * 500]
    root = InMemoryToolResultStore()
    written = {
        (user, run): store.run_scope(root, user, run).write(key="k", content=user) for user in names for run in "bc"
    }
    assert len(set(written.values())) == len(written)
    root.scoped("a").delete_scope()
    for (user, run), reference in written.items():
        scope = store.run_scope(root, user, run)
        if user != "a":
            assert scope.read(reference) == user
        assert scope.delete_scope().entries == (user != "a")


async def test_a_client_that_disconnects_ends_its_run_and_nothing_of_it_stays(redis: RedisServer) -> None:
    endless = Endless()
    async with serving(create_app(settings_for(redis), endless)) as client:
        async with asking(client, "grace", "Talk.") as events:
            while (await anext(events)).name != "text":
                pass
            assert len(await keys_of(redis.client)) == 1
            assert endless.stopped == 0
        await eventually(lambda: endless.stopped == 1)
        words = endless.words
        await eventually(lambda: holds_nothing(redis))
        await anyio.sleep(20 * endless.pause)
        assert endless.words == words
        assert (await client.get("/health")).json()["runs"] == 0


async def test_a_client_that_takes_nothing_holds_its_run_up_and_is_given_up(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "STALLED_SECONDS", 0.3)
    endless = Endless("word " * 20_000, pause=0)
    body = b'{"question": "Talk."}'
    request = b"POST /runs HTTP/1.1\r\nHost: x\r\nX-User: grace\r\nContent-Type: application/json\r\n"
    request += b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    async with serving(create_app(settings_for(redis), endless)) as client:
        async with await anyio.connect_tcp(LOOPBACK, client.base_url.port or 0) as silent:
            await silent.send(request)
            await eventually(lambda: endless.stopped == 1)
            await eventually(lambda: holds_nothing(redis))
        assert endless.words < 1_000


async def test_a_run_waits_when_its_client_is_behind(tmp_path: Path) -> None:
    endless = Endless()
    service = AgentService(
        build_agent(Settings(), endless), FileSystemToolResultStore(str(tmp_path)), Settings(run_timeout=60)
    )
    async with service.opened(), service.open_run("grace", "Talk.") as run:
        await eventually(lambda: run.events.statistics().current_buffer_used == AHEAD)
        words = endless.words
        await anyio.sleep(20 * endless.pause)
        assert endless.words == words
    assert endless.stopped == 1
    assert await files_in(tmp_path) == []


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
    caplog.set_level(logging.INFO, "examples")
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
        said[health["store"]["type"]] = [record.getMessage() for record in caplog.records]
    folder = tmp_path / "tool_results"
    assert said == {
        "RedisToolResultStore": ["Tool results go to the Redis on this machine."],
        "FileSystemToolResultStore": [
            f"Tool results go to files in {folder}, for no Redis answers on this machine.",
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

    question = " ".join(question for question, _ in (FTP, SMTP, IMAP, PICKLE))
    async with serving(create_app(settings_for(redis, context_window=40_000), Watched(before))) as client:
        events = await ask(client, "grace", question)
    assert told(events) == " ".join(answer for _, answer in (FTP, SMTP, IMAP, PICKLE))
    assert events[-1].data["offloaded"] > 0
    assert scopes == {f"haybaler:@grace/@{events[0].data['id']}"}
    assert await keys_of(redis.client) == []


async def test_an_error_in_the_middle_is_the_last_event_and_harms_nobody_else(
    redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def before(messages: list[ChatMessage]) -> None:
        if messages[-1].tool_call_results and "ftplib" in str(messages[1].text):
            raise RuntimeError("the password is swordfish")

    async with serving(create_app(settings_for(redis), Watched(before))) as client:
        events = await ask(client, "grace", FTP[0])
        assert told(await ask(client, "alan", SMTP[0])) == SMTP[1]
        assert (await client.get("/health")).json()["runs"] == 0
    assert [event.name for event in events] == ["run", "tool", "error"]
    assert events[-1].data == {"reason": "failed"}
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [RuntimeError]
    assert await keys_of(redis.client) == []


async def test_a_run_that_takes_too_long_is_ended_and_says_so(redis: RedisServer) -> None:
    endless = Endless()
    async with serving(create_app(settings_for(redis, run_timeout=0.5), endless)) as client:
        events = await ask(client, "grace", "Talk.")
    assert events[-1] == Heard("error", {"reason": "timeout"})
    assert endless.stopped == 1
    assert await keys_of(redis.client) == []


async def test_runs_beyond_the_limit_are_refused_until_a_place_is_free(redis: RedisServer) -> None:
    async with serving(create_app(settings_for(redis, max_runs=2), Endless())) as client:
        request = {"headers": {"X-User": "grace"}, "json": {"question": "Talk."}}
        async with asking(client, "grace", "Talk.") as events:
            async with asking(client, "grace", "Talk.") as others:
                await anext(events), await anext(others)
                refused = await client.post("/runs", **request)  # type: ignore[arg-type]
                assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
                assert (await client.get("/health")).json()["runs"] == 2

            async def has_one() -> bool:
                return bool((await client.get("/health")).json()["runs"] == 1)

            await eventually(has_one)
            async with asking(client, "grace", "Talk.") as others:
                assert (await anext(others)).name == "run"


async def test_whoever_does_not_say_who_it_is_or_asks_nothing_is_refused(redis: RedisServer) -> None:
    async with serving(create_app(settings_for(redis))) as client:
        nobody = await client.post("/runs", json={"question": "Who are you?"})
        nothing = await client.post("/runs", headers={"X-User": "grace"}, json={"question": ""})
        assert told(await ask(client, "grace", "Who are you?")) == HELP
    assert (nobody.status_code, nothing.status_code) == (401, 422)


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


async def test_a_silent_run_is_kept_alive_by_comments(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.02)

    async def before(messages: list[ChatMessage]) -> None:
        await anyio.sleep(0.1)

    async with (
        serving(create_app(settings_for(redis), Watched(before))) as client,
        client.stream("POST", "/runs", headers={"X-User": "grace"}, json={"question": FTP[0]}) as response,
    ):
        assert response.headers["Content-Type"].startswith("text/event-stream")
        lines = [line async for line in response.aiter_lines()]
    assert ": ping" in lines
    assert lines[-3] == "event: done"


@pytest.mark.parametrize(("grace", "end"), [(0, ("error", "shutdown")), (20, ("done", None))])
async def test_a_shutdown_with_open_streams_is_clean(
    grace: int, end: tuple[str, str | None], redis: RedisServer, tmp_path: Path
) -> None:
    """Streams have some time to end by themselves. Then each one is told, and its scope is emptied."""

    def environment(port: int) -> dict[str, str]:
        values = {"store_url": f"{redis.url}?ttl=600", "port": str(port), "shutdown_grace": str(grace)}
        return {f"HAYBALER_{name}".upper(): value for name, value in values.items()}

    question = " ".join(question for question, _ in (FTP, SMTP, IMAP, PICKLE, ZIP))
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


async def files_in(folder: Path) -> list[Path]:
    return await to_thread.run_sync(lambda: [file for file in folder.rglob("*") if file.is_file()])


async def holds_nothing(redis: RedisServer) -> bool:
    return not await keys_of(redis.client)
