"""A counter that encodes with `tiktoken`, OpenAI's byte-pair encoder."""

from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage
from haystack.tools import ToolsType

from haybaler.counters.image_rules import ImageCost, deserialize_rule
from haybaler.counters.media import media_tokens, serialize_fees
from haybaler.counters.rendering import rendered
from haybaler.workers import run_in_worker

if TYPE_CHECKING:
    from tiktoken import Encoding

# Text is encoded in slices of at most this many characters. A slice costs at most one token more than the whole, and
# a single "word" of a megabyte, for which the encoder's time grows faster than its length, never reaches it.
_SLICE = 50_000

# Documents are not taken apart: their bytes are counted like English text.
_BYTES_PER_TOKEN = 4.0


class TiktokenCounter:
    """
    Counts the tokens of text locally with an encoding of OpenAI's models; other providers' models differ somewhat.

    Text that looks like a special token, such as `<|endoftext|>`, is ordinary text here. The vocabulary is loaded at
    warm-up or first use; tiktoken downloads it unless it is in the folder that `TIKTOKEN_CACHE_DIR` names.

    :param encoding: The name of the encoding; `o200k_base` is that of OpenAI's current models.
    :param tokens_per_image: Tokens for each image; with an `image_rule`, only for one whose size cannot be read. The
        default is what OpenAI charges for a small one.
    :param tokens_per_file: Tokens for each file; with `tokens_per_page`, only for one that cannot be measured. The
        default is a stand-in for a short document.
    :param image_rule: Measures images: from width and height, which are read from the image's header, and its level of
        detail to tokens. An `ImageRule`, or a function of your own. None for the flat fee.
    :param tokens_per_page: Measures files: tokens for each page of a PDF file; other documents go by their bytes, four
        for each token. None for the flat fee.
    :raises ImportError: If `tiktoken` is not installed.
    """

    def __init__(
        self,
        encoding: str = "o200k_base",
        tokens_per_image: int = 85,
        tokens_per_file: int = 1000,
        *,
        image_rule: ImageCost | None = None,
        tokens_per_page: int | None = None,
    ) -> None:
        if find_spec("tiktoken") is None:
            raise ImportError("TiktokenCounter needs tiktoken. Run 'pip install haybaler[tiktoken]'.")
        self.encoding = encoding
        self.tokens_per_image = tokens_per_image
        self.tokens_per_file = tokens_per_file
        self.image_rule = image_rule
        self.tokens_per_page = tokens_per_page
        self._encoder: Encoding | None = None
        self._lock = Lock()

    @property
    def counts_inline(self) -> bool:
        """Whether the vocabulary is loaded, so that counting a short text takes well under 5 ms."""
        return self._encoder is not None

    def warm_up(self) -> None:
        """Load the vocabulary, unless that has been done."""
        self._loaded()

    async def warm_up_async(self) -> None:
        """Load the vocabulary in a worker thread, unless that has been done."""
        if self._encoder is None:
            await run_in_worker(self._loaded)

    def _loaded(self) -> "Encoding":
        from tiktoken import get_encoding  # noqa: PLC0415 - whoever imports haybaler and never counts does not load it

        with self._lock:
            if self._encoder is None:
                self._encoder = get_encoding(self.encoding)
            return self._encoder

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Count the tokens of messages and tools.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        encoder = self._encoder or self._loaded()
        text = "".join(rendered(messages, tools))
        tokens = sum(
            len(encoder.encode_ordinary(text[start : start + _SLICE])) for start in range(0, len(text), _SLICE)
        )
        return tokens + media_tokens(messages, self, bytes_per_token=_BYTES_PER_TOKEN)

    def most_tokens(self, size: int) -> int:
        """
        Bound what a message of text has, without encoding it.

        :param size: The bytes of the message as it is rendered for counting; no token has less than one.
        :returns: Tokens.
        """
        return size

    async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        """
        Count the tokens of messages and tools in a worker thread.

        :param messages: The messages, oldest first.
        :param tools: Tools whose schemas are sent with the messages.
        :returns: Tokens; 0 when there is nothing to measure.
        """
        return await run_in_worker(self.count, messages, tools)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the counter itself, so that Agents can be copied: what it opened is shared, and its settings stay."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the counter.

        :returns: A dictionary with `type` and `init_parameters`.
        :raises NotSerializableError: If `image_rule` is a function that cannot be imported.
        """
        return default_to_dict(self, encoding=self.encoding, **serialize_fees(self))

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
