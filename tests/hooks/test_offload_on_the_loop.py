"""What `ToolResultOffloadHook` chooses on the event loop, and what it leaves to worker threads."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, ImageContent, TextContent
from tests.hooks.agents import agent_state, answered, call, calling, conversation
from tests.hooks.parts import AsyncStore, CountingCounter

from haybaler import (
    AlwaysOffload,
    ApproximateTokenCounter,
    InMemoryToolResultStore,
    OffloadOverChars,
    OffloadOverTokens,
    ToolResultOffloadHook,
)
from haybaler.counters import run as counting
from haybaler.references import is_offloaded
from haybaler.turns import run_in_turn

LONG = "a long result " * 100
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def step(number: int, result: Any = LONG) -> list[ChatMessage]:
    calls = [call("fetch", n) for n in range(1, number + 1)]
    return [ChatMessage.from_user("task"), calling(*calls), *(answered(made, result) for made in calls)]


def moved(messages: list[ChatMessage]) -> int:
    return sum(map(is_offloaded, messages))


class Witness:
    """Remembers in which threads it was asked."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()

    def should_offload(self, tool_name: str, result: str, state: Any) -> bool:
        self.threads.add(threading.current_thread())
        return True


class WitnessOfOurs(AlwaysOffload):
    """Somebody's own class that inherits what a class of haybaler's says of itself."""

    def __init__(self) -> None:
        self.threads: set[threading.Thread] = set()

    def should_offload(self, tool_name: str, result: str, state: Any) -> bool:
        self.threads.add(threading.current_thread())
        return True


