"""A counter that needs nothing but the length of the text."""

from typing import Any, Self

from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage
from haystack.tools import ToolsType

from haybaler.counters.rendering import flat_fees, rendered
from haybaler.errors import ConfigurationError


class ApproximateTokenCounter:
    """
    Estimates tokens from the length of the text, with a flat ratio of characters to tokens.

    :param chars_per_token: Characters for each token. About 4 for English; less for other scripts and for JSON.
    :param tokens_per_image: Tokens for each image. The default is what OpenAI charges for a small one.
    :param tokens_per_file: Tokens for each file, a stand-in for a short document.
    :raises ConfigurationError: If `chars_per_token` is not positive.
    """

    counts_inline = True

    def __init__(self, chars_per_token: float = 4.0, tokens_per_image: int = 85, tokens_per_file: int = 1000) -> None:
        if chars_per_token <= 0:
            raise ConfigurationError(f"`chars_per_token` must be greater than 0, got {chars_per_token}.")
        self.chars_per_token = chars_per_token
        self.tokens_per_image = tokens_per_image
        self.tokens_per_file = tokens_per_file

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Estimate the tokens of messages and tools.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        characters = sum(map(len, rendered(messages, tools)))
        return int(characters / self.chars_per_token) + flat_fees(
            messages, tokens_per_image=self.tokens_per_image, tokens_per_file=self.tokens_per_file
        )

    async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Estimate the tokens of messages and tools. Only lengths are added, so this stays on the event loop.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        return self.count(messages, tools)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the counter.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        return default_to_dict(
            self,
            chars_per_token=self.chars_per_token,
            tokens_per_image=self.tokens_per_image,
            tokens_per_file=self.tokens_per_file,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a counter with the same settings.

        :param data: What `to_dict` returned.
        :returns: The counter.
        """
        return default_from_dict(cls, data)
