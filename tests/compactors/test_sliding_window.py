"""What the sliding window keeps, and its note."""

from itertools import pairwise
from typing import Any

import pytest
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, ChatRole, TextContent, ToolCall
from haystack.hooks.compaction import SlidingWindowCompactor as HaystackSlidingWindow
from haystack.hooks.human_in_the_loop import BlockingConfirmationStrategy, ConfirmationHook
from haystack.hooks.human_in_the_loop.dataclasses import ConfirmationUIResult
from haystack.hooks.human_in_the_loop.policies import AlwaysAskPolicy
from haystack.hooks.human_in_the_loop.types import ConfirmationUI
from haystack.tools.from_function import create_tool_from_function
from haystack.tools.tool import Tool
from haystack.utils.experimental import ExperimentalWarning
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compactors.conversations import answer, conversations, several, users, valid_conversations
from tests.compactors.subjects import COLOURS, run, size_of

from haybaler import ApproximateTokenCounter, SlidingWindowCompactor
from haybaler.compactors.notes import without_note
from haybaler.errors import ConfigurationError
from haybaler.hooks.context import RUN_TASK_CONTEXT_KEY

each_colour = pytest.mark.parametrize("colour", COLOURS)
NOTE = (
    "[{num_removed} earlier messages were removed from this conversation to free up context and cannot be recovered.]"
)
TEXT = "lorem ipsum " * 50  # about 150 tokens


def step(number: int, text: str = TEXT, name: str = "fetch") -> list[ChatMessage]:
    call = ToolCall(name, {"n": number}, id=f"call_{number}")
    return [ChatMessage.from_assistant(tool_calls=[call]), answer(call, text)]


def steps(first: int, last: int) -> list[ChatMessage]:
    return [message for number in range(first, last + 1) for message in step(number)]


def turn(question: str, reply: str = TEXT) -> list[ChatMessage]:
    return [ChatMessage.from_user(question), ChatMessage.from_assistant(reply)]


def haystacks_own() -> HaystackSlidingWindow:
    with pytest.warns(ExperimentalWarning):
        return HaystackSlidingWindow()


def note_of(removed: int, kept: int) -> ChatMessage:
    figures = {"strategy": "sliding_window", "removed_messages": removed, "kept_messages": kept}
    return ChatMessage.from_user(NOTE.format(num_removed=removed), meta={"context_compaction": figures})


SYSTEM = ChatMessage.from_system("Be brief.")
TASK = ChatMessage.from_user("Find the answer.")


def compacted(
    colour: str, messages: list[ChatMessage], target: int, compactor: Any = None, **settings: Any
) -> list[ChatMessage]:
    result = run(colour, compactor or SlidingWindowCompactor(**settings), messages, target)
    assert result is not None
    return result


@each_colour
def test_the_note_stands_after_the_task_when_steps_of_the_task_were_removed(colour: str) -> None:
    messages = [SYSTEM, *turn("Hello"), TASK, *steps(1, 4)]
    assert compacted(colour, messages, 400) == [SYSTEM, TASK, note_of(6, 6), *steps(3, 4)]


@each_colour
def test_the_note_stands_after_the_system_messages_when_only_turns_were_removed(colour: str) -> None:
    messages = [SYSTEM, *turn("One"), *turn("Two"), TASK, *steps(1, 2)]
    assert compacted(colour, messages, 550) == [SYSTEM, note_of(2, 8), *turn("Two"), TASK, *steps(1, 2)]


@each_colour
def test_the_steps_of_the_task_go_only_when_all_turns_are_gone(colour: str) -> None:
    messages = [SYSTEM, *turn("One"), *turn("Two"), TASK, *steps(1, 2)]
    assert compacted(colour, messages, 390) == [SYSTEM, note_of(4, 6), TASK, *steps(1, 2)]


