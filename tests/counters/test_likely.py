"""Judging the tokens of a text by what it looks like."""

import base64
import json
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import tiktoken
from haystack.dataclasses import ChatMessage
from hypothesis import given
from hypothesis import strategies as st

from haybaler import ApproximateTokenCounter
from haybaler.counters.likely import likely_tokens

RANDOM = random.Random(7)
WORDS = [
    "the",
    "of",
    "network",
    "agent",
    "storage",
    "result",
    "under",
    "value",
    "energy",
    "report",
    "city",
    "people",
    "water",
    "model",
    "light",
    "number",
]

TEXTS: dict[str, Callable[[], str]] = {
    "prose": lambda: " ".join(RANDOM.choice(WORDS) for _ in range(4_000)),
    "code": lambda: Path(json.__file__).read_text(encoding="utf-8"),
    "chinese": lambda: "政府今天宣布了新的经济政策、旨在支持地方产业的发展、并提高居民的收入水平。" * 200,
    "thai": lambda: "รัฐบาลประกาศนโยบายเศรษฐกิจใหม่เพื่อสนับสนุนอุตสาหกรรมในท้องถิ่น" * 100,
    "json": lambda: json.dumps([{"id": RANDOM.randrange(10**6), "v": RANDOM.random()} for _ in range(500)]),
    "base64": lambda: base64.b64encode(RANDOM.randbytes(15_000)).decode(),
    "uuids": lambda: ",".join(str(uuid.UUID(int=RANDOM.getrandbits(128))) for _ in range(400)),
    "emoji": lambda: "".join(chr(RANDOM.randrange(0x1F300, 0x1F5FF)) for _ in range(5_000)),
    "blanks": lambda: "".join(f"<div>{' ' * RANDOM.randrange(60, 200)}x</div>\n" for _ in range(100)),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_each_kind_of_text_is_judged_within_a_factor_of_two(kind: str) -> None:
    text = TEXTS[kind]()
    true = len(tiktoken.get_encoding("o200k_base").encode_ordinary(text))
    assert 0.5 < likely_tokens(text) / true < 2


@given(st.text())
def test_any_text_is_judged(text: str) -> None:
    judged = likely_tokens(text)
    assert judged >= 0
    assert judged <= 3 * len(text)


def test_a_long_text_is_judged_by_samples() -> None:
    short = "some words of a text, " * 100
    assert likely_tokens(short * 500) / likely_tokens(short) == pytest.approx(500, rel=0.05)


def test_a_message_is_judged_with_everything_in_it() -> None:
    counter = ApproximateTokenCounter()
    plain = counter.likely(ChatMessage.from_user("hello there"))
    assert counter.likely(ChatMessage.from_user("hello there", meta={"x": "y" * 100})) == plain
    assert counter.likely(ChatMessage.from_user("hello there " * 10)) > 5 * plain / 2
