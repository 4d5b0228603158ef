"""The compactors under test, and how they are run in both colours."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from haystack.dataclasses import ChatMessage

from haybaler.compactors.offload import ToolResultOffloadCompactor
from haybaler.compactors.protocol import SteppedCompactor
from haybaler.compactors.pruning import ToolResultPruningCompactor
from haybaler.compactors.sliding_window import SlidingWindowCompactor
from haybaler.counters.approximate import ApproximateTokenCounter
from haybaler.references import OFFLOADED_META
from haybaler.stores.memory import InMemoryToolResultStore


class Subject(NamedTuple):
    """A compactor with the settings that it is tried with, and what carries it out."""

    name: str
    make: Callable[[Any], SteppedCompactor]
    colour: str

    def compact(
        self, messages: list[ChatMessage], target: int, counter: Any = None, store: Any = None
    ) -> list[ChatMessage] | None:
        compactor = self.make(InMemoryToolResultStore() if store is None else store)
        return run(self.colour, compactor, messages, target, counter)


def run(
    colour: str, compactor: Any, messages: list[ChatMessage], target: int, counter: Any = None
) -> list[ChatMessage] | None:
    counter = counter or ApproximateTokenCounter()
    result: list[ChatMessage] | None = (
        compactor.compact(messages, target, counter)
        if colour == "sync"
        else asyncio.run(compactor.compact_async(messages, target, counter))
    )
    return result


COLOURS = ("sync", "async")

MAKERS: dict[str, Callable[[Any], SteppedCompactor]] = {
    "sliding_window": lambda store: SlidingWindowCompactor(),
    "sliding_window_merging": lambda store: SlidingWindowCompactor(merge_note=True),
    "sliding_window_silent": lambda store: SlidingWindowCompactor(min_keep_steps=0, omission_note=None),
    "pruning": lambda store: ToolResultPruningCompactor(),
    "pruning_all": lambda store: ToolResultPruningCompactor(min_tokens=0, min_keep_steps=2),
    "offload": ToolResultOffloadCompactor,
    "offload_all": lambda store: ToolResultOffloadCompactor(store, min_tokens=0, preview_chars=0, offload_errors=True),
}

SUBJECTS = [Subject(name, make, colour) for name, make in MAKERS.items() for colour in COLOURS]


def size_of(messages: Sequence[ChatMessage]) -> int:
    """Return the size of a conversation as compactors see it: the sum of the sizes of its messages."""
    counter = ApproximateTokenCounter()
    return sum(counter.count([message]) for message in messages)


def new_references(before: Sequence[ChatMessage], after: Sequence[ChatMessage] | None) -> Iterator[str]:
    """Return the references of the messages that were replaced."""
    old = {id(message) for message in before}
    for message in after or ():
        if id(message) not in old:
            yield from message.meta.get(OFFLOADED_META, [])
