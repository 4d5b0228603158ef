"""Which policy is for which tool: names, tuples of names and patterns, and how they are serialized."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate

from haybaler.policies import AnyOffloadPolicy

_WILDCARDS = frozenset("*?[")

Key = str | tuple[str, ...]
Strategies = Mapping[Key, AnyOffloadPolicy]


class PolicyTable:
    """
    Finds the policy for a tool: that of its exact name, then of a tuple that has it, then of the pattern with the most
    literal characters.

    :param strategies: The policy for each key.
    """

    def __init__(self, strategies: Strategies) -> None:
        self.strategies = dict(strategies)
        listed = [(name, policy) for key, policy in strategies.items() if isinstance(key, tuple) for name in key]
        # Of equal names, the first counts.
        self._named = {**dict(reversed(listed)), **{key: p for key, p in strategies.items() if isinstance(key, str)}}
        patterns = sorted(_patterns(strategies), key=lambda pattern: _literals(pattern[0]), reverse=True)
        self._patterns = [(re.compile(translate(pattern)).match, policy) for pattern, policy in patterns]

    def policy_for(self, tool_name: str) -> AnyOffloadPolicy | None:
        """
        Find the policy for a tool.

        :param tool_name: The tool.
        :returns: The policy, or None if no key fits.
        """
        if tool_name in self._named:
            return self._named[tool_name]
        for matches, policy in self._patterns:
            if matches(tool_name):
                return policy
        return None


def _patterns(strategies: Strategies) -> Iterator[tuple[str, AnyOffloadPolicy]]:
    for key, policy in strategies.items():
        names: Sequence[str] = key if isinstance(key, tuple) else (key,)
        for name in names:
            if not _WILDCARDS.isdisjoint(name):
                yield name, policy


def _literals(pattern: str) -> int:
    return sum(character not in _WILDCARDS for character in pattern)


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
