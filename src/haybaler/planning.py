"""
Which results are replaced, decided before anything is written, and the new conversation once that is done.

Nothing here does I/O. A plan gives batches of items to write and takes the outcomes; between the two, somebody else
talks to the store.
"""

from collections.abc import Callable, Iterable, Sequence

from haystack.dataclasses import ChatMessage

from haybaler.conversation import Step, pair
from haybaler.errors import StoreError, StoreUnavailableError
from haybaler.slices import in_slices
from haybaler.swaps import Item, Slot, Swap, fates


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
        the index of the first; otherwise nothing is written. None if any saving will do.
    :param most_tokens: Bounds the tokens of a message by its bytes, or gives None. Pointers that are smaller than their
        results in any case are then made by `settle`, after the write; and the slots' sizes may be bounds from below.
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
        most_tokens: Callable[[int], int | None] | None = None,
    ) -> None:
        self.messages = list(messages)
        self.changed = False
        self.failures: list[tuple[Slot, StoreError]] = []
        self.written: list[str] = []
        self.orphans: list[str] = []
        self._slots = iter(slots)
        self._surplus = surplus
        self._minimum_gain = minimum_gain
        self._most_tokens = most_tokens
        self._size = size
        self._predict = predict or str
        self.is_predictable = predict is not None
        self._batch: list[Swap] = []
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
            try:
                swap = Swap(slot, [self._predict(key) for key, _ in slot.items])
            except StoreError as error:
                self.failures.append((slot, error))
                continue
            saving = self._saving(swap)
            if saving > 0:
                self._batch.append(swap)
                gain += saving
                missing = None if missing is None else missing - saving
        if self._exhausted and not self.changed and self._is_too_little(gain):
            self._batch = []
        return [item for swap in self._batch for item in swap.slot.items]

    def _saving(self, swap: Swap) -> int:
        """Return how many tokens the pointer saves, or at least saves if that is known without making it."""
        if self._most_tokens is not None and (size := swap.slot.most_bytes(swap.references)) is not None:
            most = self._most_tokens(size)
            if most is not None and most < swap.slot.tokens:
                return swap.slot.tokens - most
        return self._exact_saving(swap)

    def _exact_saving(self, swap: Swap) -> int:
        tokens = swap.slot.tokens if self._most_tokens is None else self._size(swap.slot.message)
        return tokens - self._size(swap.pointer)

    def _is_too_little(self, gain: int) -> bool:
        if self._minimum_gain is None or not self._batch:
            return False
        return gain < self._minimum_gain(self._batch[0].slot.place)

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

        :param outcomes: Outcome i belongs to item i of the batch: a reference, or why it was not stored.
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
            if self._exact_saving(swap) <= 0:
                self.orphans.extend(references)
                return
        self._put(swap)
        self.written.extend(references)

    def _put(self, swap: Swap) -> None:
        self.messages[swap.slot.place] = swap.pointer
        self.changed = True
        if self._surplus is not None:
            self._surplus -= self._exact_saving(swap)
