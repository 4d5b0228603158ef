"""Which policy is for which tool: names, tuples of names and patterns, and how they are serialized."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import translate

from haystack.components.agents.state.state import State
from haystack.dataclasses import ToolCallResult

from haybaler.interop import synchronous
from haybaler.parts import payload_of
from haybaler.policies import AnyOffloadPolicy, decides_inline

_WILDCARDS = frozenset("*?[")

Key = str | tuple[str, ...]
Strategies = Mapping[Key, AnyOffloadPolicy]


class Decider:
    """
    A policy, as the hook asks it.

    :param policy: The policy.
    """

    def __init__(self, policy: AnyOffloadPolicy) -> None:
        self.policy = policy
        self.decides_inline = decides_inline(policy)

    def decides(self, result: ToolCallResult, *, tokens: int, state: State) -> bool:
        """
        Tell whether a result goes to the store.

        :param result: The result.
        :param tokens: The size of its message.
        :param state: The Agent's live `State`.
        :returns: The policy's answer. What the policy raises is not caught.
        """
        name = result.origin.tool_name
        if hasattr(self.policy, "should_offload_tokens"):
            ask = synchronous(self.policy, "should_offload_tokens")
            return bool(ask(tool_name=name, tokens=tokens, state=state))
        ask = synchronous(self.policy, "should_offload")
        return bool(ask(tool_name=name, result=payload_of(result), state=state))


class PolicyTable:
    """
    Finds the policy for a tool: that of its exact name, then of a tuple that has it, then of the pattern with the most
    literal characters.

    :param strategies: The policy for each key.
    """

    def __init__(self, strategies: Strategies) -> None:
        self.strategies = dict(strategies)
        deciders = {key: Decider(policy) for key, policy in strategies.items()}
        listed = [(name, decider) for key, decider in deciders.items() if isinstance(key, tuple) for name in key]
        # Of equal names, the first counts.
        self._named = {**dict(reversed(listed)), **{key: d for key, d in deciders.items() if isinstance(key, str)}}
        patterns = sorted(_patterns(deciders), key=lambda pattern: _literals(pattern[0]), reverse=True)
        self._patterns = [(re.compile(translate(pattern)).match, decider) for pattern, decider in patterns]

    def decider_for(self, tool_name: str) -> Decider | None:
        """
        Find the policy for a tool.

        :param tool_name: The tool.
        :returns: The policy, or None if no key fits.
        """
        if tool_name in self._named:
            return self._named[tool_name]
        for matches, decider in self._patterns:
            if matches(tool_name):
                return decider
        return None


def _patterns(deciders: Mapping[Key, Decider]) -> Iterator[tuple[str, Decider]]:
    for key, decider in deciders.items():
        names: Sequence[str] = key if isinstance(key, tuple) else (key,)
        for name in names:
            if not _WILDCARDS.isdisjoint(name):
                yield name, decider


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
