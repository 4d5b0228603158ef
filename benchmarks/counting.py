"""What counting costs: in every step that does not compact, and in messages handed to the counter by one that does."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from statistics import median
from time import perf_counter
from typing import Any

import haystack.token_counters as haystack_counters
from haystack.dataclasses import ChatMessage

import haybaler
from benchmarks.compaction import COMPACTORS, FILL, haybaler_hook, haystack_hook, run_hook
from benchmarks.conversations import conversation, state_of
from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, Column, Group
from benchmarks.timing import Action, Case, measure

MESSAGES = 4_002
CHARACTERS = 4_000_000
STEPS = 10
HUGE_WINDOW = 100_000_000


def _steps(hook: Any, messages: list[ChatMessage], steps: int) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        state = state_of(messages)
        hook.run(state)  # the first count, which nothing can avoid

        async def act() -> dict[str, float]:
            times = []
            for _ in range(steps):
                state.data["messages"] = [*state.data["messages"], ChatMessage.from_assistant("I look further.")]
                before = perf_counter()
                await run_hook(hook, state)
                times.append(perf_counter() - before)
            return {"step": median(times)}

        yield act

    return prepare


@contextmanager
def _sums() -> Iterator[Action]:
    numbers = list(range(MESSAGES))

    async def act() -> dict[str, float]:
        times = []
        for _ in range(STEPS):
            before = perf_counter()
            sum(numbers)
            times.append(perf_counter() - before)
        return {"step": median(times)}

    yield act


async def steps(*, repetitions: int, quick: bool) -> Group:
    """Time the hook in steps that do not compact; no usage is reported."""
    messages = conversation(MESSAGES, CHARACTERS)
    length = 3 if quick else STEPS
    cases: list[Case] = []
    for name, ours, theirs in (
        ("tiktoken", haybaler.TiktokenCounter(), haystack_counters.TiktokenCounter()),
        ("approximate", haybaler.ApproximateTokenCounter(), haystack_counters.ApproximateTokenCounter()),
    ):
        subject = f"{MESSAGES:,} messages, {name}"
        our_hook = haybaler_hook(haybaler.SlidingWindowCompactor(), ours, HUGE_WINDOW)
        their_hook = haystack_hook(COMPACTORS["sliding window"][1](), theirs, HUGE_WINDOW)
        cases += [
            Case(subject, HAYBALER, _steps(our_hook, messages, length)),
            Case(subject, HAYSTACK, _steps(their_hook, messages, length)),
            Case(subject, RAW, _sums),
        ]
    await measure(cases, repetitions=repetitions)
    target = f"Target: at most 1 ms a step after the first count. The floor: adding {MESSAGES:,} integers."
    columns = [Column("step", "each step"), *LOOP]
    return Group("steps", "CompactionHook.run_async, not triggered, one new message a step", target, columns, cases)


class CountingCounter:
    """An approximate counter that notes what it is asked for; the messages are kept, so that ids stay theirs."""

    def __init__(self) -> None:
        self.calls = 0
        self.handed: list[ChatMessage] = []
        self._counter = haystack_counters.ApproximateTokenCounter()

    def count(self, messages: list[ChatMessage], tools: Any = None) -> int:
        self.calls += 1
        self.handed += messages
        return self._counter.count(messages, tools)

    def to_dict(self) -> dict[str, Any]:
        return {}


def _handed(
    make_hook: Callable[[Any, Any, int], Any], compactor: Any, messages: list[ChatMessage]
) -> Callable[[], AbstractContextManager[Action]]:
    window = int(haystack_counters.ApproximateTokenCounter().count(messages) / FILL)

    @contextmanager
    def prepare() -> Iterator[Action]:
        counter = CountingCounter()
        hook, state = make_hook(compactor, counter, window), state_of(messages)

        async def act() -> dict[str, float]:
            await run_hook(hook, state)
            times = Counter(map(id, counter.handed))
            return {
                "handed": len(counter.handed) / len(messages),
                "most": max(times[id(message)] for message in messages),
                "calls": counter.calls,
            }

        yield act

    return prepare


def _once(messages: list[ChatMessage]) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        async def act() -> dict[str, float]:
            CountingCounter().count(messages)
            return {"handed": 1.0, "most": 1.0, "calls": 1.0}

        yield act

    return prepare


async def counts(*, repetitions: int, quick: bool) -> Group:
    """Count what the counter is asked for when a conversation is compacted."""
    cases: list[Case] = []
    for count, characters in [(402, 800_000)] if quick else [(402, 800_000), (MESSAGES, CHARACTERS)]:
        messages = conversation(count, characters)
        for name, (ours, theirs) in COMPACTORS.items():
            subject = f"{name}, {count:,} messages"
            cases += [
                Case(subject, HAYBALER, _handed(haybaler_hook, ours(), messages)),
                Case(subject, HAYSTACK, _handed(haystack_hook, theirs(), messages)),
                Case(subject, RAW, _once(messages)),
            ]
    await measure(cases, repetitions=1)  # the same every time
    columns = [
        Column.plain("handed", "counted / messages"),
        Column.plain("most", "the same at most"),
        Column.plain("calls", "calls"),
    ]
    target = "Target: each message once; replacements are new messages. The floor: counting all of them once."
    return Group("counts", "Counts in one compaction", target, columns, cases)
