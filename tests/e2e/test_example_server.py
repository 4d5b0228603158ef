"""The FastAPI example, over HTTP and with a real server for its results: what it promises to users and operators."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from haystack.dataclasses import ChatMessage, ToolCall
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
    holds_nothing,
    settings_for,
    silent_client,
)
from tests.services.redis_servers import RedisServer, redis_server
from tests.services.web_servers import (
    Heard,
    eventually,
    keys_of,
    serving,
    told,
)

from examples.server import model, store, streaming
from examples.server.agent import build_agent
from examples.server.app import create_app
from examples.server.model import HELP, StandIn
from examples.server.service import AHEAD, AgentService
from examples.server.settings import Settings
from examples.server.streaming import RunResponse
from haybaler import InMemoryToolResultStore
from haybaler.stores.protocol import DeletedScope
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_redis import RedisToolResultStore

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


async def test_each_of_many_concurrent_users_gets_the_own_answer_and_nothing_stays_behind(redis: RedisServer) -> None:
    questions = {"grace": FTP, "alan": SMTP, "a": POP, "a/b": PICKLE, "../grace": ZIP}
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
    async with serving(create_app(settings_for(redis), endless)) as client, silent_client(client):
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


class SlowToRemove(InMemoryToolResultStore):
    """Takes its time for removing a scope, as a server does."""

    async def delete_scope_async(self) -> DeletedScope:
        for _ in range(20):
            await asyncio.sleep(0)
        return await super().delete_scope_async()


@pytest.mark.parametrize("times", [1, 2])
async def test_a_request_that_the_server_cancels_at_any_moment_leaves_nothing_behind(times: int) -> None:
    """Also in the middle of its clean-up. It says goodbye where it can, and does not fail."""
    root = SlowToRemove()
    service = AgentService(build_agent(Settings(), StandIn()), root, Settings())
    ends = set()
    async with service.opened():
        for moment in range(0, 150, 2):
            sent: list[Any] = []

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            response = RunResponse(service.open_run("grace", f"{FTP[0]} {SMTP[0]}"))
            request = asyncio.create_task(response({"type": "http"}, anyio.sleep_forever, send))  # type: ignore[arg-type]
            for _ in range(moment):
                await asyncio.sleep(0)
            for _ in range(times):
                request.cancel()
                await asyncio.sleep(0)
            await asyncio.wait([request])
            assert service.runs == 0
            assert root.delete_scope().entries == 0
            assert not sent or sent[-1]["more_body"] is False
            ends |= {name for name in ("done", "shutdown") if sent and name.encode() in sent[-2]["body"]}
            assert times == 2 or request.cancelled() is not bool(sent)
    assert "shutdown" in ends


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_client_that_is_gone_at_any_moment_leaves_nothing_behind(kind: str, redis: RedisServer) -> None:
    """Its run ends, and the next one on the same objects is answered."""
    root: Any = SlowToRemove() if kind == "memory" else RedisToolResultStore(redis.url, ttl=600)
    service = AgentService(build_agent(Settings(), StandIn()), root, Settings())
    ends = set()
    async with service.opened():
        tasks = asyncio.all_tasks()
        for moment in [*range(0, 150, 3), None]:
            gone = anyio.Event()
            sent: list[Any] = []

            async def receive(gone: anyio.Event = gone) -> dict[str, str]:
                await gone.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any, sent: list[Any] = sent) -> None:
                sent.append(message)

            response = RunResponse(service.open_run("grace", f"{FTP[0]} {SMTP[0]}"))
            request = asyncio.create_task(response({"type": "http"}, receive, send))
            if moment is not None:
                for _ in range(moment):
                    await asyncio.sleep(0)
                gone.set()
            await request
            assert service.runs == 0
            assert (await root.delete_scope_async()).entries == 0
            assert asyncio.all_tasks() == tasks
            ends.add(bool(sent) and sent[-1].get("more_body") is False)
            answered = b"".join(message.get("body", b"") for message in sent)
        assert b"event: done" in answered
    assert ends == {True, False}


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


async def test_whoever_does_not_say_who_it_is_or_asks_nothing_is_refused(redis: RedisServer) -> None:
    async with serving(create_app(settings_for(redis))) as client:
        nobody = await client.post("/runs", json={"question": "Who are you?"})
        nothing = await client.post("/runs", headers={"X-User": "grace"}, json={"question": ""})
        assert told(await ask(client, "grace", "Who are you?")) == HELP
    assert (nobody.status_code, nothing.status_code) == (401, 422)


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
