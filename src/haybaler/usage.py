"""
Pure: what a provider's usage report says about the size of its last request and reply.

Providers differ in names and in what they add up: some count what they read from a cache inside the prompt, some
beside it, some give only a total. So a report yields every reading that makes sense, and whoever knows roughly what
to expect takes the nearest.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

_INPUT = ("prompt_tokens", "input_tokens", "inputTokens", "prompt_token_count")
_OUTPUT = ("completion_tokens", "output_tokens", "outputTokens", "candidates_token_count")
_TOTAL = ("total_tokens", "totalTokens", "total_token_count")
# Beside the input figure at Anthropic and Bedrock; inside it elsewhere.
_CACHED = (
    ("cache_read_input_tokens", "cacheReadInputTokens", "cached_tokens"),
    ("cache_creation_input_tokens", "cache_write_input_tokens", "cacheWriteInputTokens"),
)


def readings(usage: object) -> list[int]:
    """
    Return what a usage report may mean.

    :param usage: `meta["usage"]` of a reply: usually a mapping, but anything is accepted.
    :returns: Sizes of request and reply together, in tokens; empty if the report says nothing.
    """
    if not isinstance(usage, Mapping):
        return []
    taken, given, total = (_first(usage, names) for names in (_INPUT, _OUTPUT, _TOTAL))
    found = [taken + given] if taken else []
    cached = sum(_first(usage, names) for names in _CACHED)
    if cached:
        found.append(taken + given + cached)
    if total:
        found.append(total)
    return list(dict.fromkeys(found))


def plain_reading(usage: object) -> int:
    """
    Return the reading that Haystack itself keeps in `context_tokens`.

    :param usage: `meta["usage"]` of a reply.
    :returns: Input plus output tokens under the names that Haystack looks for, or 0.
    """
    if not isinstance(usage, Mapping):
        return 0
    return _first(usage, _INPUT[:2], texts=False) + _first(usage, _OUTPUT[:2], texts=False)


def nearest(figures: Iterable[int], expected: float) -> int:
    """
    Return the figure that is nearest to what is expected, as a ratio.

    :param figures: Figures in tokens.
    :param expected: What is expected, in tokens.
    :returns: The nearest, or 0 if there is none above 0.
    """
    goal = math.log(max(expected, 1.0))
    return min((figure for figure in figures if figure > 0), key=lambda f: abs(math.log(f) - goal), default=0)


def _first(usage: Mapping[Any, Any], names: Iterable[str], *, texts: bool = True) -> int:
    for name in names:
        number = _number(usage.get(name), texts=texts)
        if number:
            return number
    return 0


def _number(value: object, *, texts: bool) -> int:
    if isinstance(value, str) and texts:
        try:
            value = float(value)
        except ValueError:
            return 0
    # A bool is no count, although Python calls it an int; neither are negative and infinite numbers.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
        return 0
    return int(value)
