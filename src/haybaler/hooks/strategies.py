"""Which policy is for which tool: names, tuples of names and patterns, and how they are serialized."""

import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from haybaler.policies import AnyOffloadPolicy

_WILDCARDS = frozenset("*?[")

Key = str | tuple[str, ...]
Strategies = Mapping[Key, AnyOffloadPolicy]


def policy_for(strategies: Strategies, tool_name: str) -> AnyOffloadPolicy | None:
    """
    Find the policy for a tool: that of its exact name, then of a tuple that has it, then of the pattern with the most
    literal characters.

    :param strategies: The policy for each key.
    :param tool_name: The tool.
    :returns: The policy, or None if no key fits.
    """
    if tool_name in strategies:
        return strategies[tool_name]
    listed = (policy for key, policy in strategies.items() if isinstance(key, tuple) and tool_name in key)
    matching = (
        (len([c for c in pattern if c not in _WILDCARDS]), policy)
        for pattern, policy in _patterns(strategies)
        if fnmatchcase(tool_name, pattern)
    )
    best = max(matching, key=lambda match: match[0], default=(0, None))
    return next(listed, best[1])


def _patterns(strategies: Strategies) -> Iterator[tuple[str, AnyOffloadPolicy]]:
    for key, policy in strategies.items():
        names: Sequence[str] = key if isinstance(key, tuple) else (key,)
        for name in names:
            if _WILDCARDS & set(name):
                yield name, policy


def key_to_text(key: Key) -> str:
    """Return a key as the key of a JSON object; a tuple of names becomes a JSON array."""
    return json.dumps(list(key)) if isinstance(key, tuple) else key


def key_from_text(text: str) -> Key:
    """Return the key that `key_to_text` made the text of."""
    try:
        names = json.loads(text)
    except ValueError:
        return text
    is_tuple = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return tuple(names) if is_tuple else text  # `[1]` is a pattern for one digit
