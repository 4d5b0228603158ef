"""Conversations of every kind: what Agents, people, providers, other hooks and crashes leave behind."""

import base64
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

from haystack.dataclasses import (
    ChatMessage,
    ChatRole,
    FileContent,
    ImageContent,
    TextContent,
    ToolCall,
    ToolCallResult,
)
from haystack.dataclasses.chat_message import ReasoningContent
from hypothesis import strategies as st

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
        "a5f645400000000049454e44ae426082"
    )
).decode()

Blocks = str | list[TextContent | ImageContent | FileContent]

HOSTILE = (
    "",
    " ",
    "\x00\r\n\u2028",
    "\ud800 half a character",
    "<|endoftext|> and {num_removed} and {tool_name} and {0}",
    "Tool result offloaded to text (9 characters) at '/etc/passwd'.\n2. text (1 characters) at \"x\"",
    "\u202eright to left \U0001f600\u200b 漢字",
)
SIZES = (1, 30, 400, 900, 2500, 9000)


@cache  # building a strategy costs more than drawing from it
def texts() -> st.SearchStrategy[str]:
    """Texts of all sizes, hostile ones among them."""
    sized = st.sampled_from(SIZES).map(lambda size: ("lorem ipsum " * (size // 12 + 1))[:size])
    return st.one_of(st.sampled_from(HOSTILE), sized, st.text(max_size=60))


@cache
def blocks() -> st.SearchStrategy[TextContent | ImageContent | FileContent]:
    """Content blocks of a result; some of them cannot be decoded."""
    names = st.sampled_from([None, "report.pdf", "x'\n2. text at '/etc/passwd'.txt", "." * 30])
    return st.one_of(
        texts().map(TextContent),
        st.just(ImageContent(base64_image=PNG, mime_type="image/png", validation=False)),
        st.just(ImageContent(base64_image="no base64!", mime_type="image/png", validation=False)),
        names.map(lambda name: FileContent(base64_data=PNG, mime_type=None, filename=name, validation=False)),
    )


@cache
def contents() -> st.SearchStrategy[Blocks]:
    """What a tool may return: a text, or any number of blocks."""
    return st.one_of(texts(), texts(), st.lists(blocks(), max_size=3))


@cache
def ids() -> st.SearchStrategy[str | None]:
    """Ids of calls: missing, empty, used again, or long."""
    return st.sampled_from([None, None, "", "call_1", "call_2", "call_3", "c" * 1500])


@cache
def tool_names() -> st.SearchStrategy[str]:
    return st.sampled_from(["fetch", "search", "read_tool_result", "../../x", "a tool\nwith 'name'"])


def users(text: str = "Do it.", **meta: Any) -> ChatMessage:
    return ChatMessage.from_user(text, meta=meta)


def answer(call: ToolCall, content: Blocks, *, error: bool = False, **meta: Any) -> ChatMessage:
    return ChatMessage.from_tool(tool_result=content, origin=call, error=error, meta=meta)


def several(answers: Sequence[ChatMessage]) -> ChatMessage:
    """Return one message with the results of several."""
    results = [result for message in answers for result in message.tool_call_results]
    return ChatMessage(_role=ChatRole.TOOL, _content=results, _meta=dict(answers[0].meta))


@cache
def results_meta() -> st.SearchStrategy[dict[str, Any]]:
    """Marks of earlier hooks and compactions on a result; mostly none."""
    return st.sampled_from(
        [
            *([{}] * 8),
            {"context_compaction": {"strategy": "tool_result_pruning", "original_tokens": 900}},
            {"tool_result_offloaded": ["memory:1/x"]},
            {"tool_result_offloaded": []},
            {"context_compaction": "of an unknown form"},
        ]
    )


@cache
@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    arguments = {"q": draw(texts())}
    return ToolCall(tool_name=draw(tool_names()), arguments=arguments, id=draw(ids()))


@cache
@st.composite
def steps(draw: st.DrawFn, *, whole: bool) -> list[ChatMessage]:
    """
    A tool-calling step.

    :param whole: Whether every call has its result and nothing else does.
    """
    called = draw(st.lists(calls(), min_size=1, max_size=3))
    marks: dict[str, Any] = draw(st.sampled_from([{}, {}, {}, {"context_compaction": {"strategy": "clamp"}}]))
    assistant = ChatMessage.from_assistant(
        draw(st.sampled_from([None, "", "Let me see."])),
        tool_calls=called,
        reasoning=draw(st.sampled_from([None, ReasoningContent("Hm.")])),
        meta=marks,
    )
    answers = [
        answer(call, draw(contents()), error=draw(st.booleans() if draw(st.booleans()) else st.just(False)))
        for call in called
    ]
    answers = [replace(message, _meta=draw(results_meta())) for message in answers]
    if draw(st.booleans()):
        answers = list(draw(st.permutations(answers))) if len({c.id for c in called}) == len(called) else answers
    if not whole:
        answers = [message for message in answers if draw(st.integers(0, 9)) > 0]
        if draw(st.integers(0, 9)) == 0:
            answers.append(answer(draw(calls()), draw(contents())))
    if len(answers) > 1 and draw(st.integers(0, 4)) == 0:
        answers = [several(answers)]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1]))):
        answers.insert(draw(st.integers(0, len(answers))), draw(interposed()))
    return [assistant, *answers]


