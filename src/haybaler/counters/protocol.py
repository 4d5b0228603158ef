"""What haybaler expects of a token counter."""

from typing import Any, Protocol, Self

from haystack.dataclasses import ChatMessage
from haystack.token_counters import TokenCounter as HaystackTokenCounter
from haystack.tools import ToolsType

from haybaler.errors import ConfigurationError


class TokenCounter(Protocol):
    """
    Estimates how many tokens messages and tool schemas occupy.

    A counter of Haystack's own, which has no `count_async`, works everywhere in haybaler: it is called in a worker
    thread. A counter may raise; haybaler then estimates and warns once in a run.

    A counter that only makes sense of whole conversations, such as one that asks a provider, says so with an attribute
    `counts_conversations` that is true: it is then asked rarely, and single messages are estimated in its scale.

    A counter that only computes, without any I/O, may say so with an attribute `counts_inline`: while it is true, a
    few thousand characters are counted directly on the event loop; more, or while it is false, go to a worker thread.
    An attribute `inline_chars` may say up to how many characters that holds; otherwise it is 16,000.

    A counter that renders messages as haybaler's own do may have a method `most_tokens(size)`: the most tokens that it
    counts for a message of text of so many bytes. And a method `least_tokens(characters)`: the least that it counts
    for a message with a text of that length in it. Where a pointer is smaller in any case, neither is counted then. A
    subclass says both anew.
    """

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Count the tokens of messages and tools.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages; None to measure the messages alone.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        ...

    async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Count the tokens of messages and tools without blocking the event loop.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages; None to measure the messages alone.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the counter's settings.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        ...

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a counter with the same settings.

        :param data: What `to_dict` returned.
        :returns: The counter.
        """
        ...


# What hooks and compactors take.
AnyTokenCounter = TokenCounter | HaystackTokenCounter


def plausible(counted: float) -> int:
    """
    Return what somebody's counter counted.

    :param counted: Its answer.
    :returns: Whole tokens.
    :raises ConfigurationError: If it cannot be a number of tokens.
    """
    if counted < 0:
        raise ConfigurationError("A token counter gave a negative number.")
    return int(counted)
