"""What providers report of their requests."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybaler.usage import nearest, plain_reading, readings

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(
    ["prompt_tokens", "input_tokens", "completion_tokens", "output_tokens", "total_tokens", "cached_tokens", "x"]
)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}, [120]),
        ({"input_tokens": 100, "output_tokens": 20}, [120]),
        ({"inputTokens": 100, "outputTokens": 20, "totalTokens": 120}, [120]),
        ({"prompt_token_count": 7, "candidates_token_count": 3, "total_token_count": 10}, [10]),
        ({"total_tokens": 120}, [120]),
        ({"prompt_tokens": "100", "completion_tokens": "20"}, [120]),
        ({"prompt_tokens": 100.0, "completion_tokens": None}, [100]),
        ({"prompt_tokens": 12, "completion_tokens": 8, "cache_read_input_tokens": 150_000}, [20, 150_020]),
        (
            {"input_tokens": 12, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 50},
            [12, 162],
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}},
            [105],
        ),
    ],
)
def test_each_reading_that_makes_sense_is_given(usage: dict[str, Any], expected: list[int]) -> None:
    assert readings(usage) == expected


@pytest.mark.parametrize(
    "usage",
    [
        None, 5, "120", [], {}, {"prompt_tokens": True}, {"prompt_tokens": -5}, {"prompt_tokens": math.inf},
        {"prompt_tokens": math.nan}, {"prompt_tokens": "many"}, {"prompt_tokens": {"text": 5}}, {"total_tokens": 0},
    ],
)  # fmt: skip
def test_what_says_nothing_gives_nothing(usage: object) -> None:
    assert readings(usage) == []


@given(st.dictionaries(NAMES, JSON) | JSON)
def test_whatever_is_reported_nothing_raises_and_figures_are_positive(usage: object) -> None:
    assert all(type(figure) is int for figure in readings(usage))
    assert all(figure > 0 for figure in readings(usage))
    assert plain_reading(usage) >= 0


def test_the_plain_reading_is_haystacks_own() -> None:
    assert plain_reading({"prompt_tokens": 12, "completion_tokens": 8, "cache_read_input_tokens": 150_000}) == 20
    assert plain_reading({"total_tokens": 20}) == 0
    assert plain_reading({"prompt_tokens": "12"}) == 0


def test_the_nearest_is_found_as_a_ratio() -> None:
    assert nearest([20, 150_020], 140_000) == 150_020
    assert nearest([20, 150_020], 30) == 20
    assert nearest([0, -5], 100) == 0
    assert nearest([], 100) == 0
