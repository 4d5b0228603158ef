"""The Agent that all users of a store share: its model follows what a run's task says and checks what it reads back."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall, ToolCallResult
from haystack.tools import ToolsType
from haystack.tools.tool import Tool
from tests.soak.contents import Origin
from tests.soak.findings import Findings
from tests.soak.places import Place

from haybaler import (
    CompactionHook,
    OffloadOverChars,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultToolset,
    WriteBehindHook,
)
from haybaler.references import is_offloaded, offloaded_references

WINDOW = 6_000  # tokens; a few results fill it
PAGE = 2_000  # characters
ANSWER = "That is all."

Order = Mapping[str, Any]


def task(user: str, number: int, *, steps: int, calls: int) -> ChatMessage:
    """Return what a run is told to do: so many steps of so many calls, and to read something back in between."""
    order = {"user": user, "number": number, "steps": steps, "calls": calls, "begun": time.monotonic()}
    return ChatMessage.from_user(json.dumps(order))


def fetched(result: ToolCallResult) -> str:
    """Return what a result of the tool has to be."""
    return Origin(**result.origin.arguments).text()


class Model:
    """
    A model without any state of its own, for any number of runs at once.

    :param place: The store that the runs use.
    :param findings: Where it notes what it read back.
    """

    def __init__(self, place: Place, findings: Findings) -> None:
        self.place = place
        self.findings = findings

    def run(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> dict[str, Any]:
        order: Order = next(json.loads(m.text or "") for m in messages if m.is_from("user"))
        results = messages[-1].tool_call_results
        read_back = [result for result in results if result.origin.tool_name == "read_tool_result"]
        for result in read_back:
            self._check(order, result)
        reply = self._next(order, messages, may_read=bool(results) and not read_back)
        reply.meta["usage"] = {"prompt_tokens": sum(map(_tokens, messages)), "completion_tokens": 50}
        return {"replies": [reply]}

    async def run_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> dict[str, Any]:
        return self.run(messages, tools)

    def _next(self, order: Order, messages: Sequence[ChatMessage], *, may_read: bool) -> ChatMessage:
        step = max((_step_of(call) for message in messages for call in message.tool_calls), default=0)
        stored = [message for message in messages if is_offloaded(message)]
        if may_read and stored and step % 2:
            chosen = stored[step % len(stored)]
            source = chosen.tool_call_results[0].origin.arguments
            arguments = {"reference": offloaded_references(chosen)[0], "limit": PAGE}
            # What it has to be stands in the id, for the reference does not tell.
            name = json.dumps([source["step"], source["place"], step])
            return ChatMessage.from_assistant(tool_calls=[ToolCall("read_tool_result", arguments, id=name)])
        if step >= order["steps"]:
            return ChatMessage.from_assistant(ANSWER)
        source = {"user": order["user"], "number": order["number"], "step": step + 1}
        calls = [
            ToolCall("fetch", {**source, "place": place}, id=f"fetch {step + 1} {place}")
            for place in range(order["calls"])
        ]
        return ChatMessage.from_assistant("I fetch more.", tool_calls=calls)

    def _check(self, order: Order, result: ToolCallResult) -> None:
        step, place, _ = json.loads(result.origin.id or "")
        text = Origin(order["user"], order["number"], step, place).text()
        if str(result.result).partition("\n")[2] == text[:PAGE]:
            self.findings.did("pages read back by a model")
        elif self.place.was_disturbed(order["begun"]):
            self.findings.did("pages not read back while disturbed")
        else:
            self.findings.fault(f"{self.place.name}: a model read {str(result.result)[:200]!r}")


def _step_of(call: ToolCall) -> int:
    step: int = call.arguments["step"] if call.tool_name == "fetch" else json.loads(call.id or "")[-1]
    return step


def _tokens(message: ChatMessage) -> int:
    return (len(message.text or "") + sum(len(str(r.result)) for r in message.tool_call_results)) // 4 + 20


def agent(place: Place, findings: Findings) -> Agent:
    """
    Return an Agent with all that haybaler has.

    :param place: The store for runs that bring none along; here all do.
    :param findings: Where the model notes what it read back.
    :returns: The Agent, for both colours.
    """
    offload = ToolResultOffloadHook(place.store, {"*": OffloadOverChars(8_000)})
    older = CompactionHook(ToolResultOffloadCompactor(place.store, write_behind=True), context_window=WINDOW)
    behind = WriteBehindHook()
    window = CompactionHook(SlidingWindowCompactor(), context_window=WINDOW, compact_at=0.9)
    fetch = Tool(
        name="fetch",
        description="Fetches something.",
        parameters={"type": "object", "properties": {name: {} for name in ("user", "number", "step", "place")}},
        function=lambda **arguments: Origin(**arguments).text(),
        async_function=_fetch,
    )
    return Agent(
        chat_generator=Model(place, findings),
        tools=[fetch, ToolResultToolset(place.store)],
        hooks={
            "before_run": [behind],
            "before_llm": [older, window],
            "after_tool": [offload],
            "after_run": [behind],
        },
        max_agent_steps=100,
    )


async def _fetch(**arguments: Any) -> str:
    return Origin(**arguments).text()
