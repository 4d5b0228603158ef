"""Conversations as research agents have them: calls, and results that hold code, records and log lines."""

import json
import sysconfig
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from haystack.components.agents.state.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.dataclasses import ChatMessage, ToolCall

TOOLS = ("read_file", "query_records", "read_log")

# As the Agent has them beside `messages`.
_SCHEMA: dict[str, Any] = {
    "step_count": {"type": int, "handler": replace_values},
    "context_tokens": {"type": int, "handler": replace_values},
    "hook_context": {"type": dict[str, Any], "handler": replace_values},
    "tools": {"type": list, "handler": replace_values},
}


def state_of(messages: Sequence[ChatMessage]) -> State:
    """
    Return an Agent's state; the provider has not reported any usage.

    :param messages: The conversation.
    :returns: A new state with a list of its own.
    """
    data = {"messages": list(messages), "step_count": 1, "context_tokens": 0, "hook_context": {}, "tools": []}
    return State(schema=_SCHEMA, data=data)


def conversation(messages: int, characters: int) -> list[ChatMessage]:
    """
    Return a conversation: instructions, a task, and steps of one call with its result.

    :param messages: How many messages; an even number.
    :param characters: How much text all results have together.
    :returns: The conversation, always the same.
    """
    steps = messages // 2 - 1
    results = texts(characters // steps)
    started = [
        ChatMessage.from_system("You are a careful researcher. Cite the file and the line for everything you claim."),
        ChatMessage.from_user("Find out how the standard library schedules its timers, and where it waits."),
    ]
    for number in range(steps):
        started += step([next(results)], number)
    return started


def step(results: Sequence[str], number: int = 0) -> list[ChatMessage]:
    """
    Return one step of an Agent with parallel calls.

    :param results: The texts of the results.
    :param number: The number of the step.
    :returns: The assistant message and a message for each result.
    """
    calls = [
        ToolCall(
            tool_name=TOOLS[(number + place) % len(TOOLS)],
            arguments={"target": f"source/{number}/{place}", "limit": 200, "fields": ["name", "line", "text"]},
            id=f"call_{number}_{place}",
        )
        for place in range(len(results))
    ]
    return [
        ChatMessage.from_assistant("I look at the next source.", tool_calls=calls),
        *(ChatMessage.from_tool(text, origin=call) for text, call in zip(results, calls, strict=True)),
    ]


def texts(length: int) -> Iterator[str]:
    """
    Yield texts without end: code, records and log lines in turn.

    :param length: Characters of each.
    """
    random = Random(7)
    code = _code()
    while True:
        start = random.randrange(len(code) - length)
        yield code[start : start + length]
        records = [
            {"id": random.getrandbits(32), "name": f"user{n}", "score": random.random(), "active": n % 3 == 0}
            for n in range(length // 60)
        ]
        yield json.dumps(records)[:length].ljust(length)
        lines = (
            f"2031-04-0{random.randrange(1, 9)}T12:{n % 60:02}:07Z INFO worker-{n % 8} took {random.randrange(900)} ms"
            for n in range(length // 40)
        )
        yield "\n".join(lines)[:length].ljust(length)


@cache
def _code() -> str:
    library = Path(sysconfig.get_path("stdlib"))
    return "".join(file.read_text("utf-8", "replace") for file in sorted((library / "asyncio").glob("*.py")))