@each_colour
def test_counts_of_earlier_notes_add_up(colour: str) -> None:
    once = compacted(colour, [SYSTEM, TASK, *steps(1, 4)], 400)
    twice = compacted(colour, [*once, *steps(5, 6)], 400)
    assert twice == [SYSTEM, TASK, note_of(8, 6), *steps(5, 6)]


@each_colour
def test_notes_of_haystacks_own_compactor_are_folded_and_added_up(colour: str) -> None:
    stock = haystacks_own().compact([SYSTEM, TASK, *steps(1, 4)], 250, ApproximateTokenCounter())
    assert stock is not None
    assert stock[2] == note_of(6, 4)
    assert compacted(colour, [*stock, *steps(5, 6)], 400) == [SYSTEM, TASK, note_of(8, 6), *steps(5, 6)]


def test_haystacks_own_compactor_folds_the_note_of_haybalers() -> None:
    once = compacted("sync", [SYSTEM, TASK, *steps(1, 4)], 400)
    stock = haystacks_own().compact([*once, *steps(5, 6)], 400, ApproximateTokenCounter())
    assert stock is not None
    assert [m.meta.get("context_compaction", {}).get("strategy") for m in stock].count("sliding_window") == 1


@each_colour
@pytest.mark.parametrize("figures", [None, "7", -7, True, 1.5], ids=repr)
def test_a_note_with_an_unusable_count_is_folded_as_none(colour: str, figures: object) -> None:
    odd = ChatMessage.from_user(
        "[?]", meta={"context_compaction": {"strategy": "sliding_window", "removed_messages": figures}}
    )
    assert compacted(colour, [SYSTEM, TASK, odd, *steps(1, 4)], 400) == [SYSTEM, TASK, note_of(4, 6), *steps(3, 4)]


@each_colour
def test_a_note_never_makes_the_conversation_longer(colour: str) -> None:
    messages = [SYSTEM, *turn("a", "b"), TASK, *steps(1, 1)]
    assert run(colour, SlidingWindowCompactor(), messages, 10) is None
    assert compacted(colour, messages, 10, omission_note=None) == [SYSTEM, TASK, *steps(1, 1)]


@each_colour
def test_a_crashed_call_is_left_out_also_when_the_note_would_cost_more_than_it_saves(colour: str) -> None:
    crashed = ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {"url": TEXT}, id="lost")])
    messages = [SYSTEM, *turn("a", "b"), crashed, TASK, *steps(1, 1)]
    assert compacted(colour, messages, 10) == [SYSTEM, *turn("a", "b"), TASK, *steps(1, 1)]


@each_colour
def test_only_an_earlier_note_to_remove_leaves_the_conversation_unchanged(colour: str) -> None:
    once = compacted(colour, [SYSTEM, TASK, *steps(1, 4)], 10)
    assert run(colour, SlidingWindowCompactor(), once, 10) is None


@each_colour
def test_two_earlier_notes_are_folded_when_that_reaches_the_target(colour: str) -> None:
    messages = [SYSTEM, note_of(3, 9), TASK, note_of(4, 9), *steps(1, 2)]
    target = size_of(messages) - 10
    assert compacted(colour, messages, target) == [SYSTEM, note_of(7, 6), TASK, *steps(1, 2)]


@each_colour
def test_a_conversation_that_fits_is_unchanged(colour: str) -> None:
    messages = [SYSTEM, TASK, *steps(1, 4)]
    assert run(colour, SlidingWindowCompactor(), messages, size_of(messages)) is None


@each_colour
def test_an_empty_conversation_and_one_without_any_user_work(colour: str) -> None:
    assert run(colour, SlidingWindowCompactor(), [], 0) is None
    messages = [SYSTEM, *steps(1, 4)]
    assert compacted(colour, messages, 400) == [SYSTEM, note_of(4, 5), *steps(3, 4)]


@each_colour
@pytest.mark.parametrize("note", [None, ""])
def test_without_a_note_messages_go_silently(colour: str, note: str | None) -> None:
    messages = [SYSTEM, TASK, note_of(3, 3), *steps(1, 4)]
    assert compacted(colour, messages, 400, omission_note=note) == [SYSTEM, TASK, *steps(3, 4)]


