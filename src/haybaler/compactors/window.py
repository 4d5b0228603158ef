"""Pure: what of a conversation a sliding window keeps, and where its note belongs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from haystack.dataclasses import ChatMessage, ChatRole

from haybaler.compactors.notes import is_note, removed_before, without_note
from haybaler.conversation import current_task, is_compaction_product, is_users, leading_system_end, pair
from haybaler.slices import in_slices


@dataclass(slots=True)
class Window:
    """
    A conversation, divided into what always stays and units that go oldest first.

    :param messages: The conversation, without the notes that were merged into its messages.
    :param task_end: Index after the last message of the task; where the steps of the task begin.
    :param system_end: Index after the leading system messages.
    :param units: Indices of messages that go together, oldest unit first; only these may be removed.
    :param fixed_units: How many of the newest units stay in any case.
    :param notes: Indices of earlier notes of this strategy, which are folded.
    :param removed_before: How many messages earlier compactions removed, according to their notes.
    :param removed: Indices of removed messages, without the notes.
    """

    messages: Sequence[ChatMessage]
    task_end: int
    system_end: int
    units: list[list[int]]
    fixed_units: int
    notes: frozenset[int]
    removed_before: int
    removed: set[int] = field(default_factory=set)
    _removed_units: int = 0
    _first_kept: int = 0  # no message from `system_end` up to this index is kept

    def remove_oldest(self) -> list[int]:
        """
        Remove the oldest unit that may go.

        :returns: Its indices; empty if there is none.
        """
        if self._removed_units >= len(self.units) - self.fixed_units:
            return []
        unit = self.units[self._removed_units]
        self._removed_units += 1
        self.removed.update(unit)
        return unit

    @property
    def removed_in_all(self) -> int:
        """How many messages were removed, by this compaction and by those before."""
        return len(self.removed) + self.removed_before

    @property
    def _note_place(self) -> int:
        """The message before which a note belongs: after the task if steps of the task were removed, or the system."""
        newest = self.units[self._removed_units - 1][-1] if self._removed_units else -1
        return self.task_end if newest >= self.task_end else self.system_end

    def user_beside_note(self) -> int | None:
        """
        Return the user's message beside the place of a note.

        :returns: The index of the message before, else after the place; None if neither is a user's.
        """
        before = self._note_place - 1
        if before >= self.system_end:
            return before  # the end of the task
        self._first_kept = max(self._first_kept, self.system_end)
        while self._first_kept in self.removed or self._first_kept in self.notes:
            self._first_kept += 1
        after = self._first_kept
        return after if after < len(self.messages) and is_users(self.messages[after]) else None

    def kept(
        self, *, inserted: ChatMessage | None = None, replaced: dict[int, ChatMessage] | None = None
    ) -> list[ChatMessage]:
        """
        Return what remains.

        :param inserted: A note to stand in its place.
        :param replaced: Messages to stand instead of those with these indices.
        :returns: A new list.
        """
        gone = self.removed.union(self.notes)
        now = replaced or {}
        place = self._note_place
        kept = [(i, now.get(i, message)) for i, message in enumerate(self.messages) if i not in gone]
        if inserted is None:
            return [message for _, message in kept]
        return [
            *(message for index, message in kept if index < place),
            inserted,
            *(message for index, message in kept if index >= place),
        ]


def open_window(messages: Sequence[ChatMessage], *, task: Sequence[ChatMessage], min_keep_steps: int) -> Window:
    """
    Divide a conversation for a sliding window.

    :param messages: The conversation, with every call paired.
    :param task: The messages that state the run's task, if that is known; they are looked for in the conversation.
    :param min_keep_steps: How many of the newest steps of the task stay.
    :returns: The window, with nothing removed yet.
    """
    plain = [without_note(message) for message in in_slices(messages)]
    system_end = leading_system_end(plain)
    task_indices = _find(task, messages, plain) or current_task(plain)
    task_end = max(task_indices, default=system_end - 1) + 1
    users = [index for index, message in enumerate(plain) if is_users(message)]
    products = [index for index, message in enumerate(plain) if is_compaction_product(message)]
    fixed = {*range(system_end), *task_indices, *products, *users[-1:]}
    units = [[index for index in unit if index not in fixed] for unit in _units(plain, system_end, task_end)]
    units = [unit for unit in units if unit]
    return Window(
        plain,
        task_end,
        system_end,
        units,
        _fixed_units(plain, units, task_end, min_keep_steps),
        notes=frozenset(index for index in products if is_note(plain[index])),
        removed_before=sum(map(removed_before, messages)),
    )


def _find(task: Sequence[ChatMessage], messages: Sequence[ChatMessage], plain: Sequence[ChatMessage]) -> list[int]:
    """Return where the task's messages are: the same objects, or the newest equal ones if they were copied."""
    places: dict[int, int] = {id(message): index for index, message in enumerate(messages)}
    found: list[int] = []
    for wanted in task:
        place = places.get(id(wanted))
        if place is None:
            original = without_note(wanted)
            place = next((i for i in reversed(range(len(plain))) if plain[i] == original), None)
        if place is not None:
            found.append(place)
    return found


def _units(messages: Sequence[ChatMessage], system_end: int, task_end: int) -> list[list[int]]:
    """Cut before each user message of the history and each assistant message of the task, but never inside a step."""
    cuts = {system_end, task_end}
    cuts.update(i for i in range(system_end, task_end) if is_users(messages[i]))
    cuts.update(i for i in range(task_end, len(messages)) if messages[i].role == ChatRole.ASSISTANT)
    reached = 0  # steps may overlap; each index is looked at once
    for step in pair(messages).steps:
        end = step.results[-1] + 1
        cuts.difference_update(range(max(step.call + 1, reached), end))
        reached = max(reached, end)
    borders = [*sorted(cuts), len(messages)]
    return [list(range(start, end)) for start, end in pairwise(borders)]


def _fixed_units(messages: Sequence[ChatMessage], units: list[list[int]], task_end: int, min_keep_steps: int) -> int:
    """Return how many units must stay so that the newest steps do, and of these the newest that call tools."""
    if min_keep_steps == 0:
        return 0
    spoken = calling = 0
    fixed = 0
    for count, unit in enumerate(reversed(units), start=1):
        replies = [messages[i] for i in unit if i >= task_end and messages[i].role == ChatRole.ASSISTANT]
        needed = spoken < min_keep_steps or calling < min_keep_steps
        if replies and needed and (spoken < min_keep_steps or any(m.tool_calls for m in replies)):
            fixed = count
        spoken += len(replies)
        calling += sum(bool(m.tool_calls) for m in replies)
    return fixed
