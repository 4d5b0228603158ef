"""The counter of one run: each message once, nothing long on the event loop, and never an error."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.token_counters import ApproximateTokenCounter as HaystackApproximate
from haystack.tools import ToolsType
from haystack.tools.from_function import create_tool_from_function
from tests.compactors.conversations import answer
from tests.compactors.subjects import COLOURS, run

from haybaler import ApproximateTokenCounter, SlidingWindowCompactor, TiktokenCounter
from haybaler.counters.guarded import INLINE_CHARS
from haybaler.counters.run import INLINE_MESSAGES, RunTokenCounter
from haybaler.effects import perform

each_colour = pytest.mark.parametrize("colour", COLOURS)


class Witness:
    """Counts like the estimate, and remembers what it was asked and in which thread."""

    def __init__(self, *, inline: bool | None = True) -> None:
        if inline is not None:
            self.counts_inline = inline
        self.asked: Counter[int] = Counter()
        self.kept: list[ChatMessage] = []
        self.tools_asked = 0
        self.threads: set[threading.Thread] = set()

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        self.threads.add(threading.current_thread())
        self.asked.update(map(id, messages))
        self.kept += messages
        self.tools_asked += bool(tools)
        return ApproximateTokenCounter().count(messages, tools)


def fetch(url: str) -> str:
    """Fetch a page."""
    return url


def texts(*lengths: int) -> list[ChatMessage]:
    return [ChatMessage.from_user("x" * length) for length in lengths]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "make",
    [
        texts,
        lambda length: texts(*[length // 50] * 50),
        lambda length: [answer(ToolCall("fetch", {}), "x" * length)],
        lambda length: [ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {"code": "x" * length})])],
    ],
    ids=["one", "many", "result", "arguments"],
)
async def test_only_short_texts_are_counted_in_the_thread_of_the_loop(
    make: Callable[[int], list[ChatMessage]],
) -> None:
    short, long = Witness(), Witness()
    await RunTokenCounter(short).count_async(make(INLINE_CHARS // 2))
    assert short.threads == {threading.current_thread()}
    await RunTokenCounter(long).count_async(make(INLINE_CHARS + 1))
    assert long.threads
    assert threading.current_thread() not in long.threads


@pytest.mark.anyio
async def test_a_counter_says_up_to_how_many_characters_it_is_quick_but_many_messages_never_are() -> None:
    class Quick(Witness):
        inline_chars = 100 * INLINE_CHARS

    long, many = Quick(), Quick()
    await RunTokenCounter(long).count_async(texts(50 * INLINE_CHARS))
    assert long.threads == {threading.current_thread()}
    await RunTokenCounter(many).count_async(texts(*[5] * (INLINE_MESSAGES + 1)))
    assert threading.current_thread() not in many.threads


@pytest.mark.anyio
@pytest.mark.parametrize("tokens_per_page", [None, 100])
async def test_the_estimate_is_quick_with_long_texts_unless_it_looks_through_files(tokens_per_page: int | None) -> None:
    counter = ApproximateTokenCounter(tokens_per_page=tokens_per_page)
    assert (counter.inline_chars > 10 * INLINE_CHARS) is (tokens_per_page is None)


@pytest.mark.anyio
@pytest.mark.parametrize("inline", [None, False])
async def test_a_counter_that_may_block_is_never_called_in_the_thread_of_the_loop(inline: bool | None) -> None:
    witness = Witness(inline=inline)
    await RunTokenCounter(witness).count_async(texts(5), [create_tool_from_function(fetch)])
    assert threading.current_thread() not in witness.threads


@pytest.mark.anyio
async def test_a_native_counter_is_awaited() -> None:
    class Native(Witness):
        async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
            return self.count(messages, tools)

    native = Native(inline=None)
    assert await RunTokenCounter(native).count_async(texts(400)) == ApproximateTokenCounter().count(texts(400))
    assert native.threads == {threading.current_thread()}


@each_colour
def test_haystacks_own_counter_is_used_as_it_is(colour: str) -> None:
    messages = [ChatMessage.from_assistant("x" * 4000), *texts(40)]
    assert run(colour, SlidingWindowCompactor(omission_note=None), messages, 10, HaystackApproximate()) == messages[1:]


def test_messages_and_tools_are_counted_once() -> None:
    witness = Witness()
    counter = RunTokenCounter(witness)
    messages, tools = texts(5, 50), [create_tool_from_function(fetch)]
    first = counter.count(messages, tools)
    assert counter.count(list(messages), list(tools)) == first
    counter.count([*messages, *texts(7)], tools)
    assert set(witness.asked.values()) == {1}
    assert witness.tools_asked == 1
    counter.count(messages, [create_tool_from_function(fetch)])
    assert witness.tools_asked == 2


def test_only_the_sizes_of_the_conversation_are_kept() -> None:
    witness = Witness()
    counter = RunTokenCounter(witness)
    kept, dropped = texts(5, 50)
    counter.count([kept, dropped])
    counter.keep_only([kept])
    counter.count([kept, dropped])
    assert (witness.asked[id(kept)], witness.asked[id(dropped)]) == (1, 2)


def test_sizes_are_only_looked_through_when_there_are_more_than_messages() -> None:
    witness = Witness()
    counter = RunTokenCounter(witness)
    kept, dropped, new = texts(5, 50, 500)
    counter.count([kept, dropped])
    counter.keep_at_most([kept, new])
    counter.count([kept, dropped])
    assert set(witness.asked.values()) == {1}
    counter.count([new])
    counter.keep_at_most([kept, new])
    counter.count([kept, new, dropped])
    assert [witness.asked[id(message)] for message in (kept, new, dropped)] == [1, 1, 2]


class Broken:
    """A counter that fails at its second message and would work again later."""

    def __init__(self, outcome: Any = None) -> None:
        self.calls = 0
        self.outcome = outcome

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> Any:
        self.calls += 1
        if self.calls == 2:
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return self.outcome
        return 1000


@each_colour
@pytest.mark.parametrize("outcome", [ConnectionError("down"), OSError(503), None, "many", float("nan")], ids=repr)
def test_a_failing_counter_is_replaced_by_an_estimate_with_one_warning(
    colour: str, outcome: Any, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(outcome)
    counter = RunTokenCounter(broken)
    messages = texts(400, 4000, 400, 400)
    run(colour, SlidingWindowCompactor(), messages, 50, counter)
    run(colour, SlidingWindowCompactor(), [*messages, *texts(400)], 50, counter)
    assert broken.calls == 2
    assert [(r.levelno, r.__dict__["counter"]) for r in caplog.records] == [(logging.WARNING, "Broken")]
    assert perform(counter.sizes(messages)) == [1000, 1001, 101, 101]


def raising(*_: object) -> Any:
    raise OSError


@each_colour
@pytest.mark.parametrize("inline", [True, property(raising)], ids=["inline", "raising"])
@pytest.mark.parametrize(
    "said",
    [
        ("inline_chars", None),
        ("inline_chars", "many"),
        ("inline_chars", float("nan")),
        ("inline_chars", property(raising)),
        ("counts_conversations", property(raising)),
        ("count_async", property(raising)),
        ("likely", raising),
        ("likely", staticmethod(lambda _: None)),
        ("likely", staticmethod(lambda _: float("nan"))),
        ("likely", staticmethod(lambda _: -1.0)),
        ("likely", property(raising)),
    ],
    ids=lambda said: f"{said[0]} {type(said[1]).__name__}",
)
def test_what_a_counter_says_of_itself_ends_no_run(colour: str, inline: Any, said: tuple[str, Any]) -> None:
    kind = type("Own", (Witness,), {"counts_inline": inline, **dict([said])})
    counter, plain = RunTokenCounter(kind(inline=None)), RunTokenCounter(Witness())
    messages = [ChatMessage.from_assistant("x" * 40_000), *texts(4000)]
    for one in (counter, plain):
        perform(one.learn(messages, 22_000))
        assert run(colour, SlidingWindowCompactor(omission_note=None), messages, 3000, one) == messages[1:]
    assert perform(counter.sizes(messages)) == perform(plain.sizes(messages))


@each_colour
def test_a_vocabulary_that_cannot_be_loaded_means_an_estimate_and_one_warning(
    colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages = [ChatMessage.from_assistant("x" * 4000), *texts(40)]
    result = run(
        colour, SlidingWindowCompactor(omission_note=None), messages, 100, RunTokenCounter(TiktokenCounter("none_such"))
    )
    assert result == messages[1:]
    assert len(caplog.records) == 1


def test_a_run_counter_is_not_wrapped_twice_and_serializes_as_what_it_wraps() -> None:
    counter = RunTokenCounter(ApproximateTokenCounter(3.0))
    assert RunTokenCounter.of(counter) is counter
    assert counter.to_dict() == ApproximateTokenCounter(3.0).to_dict()
