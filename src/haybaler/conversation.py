"""Pure views of a conversation: which results answer which calls, its steps, its task, and what is broken in it."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from haystack.dataclasses import ChatMessage, ChatRole, TextContent, ToolCall, ToolCallResult
from haystack.dataclasses.chat_message import ChatMessageContentT, ReasoningContent

from haybaler.references import compaction_mark
from haybaler.slices import in_slices

# Looked up once: Python 3.11 calls a function for each member of an enumeration that is named.
_SYSTEM, _USER, _ASSISTANT, _TOOL = ChatRole.SYSTEM, ChatRole.USER, ChatRole.ASSISTANT, ChatRole.TOOL

Position = tuple[int, int]  # index of a message, index of a call or result among those of the message


@dataclass(frozen=True, slots=True)
class Step:
    """
    A tool-calling step of the Agent.

    :param call: Index of the assistant message with the calls.
    :param results: Indices of the messages that answer it, ascending. Other messages may stand between them.
    """

    call: int
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """
    Which results answer which calls.

    :param steps: The tool-calling steps with at least one answer, oldest first.
    :param orphans: Results that answer no call.
    :param unanswered: Calls without a result, except those that are still waiting for it at the end.
    """

    steps: tuple[Step, ...]
    orphans: frozenset[Position]
    unanswered: frozenset[Position]


def pair(messages: Sequence[ChatMessage]) -> Pairing:
    """
    Pair calls and results by id; where ids are missing or equal, by tool name and position.

    A result answers the latest message that still has a matching call open, and in it the first such call.

    :param messages: The conversation, oldest first.
    :returns: The pairing. Linear in the number of messages, calls and results.
    """
    desk = _Desk()
    for index, message in enumerate(in_slices(messages)):
        if message.tool_calls:
            desk.open(index, message.tool_calls)
        for place, result in enumerate(message.tool_call_results):
            desk.answer((index, place), result.origin)
    waiting = _last_call_index(messages)
    return Pairing(
        steps=tuple(Step(call, tuple(sorted(results))) for call, results in sorted(desk.results.items())),
        orphans=frozenset(desk.orphans),
        unanswered=frozenset(position for position in desk.still_open() if position[0] != waiting),
    )


class _Desk:
    """The open calls while a conversation is read, under each key that a result may ask for."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], list[deque[Position]]] = {}  # one queue for each message, the newest last
        self._calls: dict[Position, ToolCall] = {}
        self.results: dict[int, set[int]] = {}
        self.orphans: set[Position] = set()

    def open(self, index: int, calls: Sequence[ToolCall]) -> None:
        for place, call in enumerate(calls):
            self._calls[index, place] = call
            for key in (("name", call.tool_name), ("id", call.id) if call.id else ("name without id", call.tool_name)):
                queues = self._open.setdefault(key, [])
                if not queues or queues[-1][-1][0] != index:
                    queues.append(deque())
                queues[-1].append((index, place))

    def answer(self, result: Position, origin: ToolCall) -> None:
        # Where both sides have an id, only the id counts.
        by_id = (("id", origin.id), ("name without id", origin.tool_name)) if origin.id else ()
        for key in by_id or (("name", origin.tool_name),):
            call = self._take(key, origin.tool_name)
            if call is not None:
                self.results.setdefault(call[0], set()).add(result[0])
                return
        self.orphans.add(result)

    def _take(self, key: tuple[str, str], tool_name: str) -> Position | None:
        queues = self._open.get(key, [])
        while queues:
            while queues[-1] and queues[-1][0] not in self._calls:
                queues[-1].popleft()
            if not queues[-1]:
                queues.pop()
                continue
            open_calls = (position for position in queues[-1] if position in self._calls)
            same_tool = (position for position in open_calls if self._calls[position].tool_name == tool_name)
            position = next(same_tool, queues[-1][0])
            del self._calls[position]
            return position
        return None

    def still_open(self) -> Iterable[Position]:
        return self._calls.keys()


def _last_call_index(messages: Sequence[ChatMessage]) -> int | None:
    """Return the message whose calls may still be answered: the last one of assistant or user, if it has calls."""
    for index in reversed(range(len(messages))):
        if messages[index].tool_calls:
            return index
        if messages[index].role != _TOOL:
            return None
    return None


