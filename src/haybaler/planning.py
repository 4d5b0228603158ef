"""
Which results are replaced, decided before anything is written, and the new conversation once that is done.

Nothing here does I/O. A plan gives batches of items to write and takes the outcomes; between the two, somebody else
talks to the store.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from haystack.dataclasses import ChatMessage, ToolCallResult
from haystack.dataclasses.chat_message import ChatMessageContentT

from haybaler.conversation import Step, pair
from haybaler.errors import StoreError, StoreTimeoutError, StoreUnavailableError
from haybaler.parts import Part
from haybaler.references import OFFLOADED_META, PartDescription, pointer_text

Item = tuple[str, str | bytes]  # a key and the content to be stored under it


def unprotected_results(messages: Sequence[ChatMessage], keep_steps: int) -> list[int]:
    """
    Return the results that may be replaced: all but those of the newest tool-calling steps.

    :param messages: The conversation.
    :param keep_steps: How many of the newest tool-calling steps stay whole; at least 1.
    :returns: Indices of messages with results, oldest first.
    """
    steps: Sequence[Step] = pair(messages).steps
    protected = {index for step in steps[-keep_steps:] for index in step.results}
    return [i for i, message in enumerate(messages) if message.tool_call_results and i not in protected]


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
                part = ToolCallResult(result=texts[place], origin=part.origin, error=part.error)  # noqa: PLW2901
            place += 1
        content.append(part)
    return replace(message, _content=content, _meta={**message.meta, **meta})


@dataclass(frozen=True, slots=True)
class Slot:
    """
    A message whose results are to be replaced by pointers, whole or not at all.

    :param index: Its place in the conversation.
    :param message: The message.
    :param tokens: Its size.
    :param parts: For the place of each result that is replaced, the result's parts.
    :param keys: Key i belongs to part i, counted through all results.
    :param meta: What is added to the metadata beside the references.
    """

    index: int
    message: ChatMessage
    tokens: int
    parts: dict[int, list[Part]]
    keys: list[str]
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def items(self) -> list[Item]:
        """What is to be written, in the order of the keys."""
        contents = [part.content for parts in self.parts.values() for part in parts]
        return list(zip(self.keys, contents, strict=True))

    @property
    def tool_names(self) -> list[str]:
        """The tools whose results are replaced."""
        return [result.origin.tool_name for result in self.message.tool_call_results]

    def replaced(self, references: Sequence[str]) -> ChatMessage:
        """
        Return the message with pointers in place of its results.

        :param references: Reference i belongs to key i.
        :returns: The new message.
        """
        remaining: Iterator[str] = iter(references)
        texts: dict[int, str] = {}
        for place, parts in self.parts.items():
            descriptions: list[PartDescription] = [part.description for part in parts]
            texts[place] = pointer_text(descriptions, [next(remaining) for _ in parts])
        return with_results(self.message, texts, {**self.meta, OFFLOADED_META: list(references)})


class OffloadPlan:
    """
    The way of one conversation's results to the store.

    `next_batch` takes slots, oldest first, until what their pointers save covers the surplus; `settle` takes the
    outcomes of the batch. Results whose writes failed stay whole, and the next batch takes further slots instead. Once
    the plan `is_complete`, `messages` is the new conversation.

    :param messages: The conversation; neither the list nor its messages are touched.
    :param slots: The candidates, oldest first; taken one after another, as far as needed.
    :param surplus: How many tokens are to be saved; None for every slot that saves any.
    :param size: Sizes a message in tokens.
    :param predict: The reference that a key will have; None where the store cannot say. The key itself then stands in
        when a pointer is sized.
    :param minimum_gain: How many tokens the slots have to save together where that does not cover the surplus, given
        the index of the first; otherwise nothing is written. None if any saving will do.
    """

    def __init__(
        self,
        messages: Sequence[ChatMessage],
        slots: Iterable[Slot],
        *,
        surplus: int | None,
        size: Callable[[ChatMessage], int],
        predict: Callable[[str], str] | None,
        minimum_gain: Callable[[int], float] | None = None,
    ) -> None:
        self.messages = list(messages)
        self.changed = False
        self.failures: list[tuple[Slot, StoreError]] = []
        self.written: list[str] = []
        self.orphans: list[str] = []
        self._slots = iter(slots)
        self._surplus = surplus
        self._minimum_gain = minimum_gain
        self._size = size
        self._predict = predict or str
        self.is_predictable = predict is not None
        self._batch: list[tuple[Slot, ChatMessage]] = []
        self._hopeless = self._exhausted = False

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing more to write: the surplus is saved, no candidate is left, or the store is away."""
        return self._hopeless or self._exhausted or (self._surplus is not None and self._surplus <= 0)

    def next_batch(self) -> list[Item]:
        """
        Choose what is to be written next.

        :returns: Keys and contents; empty when no candidate would save anything.
        """
        self._batch = []
        missing = self._surplus
        gain = 0
        while missing is None or missing > 0:
            slot = next(self._slots, None)
            if slot is None:
                self._exhausted = True
                break
            replacement = slot.replaced([self._predict(key) for key in slot.keys])
            saving = slot.tokens - self._size(replacement)
            if saving > 0:
                self._batch.append((slot, replacement))
                gain += saving
                missing = None if missing is None else missing - saving
        if self._exhausted and not self.changed and self._is_too_little(gain):
            self._batch = []
        return [item for slot, _ in self._batch for item in slot.items]

    def _is_too_little(self, gain: int) -> bool:
        if self._minimum_gain is None or not self._batch:
            return False
        return gain < self._minimum_gain(self._batch[0][0].index)

    def references_in_flight(self) -> list[str]:
        """
        Return what may have been written although the conversation will not be replaced.

        :returns: The references of the settled batches, and predicted ones of the batch that is being written.
        """
        return [*self.orphans, *self.written, *(r for slot, _ in self._batch for r in self._predicted(slot))]

    def _predicted(self, slot: Slot) -> list[str]:
        return [self._predict(key) for key in slot.keys] if self.is_predictable else []

    def settle(self, outcomes: Sequence[str | StoreError]) -> None:
        """
        Apply the outcomes of the last batch.

        :param outcomes: Outcome i belongs to item i of the batch: a reference, or why it was not stored.
        """
        remaining = iter(outcomes)
        errors: list[StoreError] = []
        for slot, replacement in self._batch:
            own = [next(remaining) for _ in slot.keys]
            references = [outcome for outcome in own if isinstance(outcome, str)]
            failure = next((outcome for outcome in own if isinstance(outcome, StoreError)), None)
            if failure is not None:
                errors.append(failure)
                self.failures.append((slot, failure))
                late = self._predicted(slot) if isinstance(failure, StoreTimeoutError) else []
                self.orphans.extend(dict.fromkeys([*references, *late]))
            else:
                self._swap(slot, replacement, references)
        # Nothing got through and the store is not there: asking it for every further result would only cost time.
        self._hopeless = (
            bool(errors)
            and len(errors) == len(self._batch)
            and all(isinstance(e, StoreUnavailableError) for e in errors)
        )
        self._batch = []

    def _swap(self, slot: Slot, predicted: ChatMessage, references: list[str]) -> None:
        as_predicted = predicted.meta[OFFLOADED_META] == references
        replacement = predicted if as_predicted else slot.replaced(references)
        saving = slot.tokens - self._size(replacement)
        if saving <= 0:
            self.orphans.extend(references)
            return
        self.messages[slot.index] = replacement
        self.changed = True
        self.written.extend(references)
        if self._surplus is not None:
            self._surplus -= saving
