"""
How full the window really is after a compaction, whatever the text, with the counter that only looks at lengths.

The chat model reports what a real tokenizer makes of what it was sent, as a provider does.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage
from haystack.hooks import hook
from tests.e2e.kinds_of_text import KINDS, text_of
from tests.hooks.agents import Colour, ScriptedModel, both_colours, tool, work

from haybaler import (
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    TiktokenCounter,
    ToolResultOffloadCompactor,
    ToolResultPruningCompactor,
)
from haybaler.counters.run import RunTokenCounter

WINDOW = 40_000
RESULT = 600  # tokens; the smallest thing that a compactor can take away, 1.5 % of the window
TEMPLATE = 150  # tokens that no message accounts for
STEPS = 80

COMPACTORS: dict[str, Callable[[], Any]] = {
    "sliding": SlidingWindowCompactor,
    "pruning": ToolResultPruningCompactor,
    "offload": lambda: ToolResultOffloadCompactor(InMemoryToolResultStore(), preview_chars=0),
}


class Meter:
    """Counts as a provider does, and remembers what each message has."""

    def __init__(self) -> None:
        self._counter = RunTokenCounter(TiktokenCounter())

    def tokens(self, messages: list[ChatMessage]) -> int:
        return TEMPLATE + self._counter.count(messages)

    def usage(self, messages: list[ChatMessage], reply: ChatMessage) -> dict[str, int]:
        return {"prompt_tokens": self.tokens(messages), "completion_tokens": self._counter.size(reply)}


def compactions(kind: str, compactor: Any, colour: Colour) -> tuple[list[float], list[float]]:
    """Run an Agent; return the true fill after each compaction, and how far the figure in the State was off."""
    meter = Meter()
    source = random.Random(11)
    model = ScriptedModel(work(STEPS), usage=meter.usage)
    fills: list[float] = []
    errors: list[float] = []
    before: list[ChatMessage] = []

    @hook
    def look_before(state: State) -> None:
        before[:] = state.data["messages"]

    @hook
    def look_after(state: State) -> None:
        messages = state.data["messages"]
        if messages == before:
            return
        fills.append(meter.tokens(messages) / WINDOW)
        last = max(i for i, message in enumerate(messages) if message.is_from("assistant"))
        true = meter.tokens(messages[: last + 1])
        errors.append(abs(state.data["context_tokens"] - true) / true)

    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", lambda **_: text_of(kind, source, RESULT))],
        hooks={"before_llm": [look_before, CompactionHook(compactor, context_window=WINDOW), look_after]},
        max_agent_steps=STEPS + 5,
    )
    colour.run(agent, "Look at everything and tell what you found.")
    return fills, errors


@both_colours
@pytest.mark.parametrize("compactor", COMPACTORS)
@pytest.mark.parametrize("kind", [*KINDS, "mixture"])
def test_the_window_is_as_full_as_asked_for_whatever_the_text(kind: str, compactor: str, colour: Colour) -> None:
    fills, errors = compactions(kind, COMPACTORS[compactor](), colour)
    assert len(fills) >= 2
    assert [fill for fill in fills if not 0.36 <= fill <= 0.44] == []
    assert [error for error in errors if error > 0.1] == []