class WitnessThatComputes(Witness):
    decides_inline = True


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note every use of a worker thread by the effects of steps and by counters."""
    used: list[str] = []
    for name in ("haybaler.effects", "haybaler.counters.run"):
        real = __import__(name, fromlist=["run_in_worker"]).run_in_worker

        async def noted(function: Any, *args: Any, real: Any = real, **kwargs: Any) -> Any:
            used.append(getattr(function, "__qualname__", repr(function)))
            return await real(function, *args, **kwargs)

        monkeypatch.setattr(f"{name}.run_in_worker", noted)
    return used


@pytest.mark.anyio
@pytest.mark.parametrize("number", [1, 8])
@pytest.mark.parametrize("characters", [20_000, 150_000])
@pytest.mark.parametrize("store", [InMemoryToolResultStore, AsyncStore])
async def test_a_few_texts_are_moved_without_a_worker_thread(
    workers: list[str], number: int, characters: int, store: Any
) -> None:
    state = agent_state(step(number, "x" * (characters // number)))
    await ToolResultOffloadHook(store(), {"*": OffloadOverChars(100)}).run_async(state)
    assert moved(conversation(state)) == number
    assert workers == []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("messages", "settings"),
    [
        (step(40), {}),
        (step(1, [ImageContent(PIXEL, validation=False)]), {}),
        (step(1, "x" * 900_000), {"preview_chars": 400_000}),
    ],
    ids=["many", "to be decoded", "a long pointer"],
)
async def test_what_takes_its_time_is_chosen_in_a_worker_thread(
    workers: list[str], messages: list[ChatMessage], settings: dict[str, Any]
) -> None:
    state = agent_state(messages)
    await ToolResultOffloadHook(InMemoryToolResultStore(), {"*": AlwaysOffload()}, **settings).run_async(state)
    assert moved(conversation(state)) == len(messages) - 2
    assert "OffloadPlan.next_batch" in workers


@pytest.mark.anyio
@pytest.mark.parametrize("inline", [False, None])
async def test_a_counter_that_may_block_sizes_pointers_in_a_worker_thread(inline: bool | None) -> None:
    class Blocking(CountingCounter):
        counts_inline = inline  # type: ignore[assignment]

        def count(self, messages: Any, tools: Any = None) -> int:
            threads.add(threading.current_thread())
            return super().count(messages, tools)

    threads: set[threading.Thread] = set()
    state = agent_state(step(3))
    hook = ToolResultOffloadHook(InMemoryToolResultStore(), {"*": AlwaysOffload()}, token_counter=Blocking())
    await hook.run_async(state)
    assert moved(conversation(state)) == 3
    assert threading.current_thread() not in threads


@pytest.mark.anyio
async def test_a_counter_that_only_counts_asynchronously_is_asked_before_a_plan_is_made() -> None:
    class Remote:
        async def count_async(self, messages: Any, tools: Any = None) -> int:
            counted.extend(messages)
            return CountingCounter().count(messages, tools)

    counted: list[ChatMessage] = []
    messages = step(3)
    state = agent_state(messages)
    hook = ToolResultOffloadHook(InMemoryToolResultStore(), {"*": OffloadOverTokens(1)}, token_counter=Remote())  # type: ignore[arg-type]
    await hook.run_async(state)
    assert counted == messages[2:]
    assert moved(conversation(state)) == 3


@pytest.mark.anyio
@pytest.mark.parametrize("beside", ["", "text beside the result " * 2_000])
async def test_much_text_is_counted_in_a_worker_thread_wherever_it_stands(beside: str) -> None:
    class Noting(CountingCounter):
        counts_inline = True

        def count(self, messages: Any, tools: Any = None) -> int:
            threads.add(threading.current_thread())
            return super().count(messages, tools)

    threads: set[threading.Thread] = set()
    *before, last = step(1, LONG if beside else LONG * 20)
    content: list[Any] = [*last.tool_call_results, *([TextContent(beside)] if beside else [])]
    state = agent_state([*before, replace(last, _content=content)])
    hook = ToolResultOffloadHook(InMemoryToolResultStore(), {"*": AlwaysOffload()}, token_counter=Noting())
    await hook.run_async(state)
    assert moved(conversation(state)) == 1
    assert threads
    assert threading.current_thread() not in threads


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("policy", "on_the_loop"), [(Witness(), False), (WitnessOfOurs(), False), (WitnessThatComputes(), True)]
)
async def test_a_policy_is_asked_on_the_loop_only_if_its_own_class_says_that_it_may(
    policy: Any, on_the_loop: bool
) -> None:
    state = agent_state(step(2))
    await ToolResultOffloadHook(InMemoryToolResultStore(), {"*": policy}).run_async(state)
    assert moved(conversation(state)) == 2
    assert (threading.current_thread() in policy.threads) is on_the_loop


@pytest.mark.anyio
async def test_all_choosing_on_the_loop_is_done_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = False

    async def in_turn(function: Any, *args: Any) -> Any:
        nonlocal inside
        inside = True
        try:
            return await run_in_turn(function, *args)
        finally:
            inside = False

    class Store(InMemoryToolResultStore):
        def reference(self, key: str) -> str:  # asked when pointers are sized
            asked.append(inside)
            return super().reference(key)

    asked: list[bool] = []
    monkeypatch.setattr("haybaler.effects.run_in_turn", in_turn)
    state = agent_state(step(3))
    await ToolResultOffloadHook(Store(), {"*": AlwaysOffload()}).run_async(state)
    assert asked == [True] * 3


def test_a_result_that_is_moved_at_once_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(message: ChatMessage) -> int:
        raise AssertionError

    monkeypatch.setattr(counting, "words_in", looked)
    state = agent_state(step(3))
    ToolResultOffloadHook(InMemoryToolResultStore(), {"*": AlwaysOffload()}).run(state)
    assert moved(conversation(state)) == 3


class WithoutBounds(ApproximateTokenCounter):
    """Counts alike, but its class does not say what it counts at most and at least."""


def test_bounds_decide_as_exact_sizes_do() -> None:
    def is_moved(text: str, counter: ApproximateTokenCounter) -> bool:
        state = agent_state(step(1, text))
        hook = ToolResultOffloadHook(InMemoryToolResultStore(), {"*": AlwaysOffload()}, token_counter=counter)
        hook.run(state)
        return moved(conversation(state)) == 1

    # The shortest are shorter than their pointers; bounds tell from 2,000 characters on, beyond ASCII from 3,588 on.
    for letter in "x\u00e9":
        texts = [letter * length for length in (*range(200, 400, 3), *range(1_500, 4_000, 50))]
        decided = [is_moved(text, ApproximateTokenCounter()) for text in texts]
        assert decided == [is_moved(text, WithoutBounds()) for text in texts]
        assert not decided[0]
        assert decided[-1]


@pytest.mark.parametrize(
    ("policy", "sized"), [(AlwaysOffload(), 0), (OffloadOverChars(1), 0), (OffloadOverTokens(1), 3)]
)
def test_a_long_result_is_only_counted_for_a_policy_by_tokens(policy: Any, sized: int) -> None:
    class Noting(ApproximateTokenCounter):
        most_tokens = ApproximateTokenCounter.most_tokens
        least_tokens = ApproximateTokenCounter.least_tokens

        def count(self, messages: Any, tools: Any = None) -> int:
            counted.extend(messages)
            return super().count(messages, tools)

    counted: list[ChatMessage] = []
    state = agent_state(step(3, "x" * 10_000))
    ToolResultOffloadHook(InMemoryToolResultStore(), {"*": policy}, token_counter=Noting()).run(state)
    assert moved(conversation(state)) == 3
    assert len(counted) == sized
