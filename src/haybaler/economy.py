"""
Pure: when a rewrite of the prompt is worth what it costs.

Providers cache the beginning of a prompt and charge about a tenth for it. A rewrite changes the prompt from the first
message that it touches on: what remains behind that place is read anew, once, at the whole price. What the rewrite
removes is saved in every later request.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from haystack.dataclasses import ChatMessage

from haybaler.conversation import last_assistant_index

# A rewrite that does not reach its target has to remove this part of the cached prompt that it changes. The other three
# quarters are read anew, for nine tenths of the price more than from the cache, and each later request saves a tenth of
# the price of a quarter: that is paid back after 27 requests, about what a run of 60 steps has before it when its
# window fills. Much less is never paid back; much more keeps in every request what could have gone.
# `python -m benchmarks replay` shows what it comes to.
MINIMUM_GAIN = 1 / 4
# An attempt helps if it leaves room below the trigger for a growth by this part of the window. Otherwise the next one
# waits for that growth, and for twice as much after each further attempt that did not help. It does not wait beyond
# the point where any gain is taken; from there on this part has to do: by then a result may be old enough to go.
PAUSE_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Limits:
    """
    The fills that a hook goes by, in tokens.

    :param window: The size of the window.
    :param trigger: The fill at which compaction begins.
    :param goal: The fill that it aims at.
    """

    window: int
    trigger: float
    goal: float

    @property
    def urgent(self) -> float:
        """The fill from which on any gain is taken: half of what the trigger leaves free."""
        return (self.trigger + self.window) / 2

    def minimum_gain(self, fill: int) -> float:
        """
        Return what a rewrite that does not reach its target has to save.

        :param fill: How full the window is, in tokens.
        :returns: A part of what it invalidates, from 0 to 1.
        """
        return MINIMUM_GAIN if fill < self.urgent else 0.0


@dataclass(slots=True)
class Pause:
    """
    When a hook tries again after attempts that did not help.

    :param until: The fill, in tokens, at which it tries again.
    :param attempts: How many attempts in a row did not help.
    """

    until: int = 0
    attempts: int = 0

    def after(self, fill: int, limits: Limits) -> None:
        """
        Take the outcome of an attempt.

        :param fill: How full the window is now, in tokens.
        :param limits: The fills that the hook goes by.
        """
        least = max(int(PAUSE_SHARE * limits.window), 1)
        growth = least * 2**self.attempts
        if fill + growth <= limits.trigger:
            self.until = self.attempts = 0
            return
        self.until = max(min(fill + growth, int(limits.urgent)), fill + least)
        self.attempts = min(self.attempts + 1, 10)


def invalidated(messages: Sequence[ChatMessage], sizes: Sequence[int], first: int) -> int:
    """
    Return how much of a cached prompt can no longer be used after a rewrite.

    :param messages: The conversation before the rewrite.
    :param sizes: Size i belongs to message i, in tokens.
    :param first: The index of the first message that changes.
    :returns: Tokens from there on, without the last reply and what came after it, which no request had yet.
    """
    return sum(sizes[first : max(last_assistant_index(messages), 0)])


def first_change(before: Sequence[ChatMessage], after: Sequence[ChatMessage]) -> int:
    """
    Return where a rewritten conversation begins to differ.

    :param before: The conversation before the rewrite.
    :param after: The conversation after it.
    :returns: The index of the first message that is another one, or the length of the shorter conversation.
    """
    pairs = enumerate(zip(before, after, strict=False))
    return next((i for i, (old, new) in pairs if old is not new and old != new), min(len(before), len(after)))
