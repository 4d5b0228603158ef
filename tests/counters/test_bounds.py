"""The most and the least tokens that a message can have: true bounds, and not said by whom they do not hold for."""

from dataclasses import replace
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, TextContent, ToolCall, ToolCallResult
from hypothesis import example, given
from hypothesis import strategies as st
from tests.compactors.conversations import answer

from haybaler import ApproximateTokenCounter, TiktokenCounter
from haybaler.counters.rendering import rendered
from haybaler.counters.run import RunTokenCounter
from haybaler.effects import perform
from haybaler.parts import parts_of
from haybaler.swaps import Slot

LOCAL = [ApproximateTokenCounter(), ApproximateTokenCounter(0.7), TiktokenCounter(), TiktokenCounter("cl100k_base")]

any_text = st.text(st.characters(exclude_categories=()), max_size=60)
texts = st.one_of(any_text, any_text.map(lambda text: 20 * text), st.text("\U0001f676 \u3000é", max_size=30))


def bytes_of(message: ChatMessage) -> int:
    return len("".join(rendered([message])).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("counter", LOCAL, ids=lambda counter: type(counter).__name__)
@given(texts)
def test_a_local_counter_never_counts_more_than_its_bound(counter: Any, text: str) -> None:
    message = answer(ToolCall("fetch", {}), text)
    assert counter.count([message]) <= counter.most_tokens(bytes_of(message))


@pytest.mark.parametrize("counter", LOCAL[:2])
@given(texts, texts)
def test_an_estimate_is_never_less_than_its_bound(counter: Any, text: str, more: str) -> None:
    answers: list[Any] = [ToolCallResult(content, ToolCall("fetch", {}), error=False) for content in (text, more)]
    message = ChatMessage(_role=answer(ToolCall("fetch", {}), "").role, _content=answers)
    assert counter.least_tokens(len(text)) <= counter.least_tokens(len(text) + len(more)) <= counter.count([message])


results = st.builds(
    ToolCallResult,
    st.lists(texts.map(TextContent), min_size=1, max_size=3) | texts,
    origin=st.builds(ToolCall, texts, st.just({})),
    error=st.booleans(),
)


def test_what_stands_beside_the_results_has_no_bound() -> None:
    message = answer(ToolCall("fetch", {}), "x" * 400)
    results = {0: message.tool_call_results[0]}
    parts = parts_of(results[0], 0, prefix="", preview_chars=10) or []
    assert Slot(0, message, results, parts).bounds(["reference"]) is not None
    beside = replace(message, _content=[*message.tool_call_results, TextContent("said " * 1_000)])
    assert Slot(0, beside, results, parts).bounds(["reference"]) is None


WIDE = ["\U0001f676" * 400] * 30


@given(st.lists(results, min_size=1, max_size=3), st.integers(0, 30), texts)
@example([ToolCallResult(list(map(TextContent, WIDE)), ToolCall("fetch", {}), error=False)], 400, "r" * 300)
@example([ToolCallResult(text, ToolCall("fetch", {}), error=False) for text in WIDE], 400, "r" * 300)
@example([ToolCallResult("", ToolCall("fetch", {}), error=True)] * 99, 0, "")
@example([ToolCallResult([TextContent("")] * 99, ToolCall("fetch", {}), error=True)], 0, "")
@example([ToolCallResult("", ToolCall("\U0001f676" * 500, {}), error=True)], 0, "")
def test_a_message_and_its_pointers_are_never_beyond_their_bounds(
    given_results: list[ToolCallResult], preview_chars: int, reference: str
) -> None:
    message = ChatMessage(_role=answer(ToolCall("fetch", {}), "").role, _content=list(given_results))
    replaced = dict(enumerate(given_results))
    parts = [
        part
        for place, result in replaced.items()
        for part in parts_of(result, place, prefix="", preview_chars=preview_chars) or []
    ]
    references = [reference] * len(parts)
    slot = Slot(0, message, replaced, parts)
    bounds = slot.bounds(references)
    assert bounds is not None
    least, most = bounds
    assert len("".join(rendered([message]))) >= least
    assert bytes_of(slot.replaced(references)) <= most
    del replaced[0]
    assert Slot(0, message, replaced, parts).bounds(references) is None  # the first result stays, whatever its size


def test_a_subclass_says_it_anew() -> None:
    class Doubled(ApproximateTokenCounter):
        def count(self, messages: Any, tools: Any = None) -> int:
            return 2 * super().count(messages, tools)

    class DoubledAndSaid(Doubled):
        def most_tokens(self, size: int) -> int:
            return 2 * super().most_tokens(size)

        def least_tokens(self, characters: int) -> int:
            return 2 * super().least_tokens(characters)

    assert RunTokenCounter(ApproximateTokenCounter()).least_tokens(400) == 100
    assert RunTokenCounter(Doubled()).least_tokens(400) is None
    assert RunTokenCounter(DoubledAndSaid()).least_tokens(400) == 200
    assert RunTokenCounter(ApproximateTokenCounter()).most_tokens(400) == 100
    assert RunTokenCounter(Doubled()).most_tokens(400) is None
    assert RunTokenCounter(DoubledAndSaid()).most_tokens(400) == 200


def raising(self: Any, size: int) -> int:
    raise OSError


@pytest.mark.parametrize(
    "said",
    [
        raising,
        lambda self, size: "400",
        lambda self, size: -1,
        lambda self, size: float("nan"),
        lambda self, size: None,
        staticmethod(lambda size: size),
        classmethod(lambda cls, size: size),
        property(lambda self: 400),
        4096,
    ],
    ids=["raises", "text", "negative", "no number", "none", "static", "of the class", "property", "constant"],
)
def test_what_is_no_bound_is_not_taken_for_one_and_ends_no_run(said: Any) -> None:
    methods = {"count": lambda self, messages, tools=None: 1, "most_tokens": said, "least_tokens": said}
    counter = RunTokenCounter(type("Own", (), methods)())
    assert counter.most_tokens(400) is None
    assert counter.least_tokens(400) is None


def test_after_a_failure_the_bound_is_that_of_the_estimate() -> None:
    class Failing:
        def count(self, messages: Any, tools: Any = None) -> int:
            raise OSError

        def most_tokens(self, size: int) -> int:
            return 0

    counter = RunTokenCounter(Failing())
    assert counter.most_tokens(400) == 0
    assert counter.size(answer(ToolCall("fetch", {}), "x")) > 0
    assert counter.most_tokens(400) == 100


def test_in_the_scale_of_the_provider_there_is_no_bound() -> None:
    counter = RunTokenCounter(ApproximateTokenCounter())
    message = ChatMessage.from_user("x" * 400)
    perform(counter.sizes([message]))
    perform(counter.learn([message], 1_000))
    assert counter.size(message) > 500
    assert counter.least_tokens(400) is None
    assert counter.most_tokens(400) is None
