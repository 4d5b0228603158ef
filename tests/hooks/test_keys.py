"""What runs store never meets, however alike they are: every key has a part that nobody can guess."""

import re
import secrets
from itertools import pairwise
from math import sqrt
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage
from tests.hooks.agents import Colour, agent_state, answered, both_colours, call, calling, conversation

from haybaler import (
    AlwaysOffload,
    CompactionHook,
    InMemoryToolResultStore,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    offloading,
)
from haybaler.offloading import KeyPrefixes
from haybaler.references import offloaded_references

RUNS = 30
REFERENCES = 300
BITS = 128

HOOKS: dict[str, Any] = {
    "hook": lambda store: ToolResultOffloadHook(store, {"*": AlwaysOffload()}),
    "compactor": lambda store: CompactionHook(ToolResultOffloadCompactor(store), context_window=500),
}


@both_colours
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
@pytest.mark.parametrize("call_id", [None, "", "call-1"])
def test_runs_that_look_the_same_never_meet_in_one_scope(colour: Colour, hook: Any, call_id: str | None) -> None:
    store = InMemoryToolResultStore()
    contents: dict[str, str] = {}
    part = hook(store)
    for run in range(RUNS):
        made, later = call("fetch", 1, call_id=call_id), call("fetch", 2, call_id=call_id)
        text = f"of run {run} " * 300
        messages = [ChatMessage.from_user("task"), calling(made), answered(made, text)]
        if isinstance(part, CompactionHook):
            messages += [calling(later), answered(later, "short")]
        state = agent_state(messages)
        colour.call(part, "run", state)
        [reference] = offloaded_references(conversation(state)[2])
        contents[reference] = text
    assert len(contents) == len(store) == RUNS
    assert [store.read(reference) for reference in contents] == list(contents.values())


@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_a_reference_has_128_random_bits(hook: Any) -> None:
    store = InMemoryToolResultStore()
    seen: list[int] = []
    for _ in range(REFERENCES):
        made, later = call("fetch", 1), call("fetch", 2)
        steps = [calling(made), answered(made, "text " * 600), calling(later), answered(later, "short")]
        state = agent_state([ChatMessage.from_user("task"), *steps[: 2 if hook is HOOKS["hook"] else 4]])
        hook(store).run(state)
        [reference] = offloaded_references(conversation(state)[2])
        found = re.search(rf"_([0-9a-f]{{{BITS // 4}}})\.txt\Z", reference)
        assert found, reference
        seen.append(int(found[1], 16))
    assert_random(seen)
    assert vars(offloading)["token_hex"] is secrets.token_hex


def test_the_random_parts_of_one_step_have_nothing_in_common() -> None:
    prefixes = KeyPrefixes("step")
    drawn = [prefixes.draw(f"tool{number % 3}") for number in range(REFERENCES)]
    assert [prefix[:-32] for prefix in drawn] == [f"step_tool{number % 3}_" for number in range(REFERENCES)]
    parts = [int(prefix[-32:], 16) for prefix in drawn]
    assert_random(parts)
    assert_random([one ^ other for one, other in pairwise(parts)])


def assert_random(numbers: list[int]) -> None:
    assert len(set(numbers)) == len(numbers)
    for bit in range(BITS):  # each is set in about half of them; six standard deviations either way
        assert abs(sum(number >> bit & 1 for number in numbers) - len(numbers) / 2) < 3 * sqrt(REFERENCES)
