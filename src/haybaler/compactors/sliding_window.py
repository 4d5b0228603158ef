"""A compactor that drops the oldest history and keeps the instructions, the task and the newest steps."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

from haystack.core.serialization import default_to_dict
from haystack.dataclasses import ChatMessage

from haybaler.compactors.notes import Note
from haybaler.compactors.protocol import SteppedCompactor
from haybaler.compactors.window import Window, open_window
from haybaler.counters.run import RunTokenCounter
from haybaler.effects import Steps, in_worker
from haybaler.errors import ConfigurationError
from haybaler.hooks.context import RUN_TASK_CONTEXT_KEY

DEFAULT_OMISSION_NOTE = (
    "[{num_removed} earlier messages were removed from this conversation to free up context and cannot be recovered.]"
)


class SlidingWindowCompactor(SteppedCompactor):
    """
    Keeps the Agent's instructions, its task and as much of the newest history as the target allows.

    The system messages at the beginning, the task and the newest user message always stay, and so do summaries that
    other compactions left. Everything else goes oldest first, in whole turns before the task and in whole steps after
    it; a step is an assistant message with the results of its calls. The task is what the run was started with, when
    `CompactionHook` says so; otherwise the last user message that begins a turn.

    A note stands where the removed messages were. There is never more than one: a later compaction folds it into its
    own and adds up the number of removed messages.

    :param min_keep_steps: How many of the newest steps of the task stay, whatever the target; 0 lets all go.
    :param omission_note: The note, a user message; `{num_removed}` becomes the number of removed messages. None leaves
        no note.
    :param merge_note: Whether the note is put before the text of the user message beside it, so that no two user
        messages follow each other because of it: some chat templates demand strictly alternating roles. Where there is
        no user message beside it, it stays a message of its own.
    :raises ConfigurationError: If `min_keep_steps` is negative.
    """

    def __init__(
        self,
        *,
        min_keep_steps: int = 1,
        omission_note: str | None = DEFAULT_OMISSION_NOTE,
        merge_note: bool = False,
    ) -> None:
        if min_keep_steps < 0:
            raise ConfigurationError(f"`min_keep_steps` must be at least 0, got {min_keep_steps}.")
        self.min_keep_steps = min_keep_steps
        self.omission_note = omission_note
        self.merge_note = merge_note
        self._task: Sequence[ChatMessage] = ()

    def for_run(self, hook_context: Mapping[str, Any]) -> Self:
        """
        Return a compactor that knows the task of one run.

        :param hook_context: The run's context; the task is under `RUN_TASK_CONTEXT_KEY`.
        :returns: A copy, or the compactor itself if the context has no task.
        """
        task = hook_context.get(RUN_TASK_CONTEXT_KEY)
        if not task:
            return self
        bound = copy.copy(self)
        bound._task = task  # noqa: SLF001 - a copy of this very object
        return bound

    def _rewrite(
        self, messages: list[ChatMessage], sizes: list[int], target_tokens: int, counter: RunTokenCounter
    ) -> Steps[list[ChatMessage] | None]:
        return (yield from in_worker(self._windowed, messages, sizes, target_tokens, counter))

    def _windowed(
        self, messages: list[ChatMessage], sizes: list[int], target_tokens: int, counter: RunTokenCounter
    ) -> list[ChatMessage] | None:
        window = open_window(messages, task=self._task, min_keep_steps=self.min_keep_steps)
        # A merged note is taken out of its message, which then has another size.
        plain_sizes = [
            size if plain is message else counter.size(plain)
            for plain, message, size in zip(window.messages, messages, sizes, strict=True)
        ]
        remaining = sum(size for index, size in enumerate(plain_sizes) if index not in window.notes)
        while remaining > target_tokens or remaining + self._note_size(window, plain_sizes, counter) > target_tokens:
            unit = window.remove_oldest()
            if not unit:
                break
            remaining -= sum(plain_sizes[index] for index in unit)
        return self._with_note(window) if window.removed or window.notes else None

    def _note_size(self, window: Window, sizes: Sequence[int], counter: RunTokenCounter) -> int:
        """Size the note for what is removed so far: its number grows, and the message that it goes into changes."""
        note = self._note(window)
        if note is None:
            return 0
        beside = self._beside(window)
        if beside is None:
            return counter.size(note.message())
        return counter.size(note.merged_into(window.messages[beside])) - sizes[beside]

    def _with_note(self, window: Window) -> list[ChatMessage]:
        note = self._note(window)
        if note is None:
            return window.kept()
        beside = self._beside(window)
        if beside is None:
            return window.kept(inserted=note.message())
        return window.kept(replaced={beside: note.merged_into(window.messages[beside])})

    def _beside(self, window: Window) -> int | None:
        return window.user_beside_note() if self.merge_note else None

    def _note(self, window: Window) -> Note | None:
        if not self.omission_note:
            return None
        removed = window.removed_in_all
        kept = len(window.messages) - len(window.removed) - len(window.notes)
        # `replace` leaves other braces of a custom note alone.
        return Note(self.omission_note.replace("{num_removed}", str(removed)), removed=removed, kept=kept)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the compactor.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        return default_to_dict(
            self,
            min_keep_steps=self.min_keep_steps,
            omission_note=self.omission_note,
            merge_note=self.merge_note,
        )
