"""What a run waits for before a call of the model when results go: for their writes, or only for the choice."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import anyio
import haystack.hooks.compaction as haystack_compaction
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.tool_result_offloading import FileSystemToolResultStore as HaystackFileStore
from haystack.tools.tool import Tool
from tests.services.s3_servers import BUCKET, ENVIRONMENT, s3_server

import haybaler
from benchmarks.compaction import run_hook
from benchmarks.conversations import conversation, state_of
from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, Column, Group
from benchmarks.timing import Action, Case, measure
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_s3 import S3ToolResultStore

WRITE_SECONDS = 0.05
CALL_SECONDS = 0.06  # of the model, in whole runs; a real one takes far longer
STEPS = 8
CHARACTERS = 8_000  # of each result

BEHIND = f"{HAYBALER}, write_behind=True"
AT_ONCE = f"{HAYBALER}, write_behind=False"


class SlowStore(haybaler.BaseToolResultStore):
    """A store of which each write takes its time, as one over a network does; a whole batch is in flight at once."""

    max_concurrency = 1_000

    def __init__(self) -> None:
        super().__init__(location="slow:")
        self.entries: dict[str, str | bytes] = {}

    async def _put_async(self, path: str, content: str | bytes) -> None:
        await anyio.sleep(WRITE_SECONDS)
        self.entries[path] = content

    def _put(self, path: str, content: str | bytes) -> None:
        sleep(WRITE_SECONDS)
        self.entries[path] = content

    def _get(self, path: str) -> str | bytes:
        return self.entries[path]

    def _remove(self, path: str) -> None:
        self.entries.pop(path, None)


Maker = Callable[[str], Any]  # makes a store, in a folder of its own


def _stores(endpoint: str) -> dict[str, dict[str, Maker]]:
    """Return, for each kind of store, haybaler's and the one that goes with Haystack's hook."""

    def s3_store(folder: str) -> S3ToolResultStore:
        return S3ToolResultStore(BUCKET, prefix=Path(folder).name, endpoint_url=endpoint)

    def file_store(folder: str) -> FileSystemToolResultStore:
        return FileSystemToolResultStore(folder, fsync=True)

    def slow_store(_: str) -> SlowStore:
        return SlowStore()

    return {
        f"{WRITE_SECONDS * 1000:.0f} ms a write": {HAYBALER: slow_store, HAYSTACK: slow_store},
        "files, fsync": {HAYBALER: file_store, f"{HAYSTACK}, no fsync": HaystackFileStore},
        "S3 (rclone)": {HAYBALER: s3_store, HAYSTACK: s3_store},
    }


def _cases(
    kind: str, stores: dict[str, Maker], case: Callable[[str, Maker], Callable[[], AbstractContextManager[Action]]]
) -> list[Case]:
    ours, theirs = stores
    return [
        Case(kind, BEHIND, case(BEHIND, stores[ours])),
        Case(kind, AT_ONCE, case(AT_ONCE, stores[ours])),
        Case(kind, theirs, case(theirs, stores[theirs])),
        Case(kind, RAW, case(AT_ONCE, lambda _: haybaler.InMemoryToolResultStore())),
    ]


def _hook(who: str, store: Any, window: int) -> Any:
    if who.startswith(HAYSTACK):
        compactor: Any = haystack_compaction.ToolResultOffloadCompactor(store)
        return haystack_compaction.CompactionHook(compactor, context_window=window)
    compactor = haybaler.ToolResultOffloadCompactor(store, write_behind=who == BEHIND)
    return haybaler.CompactionHook(compactor, context_window=window)


@contextmanager
def _folder() -> Iterator[str]:
    folder = tempfile.mkdtemp(prefix="haybaler-bench-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _one_call(who: str, make_store: Maker) -> Callable[[], AbstractContextManager[Action]]:
    messages = conversation(42, 20 * CHARACTERS)
    window = int(haybaler.ApproximateTokenCounter().count(messages) / 0.8)

    @contextmanager
    def prepare() -> Iterator[Action]:
        with _folder() as folder:
            state, store, behind = state_of(messages), make_store(folder), haybaler.WriteBehindHook()
            hook = _hook(who, store, window)

            async def act() -> dict[str, float]:
                await behind.run_async(state)
                begun = perf_counter()
                await run_hook(hook, state)
                waited = perf_counter() - begun
                await behind.run_async(state)
                written = perf_counter() - begun
                await hook.close_async()
                return {"waited": waited, "written": written}

            yield act
            moved = sum("tool_result_offloaded" in m.meta for m in state.data["messages"])
            assert moved > 5, f"{moved} results were moved"

    return prepare


async def one_call(*, repetitions: int, quick: bool) -> Group:
    """Time the hook before one call of the model, in which about half of twenty results go."""
    os.environ.update(ENVIRONMENT)
    cases: list[Case] = []
    with s3_server() as server:
        for kind, stores in _stores(server.endpoint).items():
            cases += _cases(kind, stores, _one_call)
        await measure(cases, repetitions=repetitions)
    return Group(
        "behind",
        "CompactionHook.run_async with a ToolResultOffloadCompactor, before one call of the model",
        "Target: the model waits for the choice alone. The floor: the same with a store that takes no time.",
        [Column("waited", "before the call"), Column("written", "until written"), *LOOP],
        cases,
    )


class _Model:
    """Calls a tool in each step, and takes its time."""

    def __init__(self) -> None:
        self.steps = 0

    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        self.steps += 1
        if self.steps > STEPS:
            return {"replies": [ChatMessage.from_assistant("Done.")]}
        made = ToolCall("fetch", {"page": self.steps}, id=f"call-{self.steps}")
        return {"replies": [ChatMessage.from_assistant(tool_calls=[made])]}

    async def run_async(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        await anyio.sleep(CALL_SECONDS)
        return self.run(messages, tools)


def _fetch() -> Tool:
    def fetch(page: int) -> str:
        return f"Page {page}. " * (CHARACTERS // 8)

    async def fetch_async(page: int) -> str:
        return fetch(page)

    parameters = {"type": "object", "properties": {"page": {"type": "integer"}}}
    return Tool("fetch", "Fetches a page.", parameters, function=fetch, async_function=fetch_async)


def _one_run(who: str, make_store: Maker) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        with _folder() as folder:
            behind = haybaler.WriteBehindHook()
            hook = _hook(who, make_store(folder), 4 * CHARACTERS // 4)
            agent = Agent(
                chat_generator=_Model(),
                tools=[_fetch()],
                hooks={"before_run": [behind], "before_llm": [hook], "after_run": [behind]},
            )

            async def act() -> dict[str, float]:
                begun = perf_counter()
                result = await agent.run_async([ChatMessage.from_user("Read the pages.")])
                seconds = perf_counter() - begun
                moved = sum("tool_result_offloaded" in m.meta for m in result["messages"])
                assert moved > STEPS / 2, f"{moved} results were moved"
                await agent.close_async()
                return {"seconds": seconds, "more": seconds - (STEPS + 1) * CALL_SECONDS}

            yield act

    return prepare


async def one_run(*, repetitions: int, quick: bool) -> Group:
    """Time a whole run."""
    cases: list[Case] = []
    for kind, stores in list(_stores("").items())[: 1 if quick else 2]:
        cases += _cases(kind, stores, _one_run)
    await measure(cases, repetitions=repetitions)
    return Group(
        "behind-run",
        f"A run of {STEPS} steps, {CALL_SECONDS * 1000:.0f} ms for a call of the model",
        "Target: as long as with a store that takes no time, which is the floor.",
        [Column("more", "besides the model"), Column("seconds", "whole run"), *LOOP],
        cases,
    )
