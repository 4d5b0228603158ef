"""The counters that need nothing but the text."""

import asyncio
import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall
from haystack.dataclasses.chat_message import ReasoningContent
from haystack.token_counters import ApproximateTokenCounter as HaystackApproximate
from haystack.token_counters import TiktokenCounter as HaystackTiktoken
from haystack.tools.from_function import create_tool_from_function
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compactors.conversations import PNG, answer, conversations

from haybaler import ApproximateTokenCounter, OpenAITokenCounter, TiktokenCounter
from haybaler.counters.rendering import is_short, rendered
from haybaler.errors import ConfigurationError

IMAGE = ImageContent(base64_image=PNG, mime_type="image/png")
FILE = FileContent(base64_data=PNG, mime_type="application/pdf", filename="report.pdf")


def fetch(url: str) -> str:
    """Fetch a page."""
    return url


TOOLS = [create_tool_from_function(fetch)]


def ordinary(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Leave out what Haystack does not count."""
    return [message for message in messages if not message.reasonings]


@settings(max_examples=150, deadline=None)
@given(messages=conversations(), chars_per_token=st.sampled_from([1.0, 2.5, 4.0]), with_tools=st.booleans())
def test_the_estimate_is_haystacks_own(messages: list[ChatMessage], chars_per_token: float, with_tools: bool) -> None:
    messages = ordinary(messages)
    tools = TOOLS if with_tools else None
    ours = ApproximateTokenCounter(chars_per_token).count(messages, tools)
    assert ours == HaystackApproximate(chars_per_token).count(messages, tools)


@settings(max_examples=50, deadline=None)
@given(messages=conversations())
def test_the_tokens_are_haystacks_own_wherever_that_does_not_raise(messages: list[ChatMessage]) -> None:
    messages = [message for message in ordinary(messages) if "<|endoftext|>" not in "".join(rendered([message]))]
    ours = TiktokenCounter("cl100k_base").count(messages)
    # Beyond the first slice of text, each may cost a token more.
    slices = sum(map(len, rendered(messages))) // 50_000
    assert abs(ours - HaystackTiktoken("cl100k_base").count(messages)) <= slices


def test_flat_fees_for_images_and_files_wherever_they_stand() -> None:
    messages = [
        ChatMessage.from_user(content_parts=["See:", IMAGE, FILE]),
        answer(ToolCall("fetch", {}), [TextContent("x"), IMAGE, FILE]),
    ]
    for ours, theirs in ((ApproximateTokenCounter, HaystackApproximate), (TiktokenCounter, HaystackTiktoken)):
        fees: dict[str, Any] = {"tokens_per_image": 7, "tokens_per_file": 100}
        assert ours(**fees).count(messages) == theirs(**fees).count(messages) > 2 * 107


def test_reasoning_counts() -> None:
    silent = [ChatMessage.from_assistant("So.")]
    thinking = [ChatMessage.from_assistant("So.", reasoning=ReasoningContent("Hm. " * 7500))]
    for counter in (ApproximateTokenCounter(), TiktokenCounter()):
        assert counter.count(thinking) > counter.count(silent) + 5000


def test_nothing_has_no_size() -> None:
    for counter in (ApproximateTokenCounter(), TiktokenCounter()):
        assert counter.count([]) == counter.count([], []) == 0


@pytest.mark.parametrize("chars_per_token", [0, -1, -0.5])
def test_characters_per_token_must_be_positive(chars_per_token: float) -> None:
    with pytest.raises(ConfigurationError, match=r"chars_per_token.*greater than 0"):
        ApproximateTokenCounter(chars_per_token)


def test_the_defaults_are_haystacks_own() -> None:
    ours, theirs = ApproximateTokenCounter().to_dict(), HaystackApproximate().to_dict()
    assert ours["init_parameters"] == theirs["init_parameters"]
    assert TiktokenCounter().to_dict()["init_parameters"] == HaystackTiktoken().to_dict()["init_parameters"]


@pytest.mark.parametrize(
    "counter",
    [ApproximateTokenCounter(2.0, 3, 4), TiktokenCounter("cl100k_base", 3, 4)],
    ids=lambda c: type(c).__name__,
)
def test_settings_survive_serialization(counter: Any) -> None:
    data = json.loads(json.dumps(counter.to_dict()))
    assert type(counter).from_dict(data).to_dict() == counter.to_dict()


@pytest.mark.anyio
@pytest.mark.parametrize("counter", [ApproximateTokenCounter(), TiktokenCounter()], ids=lambda c: type(c).__name__)
async def test_both_colours_count_alike(counter: Any) -> None:
    messages = [ChatMessage.from_user("Hello " * 100), ChatMessage.from_user(content_parts=[IMAGE])]
    assert await counter.count_async(messages, TOOLS) == counter.count(messages, TOOLS)


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|fim_prefix|>x<|endofprompt|>" * 3])
def test_text_like_a_special_token_is_ordinary_text(text: str) -> None:
    counter = TiktokenCounter()
    assert counter.count([ChatMessage.from_user(text)]) > counter.count([ChatMessage.from_user("x")]) + 3


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb" * 1000, "\U0001f600\ud83d", "\x00" * 10, "\u202e\u200b"])
def test_no_text_makes_a_counter_raise(text: str) -> None:
    for counter in (ApproximateTokenCounter(), TiktokenCounter()):
        assert counter.count([ChatMessage.from_user(text)]) > 0


@pytest.mark.parametrize("text", ["a" * 1_000_000, " " * 1_000_000, "漢" * 300_000], ids=["letter", "blank", "han"])
def test_hostile_text_of_a_megabyte_is_counted(text: str) -> None:
    assert TiktokenCounter().count([ChatMessage.from_user(text)]) > 1000


@pytest.mark.parametrize("unit", ["lorem ipsum dolor ", "x = [1, 2, 3]\n", "漢字かな", "1234567890"])
def test_a_long_text_costs_at_most_a_token_more_for_each_slice(unit: str) -> None:
    from tiktoken import get_encoding

    text = unit * (240_000 // len(unit))
    whole = len(get_encoding("o200k_base").encode_ordinary(f"[user] {text}"))
    assert whole <= TiktokenCounter().count([ChatMessage.from_user(text)]) <= whole + len(text) / 50_000 + 1


def test_the_vocabulary_is_loaded_at_first_use_or_at_warm_up() -> None:
    for first in (TiktokenCounter.warm_up, lambda counter: counter.count([ChatMessage.from_user("x")])):
        counter = TiktokenCounter()
        assert not counter.counts_inline
        first(counter)
        assert counter.counts_inline


@pytest.mark.anyio
async def test_warming_up_loads_the_vocabulary_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = recorded_loads(monkeypatch)
    counter = TiktokenCounter()
    await asyncio.gather(*(counter.warm_up_async() for _ in range(20)))
    assert counter.counts_inline
    await counter.warm_up_async()
    assert len(threads) == 1
    assert threads[0] is not threading.current_thread()


def test_threads_that_count_at_once_load_the_vocabulary_once(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = recorded_loads(monkeypatch)
    counter = TiktokenCounter()
    messages = [[ChatMessage.from_user(f"Hello {number} " * 50)] for number in range(64)]
    with ThreadPoolExecutor(16) as pool:
        sizes = list(pool.map(counter.count, messages))
    assert sizes == [counter.count(message) for message in messages]
    assert len(threads) == 1


def recorded_loads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return a list that gets the thread of each load of a vocabulary."""
    import tiktoken

    threads: list[threading.Thread] = []
    load = tiktoken.get_encoding

    def recorded(name: str) -> Any:
        threads.append(threading.current_thread())
        return load(name)

    monkeypatch.setattr(tiktoken, "get_encoding", recorded)
    return threads


def test_rendering_joins_to_what_haystack_renders() -> None:
    from haystack.token_counters.utils import _rendered_conversation, _rendered_tools

    call = ToolCall("fetch", {"b": 1, "a": [2]}, id="x")
    messages = [
        ChatMessage.from_system("Be brief."),
        ChatMessage.from_user(content_parts=["one", "two", IMAGE, FILE]),
        ChatMessage.from_assistant("Well.", tool_calls=[call, call]),
        answer(call, [TextContent("x"), IMAGE, FILE], error=True),
        ChatMessage.from_assistant(tool_calls=[], meta={}),
    ]
    assert "".join(rendered(messages, TOOLS)) == _rendered_conversation(messages) + _rendered_tools(TOOLS)


@pytest.mark.parametrize(
    ("message", "short"),
    [
        (ChatMessage.from_user("x" * 800), True),
        (ChatMessage.from_user("x" * 1000), False),
        (ChatMessage.from_assistant(reasoning=ReasoningContent("x" * 1000)), False),
        (answer(ToolCall("fetch", {}), "x" * 1000), False),
        (answer(ToolCall("fetch", {}), [TextContent("x" * 1000)]), False),
        (answer(ToolCall("fetch", {}), [IMAGE, FILE]), True),
        (ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {"code": "x" * 1000})]), False),
        (ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {"x" * 1000: 1})]), False),
        (ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {"a": [{"b": ["x" * 1000]}]})]), False),
        (ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {"a": [1] * 10**6})]), False),
        (ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {"a": [1] * 10})]), True),
    ],
    ids=lambda value: "" if isinstance(value, ChatMessage) else str(value),
)
def test_long_text_is_noticed_wherever_it_stands(message: ChatMessage, short: bool) -> None:
    assert is_short([message], 1000) is short


def test_many_messages_are_not_short() -> None:
    assert not is_short([ChatMessage.from_user("x")] * 1000, 16_000)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import importlib.util

    import haybaler.counters.tiktoken as module

    monkeypatch.setattr(
        module, "find_spec", lambda name: None if name == "tiktoken" else importlib.util.find_spec(name)
    )
    with pytest.raises(ImportError, match=r"pip install haybaler\[tiktoken\]"):
        TiktokenCounter()


@pytest.mark.parametrize(
    "counter", [ApproximateTokenCounter(), TiktokenCounter("cl100k_base"), OpenAITokenCounter("a-model")]
)
def test_a_counter_can_be_copied_with_the_agent_that_holds_it(counter: Any) -> None:
    [copied] = copy.deepcopy([counter])
    assert copied.to_dict() == counter.to_dict()
