"""Which policy is for which tool: names, tuples of names and patterns, and how they are serialized."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate
from itertools import takewhile
from typing import NamedTuple

from haybaler.policies import AnyOffloadPolicy, decides_inline, goes_by_tokens

_WILDCARDS = frozenset("*?[")

Key = str | tuple[str, ...]
Strategies = Mapping[Key, AnyOffloadPolicy]


class Rule(NamedTuple):
    """
    A policy, and how it is asked.

    :param policy: The policy.
    :param by_tokens: Whether it is a `TokenOffloadPolicy`.
    :param inline: Whether it may be asked on the event loop.
    """

    policy: AnyOffloadPolicy
    by_tokens: bool
    inline: bool


class PolicyTable:
    """
    Finds the policy for a tool: that of its exact name, then of a tuple that has it, then of the pattern with the most
    literal characters.

    :param strategies: The policy for each key.
    """

    def __init__(self, strategies: Strategies) -> None:
        self.strategies = dict(strategies)
        rules = {key: Rule(p, goes_by_tokens(p), decides_inline(p)) for key, p in strategies.items()}
        listed = [(name, rule) for key, rule in rules.items() if isinstance(key, tuple) for name in key]
        # Of equal names, the first counts.
        self._named = {**dict(reversed(listed)), **{key: rule for key, rule in rules.items() if isinstance(key, str)}}
        patterns = sorted(_patterns(rules), key=lambda pattern: _literals(pattern[0]), reverse=True)
        # The first "*" fits every name, so it needs no looking, and nothing comes after it.
        before = takewhile(lambda pattern: pattern[0] != "*", patterns)
        self._patterns = [(re.compile(translate(pattern)).match, rule) for pattern, rule in before]
        self._otherwise = next((rule for pattern, rule in patterns if pattern == "*"), None)

    def rule_for(self, tool_name: str) -> Rule | None:
        """
        Find the policy for a tool.

        :param tool_name: The tool.
        :returns: The policy and how it is asked, or None if no key fits.
        """
        if tool_name in self._named:
            return self._named[tool_name]
        for matches, rule in self._patterns:
            if matches(tool_name):
                return rule
        return self._otherwise


def _patterns(rules: Mapping[Key, Rule]) -> Iterator[tuple[str, Rule]]:
    for key, rule in rules.items():
        names: Sequence[str] = key if isinstance(key, tuple) else (key,)
        for name in names:
            if not _WILDCARDS.isdisjoint(name):
                yield name, rule


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
