"""What compaction does to the bill: a run of 60 steps replayed, with the provider's prompt cache in mind."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Any

import haystack.hooks.compaction as haystack_compaction
import haystack.token_counters as haystack_counters
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.tool import Tool

import haybaler
from benchmarks.compaction import haybaler_hook, haystack_hook
from benchmarks.conversations import texts
from benchmarks.report import HAYBALER, HAYSTACK, Column, Group
from benchmarks.timing import Action, Case, measure

STEPS = 60
CACHED_PRICE = 0.1  # of what a token costs that the provider has not cached

MESSAGE_TOKENS = 4  # that a provider's chat template adds to each message
PROSE = (
    "the of a timer runs until every task that waits has been woken and its owner knows why it was late since "
    "nobody else may cancel what another scheduler began before midnight unless both agree about it in writing"
)

NOTHING = "neither"
COLUMNS = [
    Column.plain(figure, header)
    for figure, header in (
        ("cost", "cost"),
        ("rewrites", "rewrites"),
        ("invalidated", "changed"),
        ("sent", "sent"),
        ("cached", "cached"),
        ("uncached", "uncached"),
        ("peak", "fullest"),
        ("after", "after"),
    )
]

Step = tuple[dict[str, Any], str]  # a call's arguments and its result


class Bill:
    """
    What a provider would charge, with a cache that holds the whole of each request until the next one.

    A message that both requests begin with is cached; from the first that differs on, everything is read anew.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self.rewrites = self.invalidated = self.sent = self.cached = self.peak = 0
        self.fills: list[float] = []  # of the window, after each rewrite
        self._sizes: dict[int, tuple[ChatMessage, int]] = {}  # the message keeps its id from being given away
        self._counter = haybaler.TiktokenCounter()
        self._last: list[ChatMessage] = []

    def size(self, message: ChatMessage) -> int:
        if id(message) not in self._sizes:
            self._sizes[id(message)] = (message, MESSAGE_TOKENS + self._counter.count([message]))
        return self._sizes[id(message)][1]

    def take(self, messages: Sequence[ChatMessage]) -> int:
        """Charge a request and return its tokens."""
        common = 0
        while common < min(len(messages), len(self._last)) and _same(messages[common], self._last[common]):
            common += 1
        tokens = sum(map(self.size, messages))
        if common < len(self._last):
            self.rewrites += 1
            self.invalidated += sum(map(self.size, self._last[common:]))
            self.fills.append(tokens / self.window)
        self.sent += tokens
        self.cached += sum(map(self.size, messages[:common]))
        self.peak = max(self.peak, tokens)
        self._last = list(messages)
        return tokens

    def figures(self) -> dict[str, float]:
        uncached = self.sent - self.cached
        figures = {
            "cost": (uncached + CACHED_PRICE * self.cached) / 1000,
            "rewrites": self.rewrites,
            "invalidated": self.invalidated / 1000,
            "sent": self.sent / 1000,
            "cached": self.cached / 1000,
            "uncached": uncached / 1000,
            "peak": 100 * self.peak / self.window,
        }
        return figures | ({"after": 100 * sum(self.fills) / len(self.fills)} if self.fills else {})


def _same(one: ChatMessage, other: ChatMessage) -> bool:
    # Metadata is not sent.
    return one is other or (one.role, one._content) == (other.role, other._content)


class Replayer:
    """A chat model that makes the same calls in every run, whatever it is shown, and reports its usage."""

    def __init__(self, steps: Sequence[Step], bill: Bill) -> None:
        self._steps = iter(enumerate(steps))
        self._bill = bill

    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **settings: Any) -> dict[str, Any]:
        number, step = next(self._steps, (0, None))
        reply = ChatMessage.from_assistant("That is all.")
        if step is not None:
            call = ToolCall("work", {"step": number, **step[0]}, id=f"call_{number}")
            reply = ChatMessage.from_assistant("I go on.", tool_calls=[call])
        usage = {"prompt_tokens": self._bill.take(messages), "completion_tokens": self._bill.size(reply)}
        reply.meta["usage"] = usage
        return {"replies": [reply]}

    def run(self, messages: list[ChatMessage], tools: Any = None, **settings: Any) -> dict[str, Any]:
        raise NotImplementedError


