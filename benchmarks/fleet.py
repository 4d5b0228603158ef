"""A server's worth of Agents at once, each with a user of its own; what runs in a process of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from statistics import quantiles
from time import perf_counter
from typing import Any

import haystack.hooks.compaction as haystack_compaction
import haystack.hooks.tool_result_offloading as haystack_offloading
import redis
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools import ToolsType
from haystack.tools.tool import Tool

import haybaler
from benchmarks.memory import most_resident
from benchmarks.report import HAYBALER, HAYSTACK, RAW
from benchmarks.timing import heartbeat
from haybaler_redis import RedisToolResultStore

CONTEXT_WINDOW = 128_000
TTL = 3600  # seconds


@dataclass(frozen=True, slots=True)
class Load:
    """
    What the Agents do.

    :param runs: How many run at once.
    :param steps: How many tools each calls, one after another.
    :param characters: The size of each result.
    :param think: Seconds that the model takes for a reply.
    """

    runs: int
    steps: int = 10
    characters: int = 20 * 1024
    think: float = 0.0


class Clock:
    """The time that each step of one run takes, from the model's reply to its next call, in seconds."""

    def __init__(self) -> None:
        self.steps: list[float] = []
        self._replied: float | None = None

    def called(self) -> None:
        if self._replied is not None:
            self.steps.append(perf_counter() - self._replied)

    def replied(self) -> None:
        self._replied = perf_counter()


_clock: ContextVar[Clock] = ContextVar("clock")