@each_colour
def test_a_note_of_ones_own_keeps_its_other_braces(colour: str) -> None:
    result = compacted(colour, [SYSTEM, TASK, *steps(1, 4)], 400, omission_note='{"gone": {num_removed}, "x": {y}}')
    assert result[2].text == '{"gone": 4, "x": {y}}'


@each_colour
@pytest.mark.parametrize("keep", [0, 1, 2, 3])
def test_min_keep_steps_stay_whatever_the_target(colour: str, keep: int) -> None:
    messages = [SYSTEM, TASK, *steps(1, 4)]
    assert compacted(colour, messages, 0, min_keep_steps=keep)[3:] == steps(5 - keep, 4)


@each_colour
def test_an_answer_without_calls_does_not_take_the_place_of_a_tool_calling_step(colour: str) -> None:
    thought = ChatMessage.from_assistant("Let me think.")
    messages = [SYSTEM, TASK, *steps(1, 3), thought]
    assert compacted(colour, messages, 0) == [SYSTEM, TASK, note_of(4, 5), *steps(3, 3), thought]


def test_the_defaults_are_haystacks_own() -> None:
    ours, theirs = SlidingWindowCompactor(), haystacks_own()
    assert (ours.min_keep_steps, ours.omission_note) == (theirs.min_keep_steps, theirs.omission_note)
    assert ours.merge_note is False


def test_negative_min_keep_steps_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"min_keep_steps.*at least 0.*-1"):
        SlidingWindowCompactor(min_keep_steps=-1)


def test_settings_survive_serialization() -> None:
    compactor = SlidingWindowCompactor(min_keep_steps=3, omission_note=None, merge_note=True)
    again = SlidingWindowCompactor.from_dict(compactor.to_dict())
    assert (again.min_keep_steps, again.omission_note, again.merge_note) == (3, None, True)


class Editor(ConfirmationUI):
    """A person who changes the arguments of every call."""

    def get_user_confirmation(
        self, tool_name: str, tool_description: str, tool_params: dict[str, Any]
    ) -> ConfirmationUIResult:
        return ConfirmationUIResult(action="modify", new_tool_params={"n": tool_params["n"] + 100})


def fetch(n: int) -> str:
    """Fetch a page."""
    return f"page {n}"


def edited_by_a_person(messages: list[ChatMessage], tool: Tool) -> list[ChatMessage]:
    """Return what Haystack's hook makes of pending calls that a person edits."""
    strategy = BlockingConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=Editor())
    state = State(schema={"messages": {"type": list[ChatMessage]}, "tools": {"type": list}})
    state.set("messages", messages)
    state.data["tools"] = [tool]
    ConfirmationHook({tool.name: strategy}).run(state)
    edited: list[ChatMessage] = state.data["messages"]
    return edited


@each_colour
@pytest.mark.parametrize("bound", [True, False], ids=["in a run", "on its own"])
def test_the_task_stays_when_a_person_edits_calls(colour: str, bound: bool) -> None:
    tool = create_tool_from_function(fetch)
    messages = [SYSTEM, TASK]
    for number in range(1, 6):
        messages = edited_by_a_person([*messages, step(number)[0]], tool)
        origin = messages[-1].tool_calls[0]
        assert origin.arguments == {"n": number + 100}
        messages.append(answer(origin, TEXT))
    assert sum(m.is_from(ChatRole.USER) for m in messages) == 6
    compactor = SlidingWindowCompactor()
    if bound:
        compactor = compactor.for_run({RUN_TASK_CONTEXT_KEY: (TASK,)})
    kept = compacted(colour, messages, 400, compactor)
    assert kept[:2] == [SYSTEM, TASK]
    assert kept[-3:] == messages[-3:]  # the newest edit stays as well


