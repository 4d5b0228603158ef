"""Pure: what of a conversation a sliding window keeps, and where its note belongs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from haystack.dataclasses import ChatMessage, ChatRole

from haybaler.conversation import current_task, is_users, leading_system_end, pair
from haybaler.references import compaction_mark


@dataclass(slots=True)
class Window:
    """
    A conversation, divided into what always stays and units that go oldest first.

    :param messages: The conversation.
    :param task_end: Index after the last message of the task; where the steps of the task begin.
    :param system_end: Index after the leading system messages.
    :param units: Indices of messages that go together, oldest unit first; only these may be removed.
    :param fixed_units: How many of the newest units stay in any case.
    :param notes: Earlier notes of this strategy, which are folded.
    :param removed: Indices of removed messages, without the notes.
    """

    STRATEGY: ClassVar[str] = "sliding_window"

    messages: Sequence[ChatMessage]
    task_end: int
    system_end: int
    units: list[list[int]]
    fixed_units: int
    notes: list[int]
    removed: set[int] = field(default_factory=set)

    def shrink(self, sizes: Sequence[int], target_tokens: int) -> None:
        """
        Remove the oldest units until what remains is within the target.

        :param sizes: Size i belongs to message i, in tokens.
        :param target_tokens: The size to come under.
        """
        total = sum(sizes) - sum(sizes[note] for note in self.notes)
        for unit in self.units[: len(self.units) - self.fixed_units]:
            if total <= target_tokens:
                break
            self.removed.update(unit)
            total -= sum(sizes[index] for index in unit)

    @property
    def removed_at_most(self) -> int:
        """How many messages could be removed in all, earlier compactions included."""
        return sum(map(len, self.units)) + self._removed_before

    @property
    def removed_in_all(self) -> int:
        """How many messages were removed, by this compaction and by those whose notes it folds."""
        return len(self.removed) + self._removed_before

    @property
    def _removed_before(self) -> int:
        return sum(_removed_count(self.messages[note]) for note in self.notes)

    def kept(self, note: ChatMessage | None = None) -> list[ChatMessage]:
        """
        Return what remains.

        :param note: A note to stand where the newest removed messages were: after the task if steps of the task were
            removed, otherwise after the leading system messages.
        :returns: A new list.
        """
        steps_removed = any(index >= self.task_end for index in self.removed)
        place = self.task_end if steps_removed else self.system_end
        gone = self.removed.union(self.notes)
        kept: list[ChatMessage] = []
        for index in range(len(self.messages) + 1):
            if note is not None and index == place:
                kept.append(note)
            if index < len(self.messages) and index not in gone:
                kept.append(self.messages[index])
        return kept


def open_window(messages: Sequence[ChatMessage], *, task: Sequence[ChatMessage], min_keep_steps: int) -> Window:
    """
    Divide a conversation for a sliding window.

    :param messages: The conversation, with every call paired.
    :param task: The messages that state the run's task, if that is known; they are looked for in the conversation.
    :param min_keep_steps: How many of the newest steps of the task stay.
    :returns: The window, with nothing removed yet.
    """
    system_end = leading_system_end(messages)
    task_indices = _find(messages, task) or current_task(messages)
    task_end = max(task_indices, default=system_end - 1) + 1
    notes = [
        i for i, m in enumerate(messages) if compaction_mark(m, Window.STRATEGY) is not None and not m.tool_call_results
    ]
    newest_user = next((i for i in reversed(range(len(messages))) if is_users(messages[i])), None)
    summaries = [i for i, m in enumerate(messages) if compaction_mark(m) is not None and not m.tool_call_results]
    fixed = {*range(system_end), *task_indices, *summaries, *notes, *([] if newest_user is None else [newest_user])}
    units = [[i for i in unit if i not in fixed] for unit in _units(messages, system_end, task_end)]
    units = [unit for unit in units if unit]
    return Window(messages, task_end, system_end, units, _fixed_units(messages, units, task_end, min_keep_steps), notes)


def _find(messages: Sequence[ChatMessage], task: Sequence[ChatMessage]) -> tuple[int, ...]:
    """Return where the task's messages are: the same objects, or equal ones if a hook has copied them."""
    same = tuple(i for i, m in enumerate(messages) if any(m is wanted for wanted in task))
    return same or tuple(i for i, m in enumerate(messages) if is_users(m) and any(m == wanted for wanted in task))


def _units(messages: Sequence[ChatMessage], system_end: int, task_end: int) -> list[list[int]]:
    """Cut before each user message of the history and each assistant message of the task, but never inside a step."""
    cuts = {system_end, task_end}
    cuts.update(i for i in range(system_end, task_end) if is_users(messages[i]))
    cuts.update(i for i in range(task_end, len(messages)) if messages[i].is_from(ChatRole.ASSISTANT))
    for step in pair(messages).steps:
        cuts.difference_update(range(step.call + 1, step.results[-1] + 1))
    borders = [*sorted(cuts), len(messages)]
    return [list(range(start, end)) for start, end in pairwise(borders)]


def _fixed_units(messages: Sequence[ChatMessage], units: list[list[int]], task_end: int, min_keep_steps: int) -> int:
    """Return how many units must stay so that the newest steps do, and of these the newest that call tools."""
    if min_keep_steps == 0:
        return 0
    spoken = calling = 0
    fixed = 0
    for count, unit in enumerate(reversed(units), start=1):
        replies = [messages[i] for i in unit if i >= task_end and messages[i].is_from(ChatRole.ASSISTANT)]
        needed = spoken < min_keep_steps or calling < min_keep_steps
        if replies and needed and (spoken < min_keep_steps or any(m.tool_calls for m in replies)):
            fixed = count
        spoken += len(replies)
        calling += sum(bool(m.tool_calls) for m in replies)
    return fixed


def _removed_count(note: ChatMessage) -> int:
    count = (compaction_mark(note) or {}).get("removed_messages")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0