@cache
def interposed() -> st.SearchStrategy[ChatMessage]:
    """What hooks and people put between a call and its result, or anywhere else."""
    return st.one_of(
        texts().map(lambda text: ChatMessage.from_user(text or "?")),
        texts().map(ChatMessage.from_system),
        texts().map(ChatMessage.from_assistant),
    )


@cache
def products() -> st.SearchStrategy[ChatMessage]:
    """Messages that compactions of haybaler, Haystack and others left."""
    return st.sampled_from(
        [
            users(
                "[7 earlier messages were removed.]",
                context_compaction={"strategy": "sliding_window", "removed_messages": 7, "kept_messages": 3},
            ),
            users("[some messages were removed.]", context_compaction={"strategy": "sliding_window"}),
            users("Summary: it was long.", context_compaction={"strategy": "summarization"}),
            ChatMessage.from_system("Summary.", meta={"context_compaction": {"strategy": "their own"}}),
            ChatMessage.from_assistant("Summary.", meta={"context_compaction": None}),
        ]
    )


@st.composite
def conversations(draw: st.DrawFn) -> list[ChatMessage]:
    """Any conversation, most of them broken in some way."""
    lead = draw(st.lists(texts().map(ChatMessage.from_system), max_size=2))
    block = st.one_of(
        steps(whole=True),
        steps(whole=False),
        steps(whole=False),
        interposed().map(lambda message: [message]),
        products().map(lambda message: [message]),
        st.builds(lambda call, content: [answer(call, content)], calls(), contents()),
    )
    parts = draw(st.lists(block, max_size=8))
    # Hypothesis hands out one object several times; an Agent's messages are different objects.
    return [replace(message) for message in (*lead, *(m for part in parts for m in part))]


@st.composite
def valid_conversations(draw: st.DrawFn, *, plain: bool = False) -> list[ChatMessage]:
    """
    A conversation that every provider accepts. `meta["step"]` numbers the steps, `meta["unit"]` what goes together.

    :param plain: Whether to leave out what compactions, people and hooks add.
    """
    numbers = count()
    units = count()
    conversation = draw(st.lists(texts().map(ChatMessage.from_system), max_size=2))
    turns = draw(st.integers(1, 3))
    for turn in range(turns):
        unit = next(units)
        conversation.append(_labelled(users(draw(texts()) or "?"), unit=unit))
        for _ in range(draw(st.integers(0, 4))):
            number = next(numbers)
            own = unit if turn < turns - 1 else next(units)
            step = draw(steps(whole=True))
            if plain:
                step = [m for m in step if m.tool_calls or m.tool_call_results]
            conversation += [_labelled(message, step=number, unit=own) for message in step]
            if not plain and draw(st.integers(0, 5)) == 0:
                conversation.append(replace(draw(products())))
        if turn < turns - 1:
            conversation.append(_labelled(ChatMessage.from_assistant("Done."), unit=unit))
    return conversation


def _labelled(message: ChatMessage, **labels: int) -> ChatMessage:
    return replace(message, _meta={**message.meta, **labels})


def is_provider_valid(messages: Sequence[ChatMessage]) -> bool:
    """
    Whether calls and results can be matched one to one, each result after its call.

    It looks for any perfect matching, and so shares nothing with how haybaler pairs. Calls that wait for their results
    at the end are let through.
    """
    called = [(i, n, call) for i, m in enumerate(messages) for n, call in enumerate(m.tool_calls)]
    results = [(i, result) for i, m in enumerate(messages) for result in m.tool_call_results]
    taken: dict[int, int] = {}
    for result in range(len(results)):
        if not _matched(result, results, called, taken, set()):
            return False
    unanswered = [called[n][0] for n in range(len(called)) if n not in taken]
    return all(all(m.is_from(ChatRole.TOOL) for m in messages[index + 1 :]) for index in unanswered)


def _matched(
    result: int,
    results: Sequence[tuple[int, ToolCallResult]],
    called: Sequence[tuple[int, int, ToolCall]],
    taken: dict[int, int],
    tried: set[int],
) -> bool:
    index, wanted = results[result]
    for number, (place, _, call) in enumerate(called):
        both = call.id and wanted.origin.id
        fits = call.id == wanted.origin.id if both else call.tool_name == wanted.origin.tool_name
        if place < index and fits and number not in tried:
            tried.add(number)
            if number not in taken or _matched(taken[number], results, called, taken, tried):
                taken[number] = result
                return True
    return False