@each_colour
@pytest.mark.parametrize("bound", [True, False], ids=["in a run", "on its own"])
def test_the_task_stays_when_an_on_exit_hook_nudges(colour: str, bound: bool) -> None:
    nudge = ChatMessage.from_user("You must call `finish` before you stop.")
    messages = [SYSTEM, TASK, *steps(1, 3), ChatMessage.from_assistant("Done."), nudge, *steps(4, 6)]
    compactor = SlidingWindowCompactor()
    if bound:
        result = compacted(colour, messages, 400, compactor.for_run({RUN_TASK_CONTEXT_KEY: (TASK,)}))
        assert TASK in result
    else:
        result = compacted(colour, messages, 400, compactor)
    assert nudge in result


@each_colour
def test_the_task_of_the_run_is_found_when_it_was_copied(colour: str) -> None:
    copy = ChatMessage.from_dict(TASK.to_dict())
    nudge = ChatMessage.from_user("Go on.")
    messages = [SYSTEM, copy, *steps(1, 3), ChatMessage.from_assistant("Done."), nudge, *steps(4, 6)]
    result = compacted(colour, messages, 400, SlidingWindowCompactor().for_run({RUN_TASK_CONTEXT_KEY: (TASK,)}))
    assert result[1] is copy


@each_colour
def test_an_older_message_with_the_words_of_the_task_is_not_the_task(colour: str) -> None:
    older = ChatMessage.from_user("Go on.")
    task = ChatMessage.from_user("Go on.")
    messages = [SYSTEM, older, ChatMessage.from_assistant(TEXT), task, *steps(1, 3)]
    for known in (task, ChatMessage.from_user("Go on.")):
        result = compacted(colour, messages, 400, SlidingWindowCompactor().for_run({RUN_TASK_CONTEXT_KEY: (known,)}))
        assert not any(message is older for message in result)
        assert any(message is task for message in result)


def test_a_compactor_is_bound_to_a_run_by_a_copy() -> None:
    compactor = SlidingWindowCompactor(min_keep_steps=2)
    bound = compactor.for_run({RUN_TASK_CONTEXT_KEY: (TASK,)})
    assert bound is not compactor
    assert bound.to_dict() == compactor.to_dict()
    assert compactor.for_run({}) is compactor


@each_colour
def test_the_task_stays_when_all_its_steps_may_go(colour: str) -> None:
    remark = ChatMessage.from_user("Please hurry.")
    messages = [SYSTEM, TASK, *steps(1, 3), remark]
    once = compacted(colour, messages, 100, min_keep_steps=0)
    assert once == [SYSTEM, TASK, note_of(6, 3), remark]
    twice = compacted(colour, [*once, *steps(4, 5)], 100, min_keep_steps=0)
    assert twice == [SYSTEM, TASK, note_of(10, 3), remark]


@each_colour
@pytest.mark.parametrize("role", ["user", "system"])
def test_summaries_of_other_strategies_stay(colour: str, role: str) -> None:
    mark = {"context_compaction": {"strategy": "summarization", "summarized_messages": 9}}
    make = ChatMessage.from_user if role == "user" else ChatMessage.from_system
    summary = make("Summary: so far so good.", meta=mark)
    for messages in ([SYSTEM, summary, TASK, *steps(1, 4)], [SYSTEM, TASK, summary, *steps(1, 4)]):
        result = compacted(colour, messages, 400)
        assert summary in result
        assert TASK in result
        assert result[-4:] == steps(3, 4)


@each_colour
def test_a_call_that_another_compaction_marked_goes_with_its_result(colour: str) -> None:
    call, result = step(1)
    clamped = ChatMessage.from_assistant(tool_calls=call.tool_calls, meta={"context_compaction": {"strategy": "clamp"}})
    messages = [SYSTEM, TASK, clamped, result, *steps(2, 4)]
    assert compacted(colour, messages, 400) == [SYSTEM, TASK, note_of(4, 6), *steps(3, 4)]


