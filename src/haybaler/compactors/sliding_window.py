"""A compactor that drops the oldest history and keeps the instructions, the task and the newest steps."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

from haystack.core.serialization import default_to_dict
from haystack.dataclasses import ChatMessage

from haybaler.compactors.protocol import SteppedCompactor
from haybaler.compactors.window import Window, open_window
from haybaler.counters.run import RunTokenCounter
from haybaler.effects import Steps, in_worker
from haybaler.errors import ConfigurationError
from haybaler.hooks.context import RUN_TASK_CONTEXT_KEY
from haybaler.references import COMPACTION_META

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
    :raises ConfigurationError: If `min_keep_steps` is negative.
    """

    def __init__(self, *, min_keep_steps: int = 1, omission_note: str | None = DEFAULT_OMISSION_NOTE) -> None:
        if min_keep_steps < 0:
            raise ConfigurationError(f"`min_keep_steps` must be at least 0, got {min_keep_steps}.")
        self.min_keep_steps = min_keep_steps
        self.omission_note = omission_note
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
        if not self.omission_note:
            window.shrink(sizes, target_tokens)
            return window.kept() if window.removed else None
        # The note's own size counts. Its number grows with what is removed, so it is sized at its longest.
        window.shrink(sizes, target_tokens - counter.size(self._note(window.removed_at_most, 0)))
        if not window.removed:
            return None
        note = self._note(window.removed_in_all, len(window.kept()))
        return window.kept(note)

    def _note(self, removed: int, kept: int) -> ChatMessage:
        return ChatMessage.from_user(
            # `replace` leaves other braces of a custom note alone.
            (self.omission_note or "").replace("{num_removed}", str(removed)),
            meta={COMPACTION_META: {"strategy": Window.STRATEGY, "removed_messages": removed, "kept_messages": kept}},
        )

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the compactor.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        return default_to_dict(self, min_keep_steps=self.min_keep_steps, omission_note=self.omission_note)