class Model:
    """A model that calls a tool so many times and then answers, without any work of its own."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def run(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> dict[str, Any]:
        raise NotImplementedError

    async def run_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> dict[str, Any]:
        clock = _clock.get()
        clock.called()
        await asyncio.sleep(self.load.think)
        step = len(clock.steps)
        call = ToolCall(tool_name="read_file", arguments={"step": step}, id=f"call_{step}")
        reply = (
            ChatMessage.from_assistant(tool_calls=[call])
            if step < self.load.steps
            else ChatMessage.from_assistant("Done.")
        )
        clock.replied()
        return {"replies": [reply]}


def _tool(load: Load) -> Tool:
    line = "A line of a file, as long as lines are in text.\n"
    text = (line * (load.characters // len(line) + 1))[: load.characters]

    async def read_file(step: int) -> str:
        return f"{step}: {text}"  # anew each time, as real results are

    return Tool(
        name="read_file",
        description="Reads a file.",
        parameters={"type": "object", "properties": {"step": {"type": "integer"}}},
        async_function=read_file,
    )


@dataclass(frozen=True, slots=True)
class Equipment:
    """
    What an Agent is given.

    :param hooks: Its hooks.
    :param store_of: Makes a user's own store.
    :param tools: Tools beside the one that reads files.
    """

    hooks: dict[str, list[Any]]
    store_of: Callable[[int], Any]
    tools: tuple[Any, ...] = ()


class BlockingRedisStore:
    """A store of somebody's own for Haystack's hooks: a few lines over redis-py."""

    def __init__(self, client: "redis.Redis", prefix: str) -> None:
        self.client = client
        self.prefix = prefix

    def write(self, *, key: str, content: str | bytes) -> str:
        name = f"{self.prefix}{key}"
        self.client.set(name, content, ex=TTL)
        return name

    def read(self, reference: str) -> str | bytes:
        return self.client.get(reference)  # type: ignore[return-value]

    def to_dict(self) -> dict[str, Any]:
        return {}


@asynccontextmanager
async def _without_hooks(url: str) -> AsyncIterator[Equipment]:
    yield Equipment({}, lambda _: None)


@asynccontextmanager
async def _haybaler_offload(url: str) -> AsyncIterator[Equipment]:
    async with RedisToolResultStore(url, ttl=TTL) as store:
        offload = haybaler.ToolResultOffloadHook(store, {"*": haybaler.OffloadOverChars(8_000)})
        yield Equipment({"after_tool": [offload]}, lambda user: store.scoped(f"user-{user}"))


@asynccontextmanager
async def _haybaler_all(url: str) -> AsyncIterator[Equipment]:
    async with RedisToolResultStore(url, ttl=TTL) as store:
        compaction = haybaler.CompactionHook(haybaler.SlidingWindowCompactor(), context_window=CONTEXT_WINDOW)
        offload = haybaler.ToolResultOffloadHook(store, {"*": haybaler.OffloadOverChars(8_000)})
        yield Equipment(
            {"before_llm": [compaction], "after_tool": [offload]},
            lambda user: store.scoped(f"user-{user}"),
            (haybaler.ToolResultToolset(store),),
        )


@asynccontextmanager
async def _haystack_offload(url: str) -> AsyncIterator[Equipment]:
    with redis.Redis.from_url(url) as client:
        store = BlockingRedisStore(client, "shared:")
        offload = haystack_offloading.ToolResultOffloadHook(store, {"*": haystack_offloading.OffloadOverChars(8_000)})
        yield Equipment({"after_tool": [offload]}, lambda user: BlockingRedisStore(client, f"user-{user}:"))


@asynccontextmanager
async def _haystack_all(url: str) -> AsyncIterator[Equipment]:
    async with _haystack_offload(url) as equipment:
        compactor = haystack_compaction.SlidingWindowCompactor()
        compaction = haystack_compaction.CompactionHook(compactor, context_window=CONTEXT_WINDOW)
        yield Equipment({"before_llm": [compaction], **equipment.hooks}, equipment.store_of)


EQUIPMENT: dict[str, Callable[[str], AbstractAsyncContextManager[Equipment]]] = {
    HAYBALER: _haybaler_offload,
    f"{HAYBALER}, all of it": _haybaler_all,
    HAYSTACK: _haystack_offload,
    f"{HAYSTACK}, both hooks": _haystack_all,
    RAW: _without_hooks,
}


def run_fleet(who: str, url: str, load: Load) -> dict[str, float]:
    """
    Run Agents, in this process and an event loop of its own.

    :param who: What they are equipped with, one of `EQUIPMENT`.
    :param url: The Redis server.
    :param load: What they do.
    :returns: Figures by name: times in seconds, memory in bytes.
    """
    return asyncio.run(_fleet(who, url, load))


async def _fleet(who: str, url: str, load: Load) -> dict[str, float]:
    async with EQUIPMENT[who](url) as equipment:
        agent = Agent(
            chat_generator=Model(load),
            tools=[_tool(load), *equipment.tools],
            hooks=equipment.hooks,  # type: ignore[arg-type]
            max_agent_steps=load.steps + 1,
        )
        moved = load.steps if equipment.hooks else 0
        await asyncio.gather(*(_run(agent, equipment, load, user, moved) for user in range(8)))  # to get warm
        before = most_resident()
        async with heartbeat() as heart:
            begun = perf_counter()
            steps = await asyncio.gather(*(_run(agent, equipment, load, user, moved) for user in range(load.runs)))
            seconds = perf_counter() - begun
        after = most_resident()
    times = quantiles([time for run in steps for time in run], n=100)
    figures = {"seconds": seconds, "stall": heart.stall, "work": heart.work, "p50": times[49], "p99": times[98]}
    if before is not None and after is not None:
        figures["memory"] = (after - before) / load.runs
    return figures | {"rate": load.runs / seconds, "each": seconds / load.runs}


async def _run(agent: Agent, equipment: Equipment, load: Load, user: int, moved: int) -> list[float]:
    # Users do not come all in the same moment, unless nobody waits for a model.
    await asyncio.sleep(load.think * user / load.runs)
    clock = Clock()
    _clock.set(clock)
    result = await agent.run_async(
        messages=[ChatMessage.from_user(f"Read the files of user {user}.")],
        hook_context={haybaler.RESULT_STORE_CONTEXT_KEY: equipment.store_of(user)} if moved else None,
    )
    results = [message for message in result["messages"] if message.tool_call_results]
    assert len(results) == load.steps, "a tool was not called"
    assert sum("tool_result_offloaded" in message.meta for message in results) == moved, "not all results were moved"
    return clock.steps