@each_colour
@pytest.mark.parametrize("keep", [1, 3])
def test_a_message_between_a_call_and_its_result_leaves_them_together(colour: str, keep: int) -> None:
    injected = ChatMessage.from_system("Note of a hook.")
    messages = [SYSTEM, TASK]
    for number in range(1, 6):
        call, result = step(number)
        messages += [call, injected, result]
    kept = compacted(colour, messages, 10, min_keep_steps=keep)
    assert kept[-3 * keep :] == messages[-3 * keep :]
    assert len(kept) == 3 + 3 * keep


@each_colour
def test_a_greeting_and_a_reminder_stay_while_they_fit(colour: str) -> None:
    greeting = ChatMessage.from_assistant("Hello, how can I help?")
    reminder = ChatMessage.from_system("Remember to cite.")
    messages = [SYSTEM, greeting, ChatMessage.from_user("One"), ChatMessage.from_assistant(TEXT), TASK, *steps(1, 2)]
    result = compacted(colour, [*messages, reminder, *steps(3, 3)], 530)
    assert result == [SYSTEM, note_of(3, 9), TASK, *steps(1, 2), reminder, *steps(3, 3)]
    fitting = [*messages[:5], *steps(1, 1), reminder, *steps(2, 2)]
    assert run(colour, SlidingWindowCompactor(), fitting, size_of(fitting)) is None


@each_colour
def test_a_message_with_several_results_stays_with_all_its_calls(colour: str) -> None:
    called = [ToolCall("fetch", {"n": n}, id=None) for n in range(3)]
    parallel = [
        ChatMessage.from_assistant(tool_calls=called),
        several([answer(call, TEXT) for call in called]),
    ]
    messages = [SYSTEM, TASK, *steps(1, 3), *parallel]
    assert compacted(colour, messages, 0) == [SYSTEM, TASK, note_of(6, 4), *parallel]


def roles_of(messages: list[ChatMessage]) -> list[str]:
    return [message.role.value for message in messages]


@each_colour
def test_a_merged_note_becomes_the_first_text_of_the_task(colour: str) -> None:
    result = compacted(colour, [SYSTEM, TASK, *steps(1, 4)], 400, merge_note=True)
    assert roles_of(result) == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert result[1].texts == [f"{NOTE.format(num_removed=4)}\n\nFind the answer."]
    assert without_note(result[1]) == TASK


@each_colour
def test_a_merged_note_is_folded_and_the_task_stays_the_task(colour: str) -> None:
    for bound in (SlidingWindowCompactor(merge_note=True), *bound_to_task(merge_note=True)):
        once = compacted(colour, [SYSTEM, TASK, *steps(1, 4)], 400, bound)
        twice = compacted(colour, [*once, *steps(5, 6)], 400, bound)
        assert twice[1].texts == [f"{NOTE.format(num_removed=8)}\n\nFind the answer."]
        assert without_note(twice[1]) == TASK
        assert twice[2:] == steps(5, 6)


def bound_to_task(**settings: Any) -> list[SlidingWindowCompactor]:
    return [SlidingWindowCompactor(**settings).for_run({RUN_TASK_CONTEXT_KEY: (TASK,)})]


@each_colour
def test_a_merged_note_goes_into_the_turn_that_follows_the_system_messages(colour: str) -> None:
    messages = [SYSTEM, *turn("One"), *turn("Two"), TASK, *steps(1, 2)]
    result = compacted(colour, messages, 550, merge_note=True)
    assert result[1].texts == [f"{NOTE.format(num_removed=2)}\n\nTwo"]
    assert result[2:] == [*turn("Two")[1:], TASK, *steps(1, 2)]


@each_colour
def test_a_note_stands_alone_where_no_user_message_is_beside_it(colour: str) -> None:
    messages = [SYSTEM, *steps(1, 4)]
    assert compacted(colour, messages, 400, merge_note=True) == [SYSTEM, note_of(4, 5), *steps(3, 4)]


