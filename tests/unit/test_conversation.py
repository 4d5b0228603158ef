"""Which results answer which calls, what the task is, and what is broken in a conversation."""

import pytest
from haystack.dataclasses import ChatMessage, TextContent, ToolCall
from haystack.dataclasses.chat_message import ChatRole, ReasoningContent, ToolCallResult
from hypothesis import example, given
from hypothesis import strategies as st
from tests.compactors.conversations import answer, several

from haybaler.conversation import (
    Step,
    current_task,
    fresh_results,
    is_compaction_product,
    last_assistant_index,
    leading_system_end,
    pair,
    repaired,
    run_task,
)

USER = ChatMessage.from_user("Do it.")
SYSTEM = ChatMessage.from_system("Be brief.")
REPLY = ChatMessage.from_assistant("Done.")


def call(name: str = "fetch", call_id: str | None = None, n: int = 0) -> ToolCall:
    return ToolCall(name, {"n": n}, id=call_id)


def calling(*calls: ToolCall, text: str | None = None) -> ChatMessage:
    return ChatMessage.from_assistant(text, tool_calls=list(calls))


def test_results_are_paired_by_id_whatever_their_order() -> None:
    a, b = call(call_id="a"), call(call_id="b")
    messages = [calling(a, b), answer(b, "B"), answer(a, "A")]
    assert pair(messages).steps == (Step(0, (1, 2)),)


def test_a_message_between_a_call_and_its_result_does_not_part_them() -> None:
    for between in (USER, SYSTEM, REPLY, calling(call("other", "z"))):
        messages = [calling(call(call_id="a")), between, answer(call(call_id="a"), "A")]
        assert pair(messages).steps[0] == Step(0, (2,))


@pytest.mark.parametrize("call_id", [None, ""])
def test_results_without_ids_are_paired_by_tool_and_position(call_id: str | None) -> None:
    a, b = call("fetch", call_id), call("search", call_id)
    messages = [calling(a, b, a), answer(b, "B"), answer(a, "A"), answer(a, "A"), answer(a, "too many")]
    pairing = pair(messages)
    assert pairing.steps == (Step(0, (1, 2, 3)),)
    assert pairing.orphans == {(4, 0)}


def test_an_id_that_only_one_side_has_does_not_part_them() -> None:
    assert pair([calling(call(call_id="a")), answer(call(), "A")]).steps == (Step(0, (1,)),)
    assert pair([calling(call()), answer(call(call_id="a"), "A")]).steps == (Step(0, (1,)),)


def test_different_ids_never_meet() -> None:
    pairing = pair([calling(call(call_id="a")), answer(call(call_id="b"), "B"), USER])
    assert pairing.steps == ()
    assert (set(pairing.orphans), set(pairing.unanswered)) == ({(1, 0)}, {(0, 0)})


def test_a_reused_id_belongs_to_the_latest_call() -> None:
    a = call(call_id="a")
    messages = [calling(a), calling(a), answer(a, "second"), USER]
    pairing = pair(messages)
    assert pairing.steps == (Step(1, (2,)),)
    assert pairing.unanswered == {(0, 0)}


def test_equal_ids_in_one_message_go_by_the_tool() -> None:
    a, b = call("fetch", "same"), call("search", "same")
    messages = [calling(a, b), answer(b, "B"), USER]
    assert pair(messages).unanswered == {(0, 0)}
    messages = [calling(a, b), answer(a, "A"), USER]
    assert pair(messages).unanswered == {(0, 1)}


def test_a_result_before_its_call_answers_nothing() -> None:
    pairing = pair([answer(call(call_id="a"), "A"), calling(call(call_id="a")), USER])
    assert (set(pairing.orphans), set(pairing.unanswered)) == ({(0, 0)}, {(1, 0)})


def test_several_results_in_one_message_may_answer_several_steps() -> None:
    a, b = call(call_id="a"), call(call_id="b")
    messages = [calling(a), calling(b), several([answer(a, "A"), answer(b, "B")])]
    assert pair(messages).steps == (Step(0, (2,)), Step(1, (2,)))


def test_calls_at_the_end_still_wait_for_their_results() -> None:
    waiting = [USER, calling(call(call_id="a"), call(call_id="b")), answer(call(call_id="a"), "A")]
    assert repaired(waiting) == waiting
    assert repaired([*waiting, USER])[1].tool_calls == [call(call_id="a")]


def test_a_crashed_call_is_left_out_and_the_text_beside_it_stays() -> None:
    a, b = call(call_id="a"), call(call_id="b")
    messages = [calling(a, b, text="Let me see."), answer(b, "B"), USER]
    mended = repaired(messages)
    assert mended[0].texts == ["Let me see."]
    assert mended[0].tool_calls == [b]
    assert repaired([calling(a, text="Let me see."), USER])[0] == ChatMessage.from_assistant("Let me see.")


@pytest.mark.parametrize("text", [None, ""])
def test_a_message_that_would_be_left_without_words_goes(text: str | None) -> None:
    thought = ChatMessage.from_assistant(text, tool_calls=[call(call_id="a")], reasoning=ReasoningContent("Hm."))
    assert repaired([thought, USER]) == [USER]


def test_of_several_results_only_the_orphan_goes() -> None:
    a, orphan = call(call_id="a"), call(call_id="b")
    both = several([answer(orphan, "B"), answer(a, "A")])
    mended = repaired([calling(a), both, USER])
    assert mended[1] == ChatMessage(_role=ChatRole.TOOL, _content=[ToolCallResult("A", a, error=False)])


