"""Agents that work while something breaks, and what is left of their results afterwards."""

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall, ToolCallResult
from haystack.tools import Toolset
from haystack.tools.tool import Tool
from tests.hooks.agents import Colour, ScriptedModel, calling

from haybaler import RESULT_STORE_CONTEXT_KEY, AlwaysOffload, ToolResultOffloadHook, ToolResultToolset
from haybaler.errors import ReferenceNotFoundError, StoreError, StoreUnavailableError
from haybaler.references import offloaded_references

RUNS, STEPS, RESULTS = 4, 3, 4
SIZES = (500, 9_000, 120_000)  # characters
LARGE, LARGE_SIZES = "large-", (400_000, 2_000_000)  # of runs whose names begin like that
READ = "read_tool_result"
_NOT_NOW = ("cannot be reached at the moment", "cannot be read. Run the tool again")
PATIENCE = 10.0  # seconds until a store that nothing stands in the way of any more has to answer


@dataclass
class Tally:
    """
    What became of the results of some runs.

    :param unfinished: Runs that did not end with the model's answer.
    :param offloaded: Results with a reference in their place.
    :param kept: Results that stayed in the conversation, whole.
    :param read: Pages that the model read back during the runs.
    :param lost: References behind which there is nothing.
    :param torn: References, or results in a conversation, with something else than what the tool returned.
    :param details: What went wrong, in words.
    """

    unfinished: int = 0
    offloaded: int = 0
    kept: int = 0
    read: int = 0
    lost: int = 0
    torn: int = 0
    details: list[str] = field(default_factory=list)

    @property
    def losses(self) -> int:
        """Everything that must not happen."""
        return self.unfinished + self.lost + self.torn

    def add(self, other: "Tally") -> None:
        """Count another tally in."""
        self.unfinished += other.unfinished
        self.offloaded += other.offloaded
        self.kept += other.kept
        self.read += other.read
        self.lost += other.lost
        self.torn += other.torn
        self.details += other.details


def content(run: str, step: int, number: int) -> str:
    """Return what the tool returns: the same for the same call, and nowhere else."""
    sizes = LARGE_SIZES if run.startswith(LARGE) else SIZES
    size = random.Random(f"{run}/{step}/{number}").choice(sizes)
    unit = f"{run}/{step}/{number} é; "
    return (unit * (size // len(unit) + 1))[:size]


def _fetch(run: str, step: int, number: int) -> str:
    sleep(0.002)
    return content(run, step, number)


async def _fetch_async(run: str, step: int, number: int) -> str:
    await asyncio.sleep(0.002)
    return content(run, step, number)


_FETCH = Tool(
    name="fetch",
    description="Fetches a page.",
    parameters={"type": "object", "properties": {"run": {"type": "string"}}},
    function=_fetch,
    async_function=_fetch_async,
)


def _script(messages: list[ChatMessage]) -> ChatMessage:
    """Fetch pages, step by step, then read some of them back, and answer."""
    run = str(messages[0].text)
    step = sum(bool(message.tool_calls) for message in messages)
    references = [reference for message in messages for reference in offloaded_references(message)][::RESULTS]
    if step == STEPS and references:
        return calling(*(ToolCall(READ, {"reference": r}, id=f"read-{n}") for n, r in enumerate(references)))
    if step >= STEPS:
        return ChatMessage.from_assistant(f"answer to {run}")
    numbers = range(RESULTS)
    return calling(*(ToolCall("fetch", {"run": run, "step": step, "number": n}, id=f"{step}-{n}") for n in numbers))


class Fleet:
    """
    Runs of one Agent on one store, each in a scope of its own.

    :param store: The store; it is used again and again, whatever happens to it.
    """

    def __init__(self, store: Any) -> None:
        self.store = store
        hook = ToolResultOffloadHook(store, {"*": AlwaysOffload()}, preview_chars=0)
        tools: list[Tool | Toolset] = [_FETCH, ToolResultToolset(store)]
        self.agent = Agent(chat_generator=ScriptedModel(_script), tools=tools, hooks={"after_tool": [hook]})

    def run_sync(self, names: Sequence[str]) -> list[dict[str, Any] | BaseException]:
        """Let runs go on side by side, in threads."""
        with ThreadPoolExecutor(len(names)) as threads:
            futures = [threads.submit(self.agent.run, **self._arguments(name)) for name in names]
        return [future.exception() or future.result() for future in futures]

    async def run_async(self, names: Sequence[str]) -> list[dict[str, Any] | BaseException]:
        """Let runs go on side by side, in the running event loop."""
        runs = [self.agent.run_async(**self._arguments(name)) for name in names]
        return await asyncio.gather(*runs, return_exceptions=True)

    def run(self, names: Sequence[str], colour: Colour) -> list[dict[str, Any] | BaseException]:
        """Let runs go on side by side."""
        return asyncio.run(self.run_async(names)) if colour is Colour.ASYNC else self.run_sync(names)

    def _arguments(self, name: str) -> dict[str, Any]:
        context = {RESULT_STORE_CONTEXT_KEY: self.store.scoped(name)}
        return {"messages": [ChatMessage.from_user(name)], "hook_context": context}

    def check(self, names: Sequence[str], results: Sequence[dict[str, Any] | BaseException]) -> Tally:
        """Read everything back that the conversations refer to, with a store that may be on its way up again."""
        tally = Tally()
        for name, result in zip(names, results, strict=True):
            if isinstance(result, BaseException) or result["messages"][-1].text != f"answer to {name}":
                tally.unfinished += 1
                tally.details.append(f"{name} ended with {result!r}"[:300])
                continue
            store = self.store.scoped(name)
            fetched: dict[str, str] = {}  # what stands behind each reference
            for message in result["messages"]:
                references = offloaded_references(message)
                for place, answer in enumerate(message.tool_call_results):
                    if answer.origin.tool_name == READ:
                        _check_page(answer, fetched, tally)
                    else:
                        reference = references[place] if references else None
                        fetched |= {reference: content(**answer.origin.arguments)} if reference else {}
                        self._check(store, answer, reference, tally)
        return tally

    def _check(self, store: Any, result: ToolCallResult, reference: str | None, tally: Tally) -> None:
        expected = content(**result.origin.arguments)
        if reference is None:
            tally.kept += 1
            tally.torn += result.result != expected
            return
        tally.offloaded += 1
        try:
            found = read(store, reference)
        except ReferenceNotFoundError:
            tally.lost += 1
            tally.details.append(f"{reference} is not there")
        except StoreError as error:
            tally.torn += 1
            tally.details.append(f"{reference}: {error!r}")
        else:
            tally.torn += found != expected


def _check_page(result: ToolCallResult, fetched: dict[str, str], tally: Tally) -> None:
    """A page that the model has read is a part of the entry, or the store could not be used at that moment."""
    text, reference = str(result.result), result.origin.arguments["reference"]
    _, _, page = text.partition("]\n") if text.startswith("[characters") else ("", "", text)
    if page in fetched[reference]:
        tally.read += 1
    elif not any(sentence in text for sentence in _NOT_NOW):
        tally.torn += 1
        tally.details.append(f"{reference} was read as {text[:200]!r}")


def read(store: Any, reference: str) -> object:
    """Read an entry from a store that may need a moment to come back."""
    deadline = monotonic() + PATIENCE
    while True:
        try:
            return store.read(reference)
        except StoreUnavailableError:
            if monotonic() > deadline:
                raise
            sleep(0.02)