@each_colour
def test_notes_change_between_merged_and_separate_when_the_setting_does(colour: str) -> None:
    merged = compacted(colour, [SYSTEM, TASK, *steps(1, 4)], 400, merge_note=True)
    separate = compacted(colour, [*merged, *steps(5, 6)], 400)
    assert separate == [SYSTEM, TASK, note_of(8, 6), *steps(5, 6)]
    again = compacted(colour, [*separate, *steps(7, 8)], 400, merge_note=True)
    assert again[1].texts == [f"{NOTE.format(num_removed=12)}\n\nFind the answer."]


@each_colour
def test_a_task_that_carries_the_note_of_an_earlier_run_stays_the_task(colour: str) -> None:
    first = compacted(colour, [SYSTEM, TASK, *steps(1, 4)], 400, merge_note=True)
    task = first[1]
    bound = SlidingWindowCompactor(merge_note=True).for_run({RUN_TASK_CONTEXT_KEY: (task,)})
    second = compacted(colour, [*first, *steps(5, 6)], 400, bound)
    third = compacted(colour, [*second, *steps(7, 8)], 400, bound)
    assert third[1].texts == [f"{NOTE.format(num_removed=12)}\n\nFind the answer."]
    assert third[2:] == steps(7, 8)


def test_haystacks_own_compactor_keeps_a_task_with_a_merged_note() -> None:
    once = compacted("sync", [SYSTEM, TASK, *steps(1, 4)], 400, merge_note=True)
    stock = haystacks_own().compact([*once, *steps(5, 6)], 250, ApproximateTokenCounter())
    assert stock is not None
    assert once[1] in stock


def test_a_text_that_was_put_before_a_merged_note_survives_its_removal() -> None:
    merged = compacted("sync", [SYSTEM, TASK, *steps(1, 4)], 400, merge_note=True)[1]
    changed = ChatMessage(
        _role=merged.role, _content=[TextContent("It is late."), *merged._content], _meta=dict(merged.meta)
    )
    assert without_note(changed).texts == ["It is late.", "Find the answer."]
    no_dict = ChatMessage.from_user("x", meta={"context_compaction_merged_note": "of an unknown form"})
    assert without_note(no_dict) == ChatMessage.from_user("x")


@each_colour
@settings(max_examples=40, deadline=None)
@given(messages=st.one_of(valid_conversations(), conversations()), fraction=st.floats(0, 1))
def test_a_merged_note_changes_nothing_but_one_message(
    colour: str, messages: list[ChatMessage], fraction: float
) -> None:
    result = run(colour, SlidingWindowCompactor(merge_note=True), messages, int(fraction * size_of(messages)))
    if result is None:
        return
    known = {id(message) for message in messages}
    new = [message for message in result if id(message) not in known and message.is_from(ChatRole.USER)]
    merged = [message for message in new if without_note(message) is not message]
    assert len(merged) <= 1
    for message in merged:
        assert without_note(message) in messages
        assert "\n\n".join(message.texts).endswith("\n\n".join(without_note(message).texts))
        assert len(new) == 1


@each_colour
def test_with_a_merged_note_no_two_user_messages_follow_each_other_because_of_it(colour: str) -> None:
    messages = [SYSTEM, *turn("One"), *turn("Two"), TASK, *steps(1, 6)]
    for target in range(size_of(messages)):
        result = run(colour, SlidingWindowCompactor(merge_note=True), messages, target)
        roles = roles_of(result or messages)
        assert all(pair != ("user", "user") for pair in pairwise(roles))


def test_users_with_marks_of_compactions_are_no_task() -> None:
    marked = users("?", context_compaction={"strategy": "their own"})
    result = compacted("sync", [SYSTEM, TASK, *steps(1, 3), marked, *steps(4, 4)], 200)
    assert result[:2] == [SYSTEM, TASK]
    assert marked in result