def repaired(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """
    Leave out results without a call and calls without a result, which providers reject.

    :param messages: A conversation.
    :returns: A new list; a message that loses some of its parts is a new message, one that loses all is left out.
    """
    pairing = pair(messages)
    broken = {index for index, _ in pairing.orphans | pairing.unanswered}
    kept = (
        _without(message, index, pairing) if index in broken else message
        for index, message in enumerate(in_slices(messages))
    )
    return [message for message in kept if message is not None]


def _without(message: ChatMessage, index: int, pairing: Pairing) -> ChatMessage | None:
    content: list[ChatMessageContentT] = []
    calls = results = 0
    for part in message._content:  # noqa: SLF001 - there is no public way to the parts in their order
        if isinstance(part, ToolCall):
            calls += 1
            if (index, calls - 1) in pairing.unanswered:
                continue
        elif isinstance(part, ToolCallResult):
            results += 1
            if (index, results - 1) in pairing.orphans:
                continue
        content.append(part)
    if all(isinstance(part, ReasoningContent) or part == TextContent("") for part in content):
        return None
    return replace(message, _content=content)


def leading_system_end(messages: Sequence[ChatMessage]) -> int:
    """
    Return where the system messages at the beginning end.

    :param messages: The conversation.
    :returns: Index of the first message that is no system message, or that a compaction left.
    """
    for index, message in enumerate(messages):
        if message.role != _SYSTEM or compaction_mark(message) is not None:
            return index
    return len(messages)


def last_assistant_index(messages: Sequence[ChatMessage]) -> int:
    """
    Return the index of the last assistant message.

    :param messages: The conversation.
    :returns: The index, or -1 if there is none.
    """
    return next((i for i in reversed(range(len(messages))) if messages[i].role == _ASSISTANT), -1)


def run_task(messages: Sequence[ChatMessage]) -> tuple[int, ...]:
    """
    Return the messages that state the task of a run, given the messages it was started with.

    :param messages: The conversation as it was before the run's first call of the model.
    :returns: Indices of the user messages after the last answer; where there are none, what `current_task` finds.
    """
    start = len(messages)
    while start and not (messages[start - 1].role == _ASSISTANT or messages[start - 1].tool_call_results):
        start -= 1
    return tuple(i for i in range(start, len(messages)) if is_users(messages[i])) or current_task(messages)


def current_task(messages: Sequence[ChatMessage]) -> tuple[int, ...]:
    """
    Return the messages that state the task, as well as the conversation alone tells.

    The task is the last user message that begins a turn: it does not follow a call or a tool result. A user message
    in the middle of the Agent's steps is a remark on the task.

    :param messages: The conversation.
    :returns: Indices of that message and of the user messages directly before it; empty if there is none.
    """
    last = first_user = None
    for index in reversed(range(len(messages))):
        if last is None and messages[index].role != _USER:
            continue  # told first, for a long conversation ends with hundreds of them
        if is_users(messages[index]):
            first_user = index
            last = index if last is None else last
        elif last is not None and (is_step := _is_of_step(messages, index)) is not None:
            if not is_step:
                break
            last = None
    last = first_user if last is None else last
    if last is None:
        return ()
    first = last
    while first and is_users(messages[first - 1]):
        first -= 1
    return tuple(range(first, last + 1))


def _is_of_step(messages: Sequence[ChatMessage], index: int) -> bool | None:
    """Whether a message that no user wrote leaves the Agent in the middle of a step; None if it does not tell."""
    message = messages[index]
    if message.role == _TOOL or message.tool_calls or message.tool_call_results:
        return True
    if is_compaction_product(message):
        # Directly after a user's message it stands for steps that were removed.
        return (index > 0 and is_users(messages[index - 1])) or None
    return False if message.role == _ASSISTANT else None


def is_users(message: ChatMessage) -> bool:
    """
    Whether a user, and no compaction, wrote a message.

    :param message: Any message.
    :returns: True for a message of the user's role without the mark of a compaction.
    """
    # Ten times as quick as `is_from`, which makes a table of all roles at each call.
    return message.role == _USER and compaction_mark(message) is None


def is_compaction_product(message: ChatMessage, strategy: str | None = None) -> bool:
    """
    Whether a compaction left a message of its own, such as a note or a summary.

    :param message: Any message.
    :param strategy: Only products of this strategy.
    :returns: False for calls and results, which some compactions mark after changing them in place.
    """
    return compaction_mark(message, strategy) is not None and not (message.tool_calls or message.tool_call_results)


def fresh_results(messages: Sequence[ChatMessage]) -> dict[int, list[ToolCallResult]]:
    """
    Return the results of the step that has just run, wherever they stand after its calls.

    :param messages: The conversation, directly after tools have run.
    :returns: For the index of each message that answers the last calls, ascending: all its results.
    """
    calls: list[str | None] = []
    answered: list[str | None] = []
    answers: dict[int, list[ToolCallResult]] = {}
    index = len(messages)
    while index and not calls:
        index -= 1
        for part in messages[index]._content:  # noqa: SLF001 - each of the public views goes through all parts
            if isinstance(part, ToolCall):
                calls.append(part.id)
            elif isinstance(part, ToolCallResult):
                answered.append(part.origin.id)
                answers.setdefault(index, []).append(part)
    if not calls:
        return {}
    # Nearly always every id is there, and each answer has one of its own.
    if all(calls) and len({*answered}) == len(answered) and {*calls} >= {*answered}:
        return dict(reversed(answers.items()))
    return {index + place: answers[index + place] for step in pair(messages[index:]).steps for place in step.results}
