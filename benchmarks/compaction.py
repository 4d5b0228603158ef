"""Compacting a long conversation: how long it takes and how long the event loop stands still."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import anyio
import haystack.hooks.compaction as haystack_compaction
import haystack.token_counters as haystack_counters
import tiktoken
import tiktoken.registry
from haystack.dataclasses import ChatMessage
from haystack.hooks.invocation import _run_hooks_async
from haystack.hooks.utils import warm_up_hooks_async

import haybaler
from benchmarks.conversations import conversation, state_of
from benchmarks.report import HAYBALER, HAYSTACK, LOOP, RAW, TIME, Group
from benchmarks.timing import Action, Case, measure
from haybaler.counters.rendering import rendered

# By name: haybaler's compactor and Haystack's, for the offload compactors with the same store.
COMPACTORS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "sliding window": (haybaler.SlidingWindowCompactor, haystack_compaction.SlidingWindowCompactor),
    "pruning": (haybaler.ToolResultPruningCompactor, haystack_compaction.ToolResultPruningCompactor),
    "offload": (
        lambda: haybaler.ToolResultOffloadCompactor(haybaler.InMemoryToolResultStore()),
        lambda: haystack_compaction.ToolResultOffloadCompactor(haybaler.InMemoryToolResultStore()),
    ),
}

FILL = 0.8  # of the window, where compaction begins at 0.7 and aims at 0.4


def haybaler_hook(compactor: Any, counter: Any, window: int) -> Any:
    """Return haybaler's hook."""
    return haybaler.CompactionHook(compactor, context_window=window, token_counter=counter)


def haystack_hook(compactor: Any, counter: Any, window: int) -> Any:
    """Return Haystack's hook."""
    return haystack_compaction.CompactionHook(compactor, context_window=window, token_counter=counter)


async def run_hook(hook: Any, state: Any) -> None:
    """Call a hook the way `Agent.run_async` does."""
    await _run_hooks_async({"before_llm": [hook]}, "before_llm", state)


def _compacting(hook: Any, messages: list[ChatMessage]) -> Callable[[], AbstractContextManager[Action]]:
    @contextmanager
    def prepare() -> Iterator[Action]:
        state = state_of(messages)

        async def act() -> None:
            await run_hook(hook, state)

        yield act
        assert state.data["messages"] != messages, "nothing was compacted"

    return prepare


def _counting_once(messages: list[ChatMessage]) -> Callable[[], AbstractContextManager[Action]]:
    encoder = tiktoken.get_encoding("o200k_base")
    texts = ["".join(rendered([message])) for message in messages]

    @contextmanager
    def prepare() -> Iterator[Action]:
        async def act() -> None:
            await anyio.to_thread.run_sync(lambda: sum(len(encoder.encode_ordinary(text)) for text in texts))

        yield act

    return prepare


async def compaction(*, repetitions: int, quick: bool) -> Group:
    """Time the three compactors on conversations of two lengths."""
    counter, haystack_counter = haybaler.TiktokenCounter(), haystack_counters.TiktokenCounter()
    sizes = [(402, 800_000)] if quick else [(402, 800_000), (4_002, 4_000_000)]
    cases: list[Case] = []
    for count, characters in sizes:
        messages = conversation(count, characters)
        window = int(counter.count(messages) / FILL)
        for name, (ours, theirs) in COMPACTORS.items():
            subject = f"{name}, {count:,} messages, {characters / 1e6:.1f} MB"
            cases += [
                Case(subject, HAYBALER, _compacting(haybaler_hook(ours(), counter, window), messages)),
                Case(subject, HAYSTACK, _compacting(haystack_hook(theirs(), haystack_counter, window), messages)),
                Case(subject, RAW, _counting_once(messages)),
            ]
    await measure(cases, repetitions=repetitions)
    target = "Target: the loop stands still for at most 10 ms. The floor: encoding every message once in a thread."
    return Group("compaction", "CompactionHook.run_async with tiktoken", target, [TIME, *LOOP], cases)


def _loading(make_hook: Callable[[Any, Any, int], Any], counter: Callable[[], Any]) -> Any:
    @contextmanager
    def prepare() -> Iterator[Action]:
        tiktoken.registry.ENCODINGS.clear()
        hook = make_hook(haybaler.SlidingWindowCompactor(), counter(), 1_000_000)

        async def act() -> None:
            await warm_up_hooks_async({"before_llm": [hook]})

        yield act

    return prepare


@contextmanager
def _loading_in_a_thread() -> Iterator[Action]:
    tiktoken.registry.ENCODINGS.clear()

    async def act() -> None:
        await anyio.to_thread.run_sync(tiktoken.get_encoding, "o200k_base")

    yield act


async def loading(*, repetitions: int, quick: bool) -> Group:
    """Time what happens once for each process: the vocabulary is loaded."""
    cases = [
        Case("o200k_base", HAYBALER, _loading(haybaler_hook, haybaler.TiktokenCounter)),
        Case("o200k_base", HAYSTACK, _loading(haystack_hook, haystack_counters.TiktokenCounter)),
        Case("o200k_base", RAW, _loading_in_a_thread),
    ]
    await measure(cases, repetitions=repetitions)
    # While tiktoken builds its table in compiled code, no other thread runs, so the floor stalls too.
    target = "Once for each process, before its first run. The floor: loading it in a thread."
    return Group("loading", "Warming up the hook: tiktoken's vocabulary", target, [TIME, *LOOP], cases)
