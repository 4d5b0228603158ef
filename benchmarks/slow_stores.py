"""Stores that take their time, in a blocking way and in an asynchronous one, and the hooks over them."""

import asyncio
from time import sleep
from typing import Any

from haystack.components.agents.state.state import State
from haystack.hooks.invocation import _run_hooks_async
from haystack.hooks.tool_result_offloading import AlwaysOffload as HaystackAlwaysOffload
from haystack.hooks.tool_result_offloading import ToolResultOffloadHook as HaystackOffloadHook

import haybaler
from benchmarks.conversations import conversation, state_of, step


class BlockingStore:
    """
    A store whose writes wait, as for a server, in a blocking way.

    :param seconds: How long a write takes.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def write(self, *, key: str, content: str | bytes) -> str:
        sleep(self.seconds)
        return key

    def read(self, reference: str) -> str | bytes:
        return reference

    def to_dict(self) -> dict[str, Any]:
        return {}


class AsyncStore(BlockingStore):
    """The same store for asynchronous callers."""

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        await asyncio.sleep(self.seconds)
        return key


def haybaler_hook(store: Any) -> Any:
    """Return haybaler's hook, which moves every result."""
    return haybaler.ToolResultOffloadHook(store, {"*": haybaler.AlwaysOffload()})


def haystack_hook(store: Any) -> Any:
    """Return Haystack's hook, which moves every result."""
    return HaystackOffloadHook(store, {"*": HaystackAlwaysOffload()})


async def run_hook(hook: Any, state: State) -> None:
    """Call a hook the way `Agent.run_async` does."""
    await _run_hooks_async({"after_tool": [hook]}, "after_tool", state)


def state_after(results: int) -> State:
    """
    Return the state of an Agent whose tools have just run.

    :param results: The number of their results; each has 4,000 characters.
    """
    return state_of([*conversation(12, 40_000), *step(["The quick brown fox. " * 200] * results, 99)])


def whole_results(state: State) -> int:
    """Return how many results are not in a store."""
    return sum("tool_result_offloaded" not in m.meta for m in state.data["messages"] if m.tool_call_results)