def _replayed(hook: Any | None, steps: Sequence[Step], window: int) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        bill = Bill(window)
        tool = Tool(
            "work",
            "Does the work.",
            {"type": "object", "properties": {"step": {"type": "integer"}}},
            function=lambda step, **_: steps[step][1],
        )
        agent = Agent(
            chat_generator=Replayer(steps, bill),
            tools=[tool],
            system_prompt="You are a careful engineer. Say what you do and why.",
            hooks={} if hook is None else {"before_llm": [hook]},
            max_agent_steps=STEPS + 2,
        )

        async def act() -> dict[str, float]:
            await agent.run_async([ChatMessage.from_user("Port the scheduler to the new timers, file by file.")])
            return bill.figures()

        yield act

    return prepare


def _ordinary() -> list[Step]:
    sources = texts(2_400)
    return [({"target": f"source/{number}.py", "limit": 200}, next(sources)) for number in range(STEPS)]


def _large_arguments() -> list[Step]:
    sources = texts(1_200)
    return [({"file": f"source/{number}.py", "content": next(sources)}, next(sources)) for number in range(STEPS)]


def _mixture() -> list[Step]:
    random = Random(5)
    steps: list[Step] = []
    for number in range(STEPS):
        length = random.choice((150, 900, 2_400, 6_000))
        rows = ({"id": random.getrandbits(64), "at": random.random(), "tags": [n, -n]} for n in range(length // 70))
        prose = " ".join(random.choices(PROSE.split(), k=length // 6))
        steps.append(({"query": f"part {number}"}, prose if number % 2 else json.dumps(list(rows))))
    return steps


KINDS: dict[str, tuple[Callable[[], list[Step]], int]] = {
    "ordinary": (_ordinary, 16_000),
    "large arguments": (_large_arguments, 36_000),
    "prose and JSON": (_mixture, 16_000),
}


def _compactors() -> Iterator[tuple[str, Any, Any]]:
    """Yield haybaler's and Haystack's compactors, those of results also with five whole steps at the end."""
    yield "sliding window", haybaler.SlidingWindowCompactor(), haystack_compaction.SlidingWindowCompactor()
    for keep, named in (1, ""), (5, ", 5 steps kept"):
        yield (
            f"pruning{named}",
            haybaler.ToolResultPruningCompactor(min_keep_steps=keep),
            haystack_compaction.ToolResultPruningCompactor(min_keep_steps=keep),
        )
        yield (
            f"offload{named}",
            haybaler.ToolResultOffloadCompactor(haybaler.InMemoryToolResultStore(), min_keep_steps=keep),
            haystack_compaction.ToolResultOffloadCompactor(haybaler.InMemoryToolResultStore(), min_keep_steps=keep),
        )


async def replay(*, repetitions: int, quick: bool) -> Group:
    """Replay runs of several kinds with every compactor."""
    counter, haystack_counter = haybaler.TiktokenCounter(), haystack_counters.TiktokenCounter()
    cases: list[Case] = []
    for kind, (make_steps, window) in KINDS.items():
        steps = make_steps()
        for name, ours, theirs in _compactors():
            subject = f"{kind}, {name}"
            our_hook, their_hook = haybaler_hook(ours, counter, window), haystack_hook(theirs, haystack_counter, window)
            cases += [
                Case(subject, HAYBALER, _replayed(our_hook, steps, window)),
                Case(subject, HAYSTACK, _replayed(their_hook, steps, window)),
            ]
        cases.append(Case(f"{kind}, no compaction", NOTHING, _replayed(None, steps, window)))
    await measure(cases, repetitions=1)  # the same every time
    target = (
        "Thousands of tokens. cost: a token that the provider has cached counts for a tenth. changed: cached before\n"
        "a rewrite. fullest: the largest request, after: requests after a rewrite on average, in % of the window.\n"
        "No compaction: in a window without end."
    )
    return Group(
        "replay", f"Bill of {STEPS} steps, compaction from 70 % to 40 %, usage reported", target, COLUMNS, cases
    )
