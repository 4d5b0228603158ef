"""
Which results are replaced, decided before anything is written, and the new conversation once that is done.

Nothing here does I/O. A plan gives batches of items to write and takes the outcomes; between the two, somebody else
talks to the store.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from haystack.dataclasses import ChatMessage

from haybaler.conversation import Step, pair
from haybaler.errors import StoreError, StoreUnavailableError
from haybaler.parts import Part
from haybaler.slices import in_slices
from haybaler.swaps import Slot, Swap, fates


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


class Bounds(Protocol):
    """What a counter can say of a message without counting it."""

    def most_tokens(self, size: int) -> int | None:
        """
        Bound a message from above.

        :param size: The bytes of the message as counters render it.
        :returns: Tokens; None if that is not known.
        """
        ...

    def least_tokens(self, characters: int) -> int | None:
        """
        Bound a message from below.

        :param characters: The length of its text, or of a part of it.
        :returns: Tokens; None if that is not known.
        """
        ...


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
        when a pointer is sized. Where it raises a `StoreError`, the result stays, as after a failed write.
    :param minimum_gain: How many tokens the slots have to save together where that does not cover the surplus, given
        the index of the first; otherwise nothing is written. None if any saving will do, as without a surplus.
    :param bounds: Tells where a pointer is smaller than its result in any case. It need not be counted then, and is
        made by `settle`, after the write; where there is a bound from below, the result need not be counted either.
        Only without a surplus; None to count everything.
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
        bounds: Bounds | None = None,
    ) -> None:
        self.messages = list(messages)
        self.changed = False
        self.failures: list[tuple[Slot, StoreError]] = []
        self.written: list[str] = []
        self.orphans: list[str] = []
        self._slots = iter(slots)
        self._surplus = surplus
        self._minimum_gain = minimum_gain
        self._bounds = bounds
        self._size = size
        self._predict = predict or str
        self.is_predictable = predict is not None
        self._batch: list[Swap] = []
        self._hopeless = self._exhausted = False

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing more to write: the surplus is saved, no candidate is left, or the store is away."""
        return self._hopeless or self._exhausted or (self._surplus is not None and self._surplus <= 0)

    def next_batch(self) -> list[Part]:
        """
        Choose what is to be written next.

        :returns: The parts with their keys; empty when no candidate would save anything.
        """
        self._batch = self._all_that_save() if self._surplus is None else self._enough(self._surplus)
        return [part for swap in self._batch for part in swap.slot.parts]

    def _all_that_save(self) -> list[Swap]:
        swaps = list(self._candidates())
        if self._are_smaller(swaps):
            return swaps
        return [swap for swap in swaps if self._are_smaller([swap]) or self._saving(swap) > 0]

    def _enough(self, missing: int) -> list[Swap]:
        batch = []
        gain = 0
        candidates = self._candidates()
        while gain < missing and (swap := next(candidates, None)) is not None:
            saving = self._saving(swap)
            if saving > 0:
                batch.append(swap)
                gain += saving
        is_enough = gain >= missing or self.changed or not self._is_too_little(batch, gain)
        return batch if is_enough else []

    def _candidates(self) -> Iterator[Swap]:
        for slot in self._slots:
            try:
                references = [self._predict(part.key) for part in slot.parts]
            except StoreError as error:
                self.failures.append((slot, error))
            else:
                yield Swap(slot, references)
        self._exhausted = True

    def _are_smaller(self, swaps: Sequence[Swap]) -> bool:
        """Whether each pointer is smaller than its result by the bounds: the largest than the smallest."""
        if self._bounds is None:
            return False
        known = [bounds for swap in swaps if (bounds := swap.slot.bounds(swap.references)) is not None]
        if len(known) < len(swaps) or not known:
            return False
        most = self._bounds.most_tokens(max([size for _, size in known]))
        if most is None:
            return False
        least = self._bounds.least_tokens(min(known)[0])
        return most < (min(self._size(swap.slot.message) for swap in swaps) if least is None else least)

    def _saving(self, swap: Swap) -> int:
        return self._size(swap.slot.message) - self._size(swap.pointer)

    def _is_too_little(self, batch: Sequence[Swap], gain: int) -> bool:
        return bool(batch) and self._minimum_gain is not None and gain < self._minimum_gain(batch[0].slot.place)

    def references_in_flight(self) -> list[str]:
        """
        Return what may have been written although the conversation will not be replaced.

        :returns: The references of the settled batches, and predicted ones of the batch that is being written.
        """
        predicted = [r for swap in self._batch for r in swap.references] if self.is_predictable else []
        return [*self.orphans, *self.written, *predicted]

    def assume(self) -> list[Swap]:
        """
        Choose what is to be written next and apply it as if that were done, for writes whose outcomes come later.

        :returns: The swaps that were made, oldest first. Whoever writes them has to undo those that fail.
        """
        self.next_batch()
        swaps, self._batch = self._batch, []
        for swap in in_slices(swaps):
            self._put(swap)
        return swaps

    def settle(self, outcomes: Sequence[str | StoreError]) -> None:
        """
        Apply the outcomes of the last batch.

        :param outcomes: Outcome i belongs to part i of the batch: a reference, or why it was not stored.
        """
        errors: list[StoreError] = []
        for fate in in_slices(fates(self._batch, outcomes)):
            if fate.failure is None:
                self._swap(fate.swap, fate.written)
            else:
                errors.append(fate.failure)
                self.failures.append((fate.swap.slot, fate.failure))
                self.orphans.extend(fate.orphans if self.is_predictable else fate.written)
        # Nothing got through and the store is not there: asking it for every further result would only cost time.
        self._hopeless = (
            bool(errors)
            and len(errors) == len(self._batch)
            and all(isinstance(e, StoreUnavailableError) for e in errors)
        )
        self._batch = []

    def _swap(self, swap: Swap, references: list[str]) -> None:
        if swap.references != references:
            swap = Swap(swap.slot, references)
            if self._saving(swap) <= 0:
                self.orphans.extend(references)
                return
        self._put(swap)
        self.written.extend(references)

    def _put(self, swap: Swap) -> None:
        self.messages[swap.slot.place] = swap.pointer
        self.changed = True
        if self._surplus is not None:
            self._surplus -= self._saving(swap)
