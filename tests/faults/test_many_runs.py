"""A server's day in seconds: very many runs on one Agent and one store, each in its own scope, some cancelled."""

import asyncio
import random
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.tool import Tool
from tests.hooks.agents import ScriptedModel, calling

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    AlwaysOffload,
    BaseToolResultStore,
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    ToolResultOffloadHook,
    ToolResultToolset,
)
from haybaler.references import offloaded_references
from haybaler.stores.protocol import DeletedScope
from haybaler_filesystem import FileSystemToolResultStore

USERS = 50


def content(run: str, part: int) -> str:
    return f"page {part} of {run}: é\r\n" * 40


def fetch(run: str, part: int) -> str:
    return content(run, part)


async def fetch_async(run: str, part: int) -> str:
    await asyncio.sleep(0)
    return content(run, part)


FETCH = Tool(
    name="fetch",
    description="Fetches a page.",
    parameters={"type": "object", "properties": {"run": {"type": "string"}, "part": {"type": "integer"}}},
    function=fetch,
    async_function=fetch_async,
)


def neighbour(reference: str) -> str:
    """Return the reference as it would be if the same entry were another run's."""
    return re.sub(r"@run-(\d+)", lambda found: f"@run-{int(found[1]) ^ 1}", reference)


def script(messages: list[ChatMessage]) -> ChatMessage:
    """Fetch two pages, with calls that look the same in every run; read one back, and try the neighbour's."""
    run = str(messages[0].text)
    steps = sum(bool(message.tool_calls) for message in messages)
    if steps == 0:
        return calling(*(ToolCall("fetch", {"run": run, "part": part}, id=None) for part in range(2)))
    if steps == 1:
        reference = next(reference for message in messages for reference in offloaded_references(message))
        given = (reference, neighbour(reference))
        return calling(*(ToolCall("read_tool_result", {"reference": text}, id=None) for text in given))
    return ChatMessage.from_assistant(f"answer to {run}")


class Server:
    """Serves runs, and removes what a cancelled one has stored."""

    def __init__(self, store: BaseToolResultStore, model: ScriptedModel) -> None:
        self.store = store
        self.agent = Agent(
            chat_generator=model,
            tools=[FETCH, ToolResultToolset(store)],
            hooks={
                "before_llm": [CompactionHook(SlidingWindowCompactor(), context_window=1_000_000)],
                "after_tool": [ToolResultOffloadHook(store, {"*": AlwaysOffload()}, preview_chars=0)],
            },
        )

    def scope(self, number: int) -> BaseToolResultStore:
        return self.store.scoped(f"user-{number % USERS}").scoped(f"run-{number}")

    def serve(self, number: int) -> dict[str, Any]:
        context = {RESULT_STORE_CONTEXT_KEY: self.scope(number)}
        return self.agent.run([ChatMessage.from_user(f"run {number}")], hook_context=context)

    async def serve_async(self, number: int) -> dict[str, Any]:
        context = {RESULT_STORE_CONTEXT_KEY: self.scope(number)}
        try:
            return await self.agent.run_async([ChatMessage.from_user(f"run {number}")], hook_context=context)
        except asyncio.CancelledError:
            await self.scope(number).delete_scope_async()
            raise

    async def serve_all(self, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        async with self.store:
            results = await asyncio.gather(*map(self.serve_async, numbers))
        return dict(zip(numbers, results, strict=True))

    def check(self, number: int, result: dict[str, Any]) -> None:
        """See that a run had everything of its own and nothing of anybody else's, and remove it."""
        own, run = self.scope(number), f"run {number}"
        messages: list[ChatMessage] = result["messages"]
        assert messages[-1].text == f"answer to {run}"
        references = [reference for message in messages for reference in offloaded_references(message)]
        assert [own.read(reference) for reference in references] == [content(run, part) for part in range(2)]
        answers = [str(m.tool_call_results[0].result) for m in messages if m.tool_call_results][2:]
        assert content(run, 0) in answers[0]
        assert "is not a reference of this run's store" in answers[1]
        others = set(re.findall(r"of (run \d+)", " ".join(answers))) - {run}
        assert not others
        size = len((content(run, 0) + content(run, 1)).encode())
        assert own.delete_scope() == DeletedScope(2, size)


def files(path: Path) -> FileSystemToolResultStore:
    return FileSystemToolResultStore(path / "results", references="relative")


both_stores = pytest.mark.parametrize(
    "make_store", [lambda _: InMemoryToolResultStore(), files], ids=["memory", "files"]
)
MakeStore = Callable[[Path], BaseToolResultStore]


def assert_empty(store: BaseToolResultStore) -> None:
    assert store.delete_scope() == DeletedScope(0, 0)
    if isinstance(store, FileSystemToolResultStore):
        assert list(Path(store.root).rglob("*")) == []


class CancellingModel(ScriptedModel):
    """Cancels one run after the other, spread over all its calls: in the middle of tools, writes and reads."""

    def __init__(self, every: int, runs: Sequence[int]) -> None:
        super().__init__(script)
        self.tasks: list[asyncio.Task[Any]] = []
        self._every = every
        self._runs = list(runs)

    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **kwargs: Any) -> dict[str, Any]:
        reply = await super().run_async(messages, tools, **kwargs)
        if len(self.prompts) % self._every == 0 and self._runs:
            # Not at once: it may be this very run, and perhaps it does not wait for anything any more.
            asyncio.get_running_loop().call_soon(self.tasks[self._runs.pop()].cancel)
        return reply


@both_stores
def test_a_thousand_runs_at_once_see_their_own_and_cancelled_ones_leave_nothing(
    make_store: MakeStore, tmp_path: Path
) -> None:
    third = random.Random(7).sample(range(1_000), 333)
    model = CancellingModel(5, third)
    server = Server(make_store(tmp_path), model)

    async def everybody() -> list[Any]:
        model.tasks = [asyncio.create_task(server.serve_async(number)) for number in range(1_000)]
        return await asyncio.gather(*model.tasks, return_exceptions=True)

    results = asyncio.run(everybody())
    assert {type(result) for result in results} == {dict, asyncio.CancelledError}
    cancelled = {number for number, result in enumerate(results) if not isinstance(result, dict)}
    assert cancelled <= set(third)
    assert len(cancelled) > 200  # the others had ended
    for number in cancelled:
        assert server.scope(number).delete_scope() == DeletedScope(0, 0)
    for number in set(range(1_000)) - cancelled:
        server.check(number, results[number])
    assert_empty(server.store)


def serve_from_several_threads(server: Server, runs: int, callers: str) -> None:
    """Serve from four threads at once, with event loops or without, and check every run."""
    start = Barrier(4)

    def loop(numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        start.wait(30)
        return asyncio.run(server.serve_all(numbers))

    def thread(numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
        start.wait(30)
        return {number: server.serve(number) for number in numbers}

    kinds = {"loops": [loop] * 4, "threads": [thread] * 4, "loops and threads": [loop, thread, loop, thread]}
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(kind, range(first, runs, 4)) for first, kind in enumerate(kinds[callers])]
        results = {number: result for job in jobs for number, result in job.result().items()}
    assert sorted(results) == list(range(runs))
    for number, result in results.items():
        server.check(number, result)
    assert_empty(server.store)


@both_stores
@pytest.mark.parametrize("callers", ["loops", "threads", "loops and threads"])
def test_200_runs_at_once_from_several_threads_see_their_own(
    make_store: MakeStore, tmp_path: Path, callers: str
) -> None:
    serve_from_several_threads(Server(make_store(tmp_path), ScriptedModel(script)), 200, callers)