def test_repair_changes_neither_list_nor_messages() -> None:
    messages = [calling(call(call_id="a"), text="x"), USER]
    before = [message.to_dict() for message in messages]
    assert repaired(messages)[1] is USER
    assert [message.to_dict() for message in messages] == before


def marked(message: ChatMessage, strategy: str = "sliding_window") -> ChatMessage:
    return ChatMessage(
        _role=message.role, _content=message._content, _meta={"context_compaction": {"strategy": strategy}}
    )


A = call(call_id="a")
STEP = [calling(A), answer(A, "A")]


@pytest.mark.parametrize(
    ("messages", "task"),
    [
        ([], ()),
        ([SYSTEM, *STEP], ()),
        ([USER], (0,)),
        ([USER, USER], (0, 1)),
        ([USER, REPLY, USER], (2,)),
        ([USER, *STEP, USER], (0,)),
        ([USER, calling(A), USER, answer(A, "A")], (0,)),
        ([USER, *STEP, SYSTEM, USER], (0,)),
        ([USER, *STEP, REPLY, USER, *STEP], (4,)),
        ([USER, marked(USER), USER], (0,)),
        ([USER, marked(USER), marked(USER), USER], (0,)),
        ([USER, REPLY, marked(USER), USER], (3,)),
        ([marked(USER), USER, REPLY, USER], (3,)),
        ([marked(USER), USER, *STEP], (1,)),
        ([USER, *STEP, marked(REPLY), USER], (0,)),
        ([*STEP, USER], (2,)),
    ],
)
def test_the_task_is_the_last_message_that_begins_a_turn(messages: list[ChatMessage], task: tuple[int, ...]) -> None:
    assert current_task(messages) == task


@pytest.mark.parametrize(
    ("messages", "task"),
    [
        ([SYSTEM, USER, REPLY, USER, USER], (3, 4)),
        ([SYSTEM, USER], (1,)),
        ([USER, *STEP, USER], (3,)),
        ([USER, *STEP], (0,)),
        ([USER, marked(USER)], (0,)),
        ([], ()),
    ],
)
def test_the_task_of_a_run_is_what_it_was_started_with(messages: list[ChatMessage], task: tuple[int, ...]) -> None:
    assert run_task(messages) == task


def test_leading_system_messages_end_where_a_compaction_left_one() -> None:
    assert leading_system_end([SYSTEM, SYSTEM, USER, SYSTEM]) == 2
    assert leading_system_end([SYSTEM, marked(SYSTEM), SYSTEM]) == 1
    assert leading_system_end([SYSTEM]) == 1
    assert leading_system_end([]) == 0


def test_the_last_assistant_message() -> None:
    assert last_assistant_index([USER, REPLY, USER]) == 1
    assert last_assistant_index([USER]) == -1


def test_calls_and_results_that_a_compaction_changed_are_not_its_products() -> None:
    assert is_compaction_product(marked(USER))
    assert is_compaction_product(marked(REPLY), "sliding_window")
    assert not is_compaction_product(marked(REPLY), "summarization")
    assert not any(is_compaction_product(marked(message)) for message in STEP)
    assert not is_compaction_product(USER)


def test_fresh_results_are_those_of_the_last_calls_wherever_they_stand() -> None:
    b, c = call(call_id="b"), call("search")
    messages = [*STEP, USER, calling(b, c), SYSTEM, answer(c, "C"), answer(A, "stray"), answer(b, "B"), USER]
    fresh = fresh_results(messages)
    assert list(fresh) == [5, 7]
    assert fresh == {index: messages[index].tool_call_results for index in fresh}
    assert fresh_results([USER]) == fresh_results([]) == {}


def test_text_in_a_tool_message_survives_the_loss_of_its_result() -> None:
    odd = ChatMessage(_role=ChatRole.TOOL, _content=[ToolCallResult("A", A, error=False), TextContent("A remark.")])
    assert repaired([odd])[0].texts == ["A remark."]


_CALLS = st.builds(call, st.sampled_from(["fetch", "search"]), st.sampled_from([None, "", "a", "b", "c"]))


@given(
    st.lists(
        st.one_of(
            st.lists(_CALLS, min_size=1, max_size=3).map(lambda calls: calling(*calls)),
            st.builds(answer, _CALLS, st.just("R")),
            st.lists(_CALLS, min_size=1, max_size=3).map(lambda calls: several([answer(c, "R") for c in calls])),
            st.just(USER),
        ),
        max_size=8,
    )
)
@example([calling(call(call_id="a")), answer(call(call_id="b"), "B"), answer(call(call_id="a"), "A")])
@example([calling(call(call_id="a")), answer(call(call_id="a"), "A"), answer(call(call_id="a"), "once more")])
@example([calling(call(call_id="a"), call(call_id="a")), answer(call(call_id="a"), "A")])
@example([calling(call(call_id="")), answer(call(call_id="a"), "A")])
@example([calling(call(call_id=None)), answer(call("search", call_id=None), "S")])
def test_fresh_results_are_the_answers_to_the_last_calls_as_pairing_finds_them(messages: list[ChatMessage]) -> None:
    last = max((index for index, message in enumerate(messages) if message.tool_calls), default=len(messages))
    found = [last + index for step in pair(messages[last:]).steps for index in step.results]
    assert list(fresh_results(messages)) == found
    assert fresh_results(messages) == {index: messages[index].tool_call_results for index in found}
