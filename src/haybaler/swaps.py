"""A message whose results are replaced by pointers: what goes into the store, and the way there and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from haystack.dataclasses import ChatMessage, ToolCallResult
from haystack.dataclasses.chat_message import ChatMessageContentT

from haybaler.errors import StoreError, StoreTimeoutError
from haybaler.parts import Part
from haybaler.references import (
    OFFLOADED_META,
    most_bytes_of_pointers,
    offloaded_references,
    pointer_text,
)


def with_results(message: ChatMessage, texts: dict[int, str], meta: dict[str, Any]) -> ChatMessage:
    """
    Return a message with some of its results replaced by a text; origin, error flag and metadata stay.

    :param message: The message; it is not touched.
    :param texts: For the place of a result among the message's results, the text that replaces it.
    :param meta: What is added to the metadata.
    :returns: The new message.
    """
    content: list[ChatMessageContentT] = []
    place = 0
    for part in message._content:  # noqa: SLF001 - there is no public way to the parts in their order
        if isinstance(part, ToolCallResult):
            if place in texts:
                part = ToolCallResult(texts[place], part.origin, part.error)  # noqa: PLW2901
            place += 1
        content.append(part)
    return replace(message, _content=content, _meta={**message.meta, **meta})


class Slot(NamedTuple):
    """
    A message whose results are to be replaced by pointers, whole or not at all.

    :param place: Its place in the conversation.
    :param message: The message.
    :param results: The results that are replaced, by their places among the message's results, in order.
    :param parts: Their parts, which are to be written, in the same order.
    :param meta: What is added to the metadata beside the references.
    """

    place: int
    message: ChatMessage
    results: Mapping[int, ToolCallResult]
    parts: list[Part]
    meta: Mapping[str, Any] | None = None

    @property
    def tool_names(self) -> list[str]:
        """The tools whose results are replaced."""
        return [result.origin.tool_name for result in self.results.values()]

    def replaced(self, references: Sequence[str]) -> ChatMessage:
        """
        Return the message with pointers in place of its results.

        :param references: Reference i belongs to part i.
        :returns: The new message.
        """
        lines: dict[int, list[str]] = {}
        for part, reference in zip(self.parts, references, strict=True):
            lines.setdefault(part.place, []).append(part.description.line(reference))
        texts = {place: pointer_text(of_result) for place, of_result in lines.items()}
        return with_results(self.message, texts, {**(self.meta or {}), OFFLOADED_META: list(references)})

    def bounds(self, references: Sequence[str]) -> tuple[int, int] | None:
        """
        Bound the size of the message, as it is and with pointers, as counters render it, without making either.

        :param references: Reference i belongs to part i.
        :returns: The characters that it has at least as it is, and the bytes of UTF-8 that it has at most with
            pointers; None if something stays in the message that is no pointer.
        """
        if len(self.results) < len(self.message._content):  # noqa: SLF001 - no public view has all parts
            return None
        shown = [*references, *self.tool_names]
        characters = 0
        for part in self.parts:
            shown.append(part.shown)
            characters += len(part.content) if isinstance(part.content, str) else 0
        return characters, most_bytes_of_pointers(shown, parts=len(self.parts), pointers=len(self.results))


@dataclass(slots=True)
class Swap:
    """
    A message and the pointer that takes its place.

    :param slot: The message, and what of it goes into the store.
    :param references: The references that are expected of the store; reference i belongs to part i of the slot.
    """

    slot: Slot
    references: list[str]
    _pointer: ChatMessage | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def pointer(self) -> ChatMessage:
        """The message with pointers, made when it is first asked for."""
        if self._pointer is None:
            self._pointer = self.slot.replaced(self.references)
        return self._pointer


class Fate(NamedTuple):
    """
    What became of the writes of a swap.

    :param swap: The swap.
    :param written: The references that the store gave for what it has stored.
    :param failure: Why something of it was not stored; None if all of it was.
    """

    swap: Swap
    written: list[str]
    failure: StoreError | None

    @property
    def orphans(self) -> list[str]:
        """What may be in the store in vain, if the swap's references are what the store gives."""
        late = self.swap.references if isinstance(self.failure, StoreTimeoutError) else []
        return list(dict.fromkeys([*self.written, *late])) if self.failure else []


def fates(swaps: Iterable[Swap], outcomes: Sequence[str | StoreError]) -> Iterator[Fate]:
    """
    Tell what became of each swap of a batch.

    :param swaps: The swaps, in the order in which their parts were written.
    :param outcomes: Outcome i belongs to part i of the batch: a reference, or why it was not stored.
    :returns: Fate i belongs to swap i.
    """
    end = 0
    for swap in swaps:
        start, end = end, end + len(swap.slot.parts)
        own = list(outcomes[start:end])
        if own == swap.references:  # as nearly always
            yield Fate(swap, swap.references, None)
            continue
        written = [outcome for outcome in own if isinstance(outcome, str)]
        failures = [outcome for outcome in own if isinstance(outcome, StoreError)]
        yield Fate(swap, written, failures[0] if failures else None)


def standing(swaps: Sequence[Swap], messages: Iterable[ChatMessage]) -> list[Swap]:
    """
    Return the swaps whose pointers are part of a conversation.

    :param swaps: The swaps.
    :param messages: The conversation.
    :returns: Those whose pointer is there, or a copy of it, in their order.
    """
    there = {id(message) for message in messages}
    if all(id(swap.pointer) in there for swap in swaps):
        return list(swaps)
    references = {tuple(offloaded_references(message)) for message in messages}
    return [swap for swap in swaps if tuple(swap.references) in references]


def undone(swaps: Sequence[Swap], messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """
    Put the original messages back where their pointers still are.

    A pointer may be a copy, for other hooks copy messages; it is told by its references. Where it was dropped, or
    replaced by something that does not lead to the store any more, there is nothing to put back.

    :param swaps: The swaps to undo.
    :param messages: The conversation; it is not touched.
    :returns: The conversation with the originals.
    """
    originals = {id(swap.pointer): swap.slot.message for swap in swaps}
    restored = [originals.get(id(message), message) for message in messages]
    there = {id(message) for message in messages}
    copied = {tuple(swap.references): swap for swap in swaps if id(swap.pointer) not in there}
    return [_original(message, copied) for message in restored] if copied else restored


def _original(message: ChatMessage, copied: Mapping[tuple[str, ...], Swap]) -> ChatMessage:
    swap = copied.get(tuple(offloaded_references(message)))
    if swap is None:
        return message
    texts = [result.result for result in message.tool_call_results if isinstance(result.result, str)]
    leads_there = any(reference in text for reference in swap.references for text in texts)
    return swap.slot.message if leads_there or message == swap.pointer else message
