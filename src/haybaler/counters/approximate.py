"""A counter that needs nothing but the length of the text."""

from typing import Any, Self

from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage
from haystack.tools import ToolsType

from haybaler.counters.image_rules import ImageCost, deserialize_rule
from haybaler.counters.likely import likely_tokens
from haybaler.counters.media import media_tokens, serialize_fees
from haybaler.counters.rendering import rendered
from haybaler.errors import ConfigurationError
from haybaler.workers import run_in_worker

# Only the arguments of calls are looked through, 100 characters in a microsecond; the length of a text is known.
_INLINE_CHARS = 200_000
_INLINE_FILE_CHARS = 16_000


class ApproximateTokenCounter:
    """
    Estimates tokens from the length of the text, with a flat ratio of characters to tokens.

    :param chars_per_token: Characters for each token. About 4 for English; less for other scripts and for JSON.
    :param tokens_per_image: Tokens for each image; with an `image_rule`, only for one whose size cannot be read. The
        default is what OpenAI charges for a small one.
    :param tokens_per_file: Tokens for each file; with `tokens_per_page`, only for one that cannot be measured. The
        default is a stand-in for a short document.
    :param image_rule: Measures images: from width and height, which are read from the image's header, and its level of
        detail to tokens. An `ImageRule`, or a function of your own. None for the flat fee.
    :param tokens_per_page: Measures files: tokens for each page of a PDF file; other documents go by their bytes,
        `chars_per_token` for each token. None for the flat fee.
    :raises ConfigurationError: If `chars_per_token` is not positive.
    """

    counts_inline = True

    def __init__(
        self,
        chars_per_token: float = 4.0,
        tokens_per_image: int = 85,
        tokens_per_file: int = 1000,
        *,
        image_rule: ImageCost | None = None,
        tokens_per_page: int | None = None,
    ) -> None:
        if chars_per_token <= 0:
            raise ConfigurationError(f"`chars_per_token` must be greater than 0, got {chars_per_token}.")
        self.chars_per_token = chars_per_token
        self.tokens_per_image = tokens_per_image
        self.tokens_per_file = tokens_per_file
        self.image_rule = image_rule
        self.tokens_per_page = tokens_per_page

    @property
    def inline_chars(self) -> int:
        """How many characters are counted in well under 5 ms; few where pages are counted in files."""
        return _INLINE_CHARS if self.tokens_per_page is None else _INLINE_FILE_CHARS

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Estimate the tokens of messages and tools.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        characters = sum(map(len, rendered(messages, tools)))
        media = media_tokens(messages, self, bytes_per_token=self.chars_per_token)
        return int(characters / self.chars_per_token) + media

    def most_tokens(self, size: int) -> int:
        """
        Bound what a message of text has, without its text.

        :param size: The bytes of the message as it is rendered for counting; no character has less than one.
        :returns: Tokens.
        """
        return int(size / self.chars_per_token)

    def least_tokens(self, characters: int) -> int:
        """
        Bound from below what a message has with a text of some length in it.

        :param characters: The length of the text.
        :returns: Tokens.
        """
        return int(characters / self.chars_per_token)

    def likely(self, message: ChatMessage) -> float:
        """
        Judge how many tokens a message probably has, by what its text looks like.

        The hook uses this to divide what the provider reported for several messages among them.

        :param message: The message.
        :returns: Tokens.
        """
        return sum(map(likely_tokens, rendered([message]))) + media_tokens(
            [message], self, bytes_per_token=self.chars_per_token
        )

    async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Estimate the tokens of messages and tools.

        Only lengths are added, so this stays on the event loop; where files are measured it goes to a worker thread.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        if self.tokens_per_page is None:
            return self.count(messages, tools)
        return await run_in_worker(self.count, messages, tools)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the counter.

        :returns: A dictionary with `type` and `init_parameters`.
        :raises NotSerializableError: If `image_rule` is a function that cannot be imported.
        """
        return default_to_dict(self, chars_per_token=self.chars_per_token, **serialize_fees(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build a counter with the same settings.

        :param data: What `to_dict` returned.
        :returns: The counter.
        :raises ConfigurationError: If the image rule cannot be loaded.
        """
        deserialize_rule(data)
        return default_from_dict(cls, data)
