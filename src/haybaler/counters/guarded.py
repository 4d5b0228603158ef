"""Somebody's counter as a run asks it: it never raises, and what it says of itself is asked in one place."""

import logging
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

from haystack.dataclasses import ChatMessage
from haystack.tools import ToolsType

from haybaler.counters.approximate import ApproximateTokenCounter
from haybaler.counters.protocol import plausible
from haybaler.effects import Steps, await_effect
from haybaler.interop import method, synchronous

logger = logging.getLogger(__name__)

# What is counted where the caller is. Encoding so many characters takes less than 5 ms; a counter may name others.
INLINE_CHARS = 16_000


class GuardedCounter:
    """
    Asks a counter as long as it answers. After its first error, sizes are estimated from the length of the text for the
    rest of the run, with one warning.

    :param counter: The user's counter. One that only knows whole conversations is asked by `ask`; single messages are
        estimated then.
    """

    def __init__(self, counter: Any) -> None:
        self.counter = counter
        self.is_asked = bool(_said(counter, "counts_conversations"))
        self._estimate = ApproximateTokenCounter() if self.is_asked else None
        self._count: Callable[..., Any] | None = None  # looked up once

    @property
    def _sizing(self) -> Any:
        return self.counter if self._estimate is None else self._estimate

    @property
    def counts_inline(self) -> bool | None:
        """Whether messages may be counted on the event loop; None if the counter does not say."""
        said = _said(self._sizing, "counts_inline")
        return None if said is None else bool(said)

    @property
    def inline_chars(self) -> int:
        """Up to how many characters."""
        said = _said(self._sizing, "inline_chars")
        return said if isinstance(said, int) else INLINE_CHARS

    @property
    def counts_async(self) -> bool:
        """Whether the user's counter has an asynchronous form of its own."""
        return _said(self.counter, "count_async") is not None

    def likely(self, message: ChatMessage) -> float | None:
        """
        Have the counter judge a message, if it does.

        :param message: The message.
        :returns: Tokens; None if the counter does not judge, or what it says is no number of tokens.
        """
        try:
            judged = float(self._sizing.likely(message))
        except Exception:  # noqa: BLE001 - then it goes by what was counted
            return None
        return judged if 0 <= judged < math.inf else None

    def most_tokens(self, size: int) -> int | None:
        """
        Bound what the counter can count for a message of text.

        :param size: The bytes of the message as the counters here render it.
        :returns: Tokens; None if the counter's own class does not say, for a subclass may count in another way, or if
            what it says is no number of tokens.
        """
        return self._bound("most_tokens", size)

    def least_tokens(self, characters: int) -> int | None:
        """
        Bound from below what the counter can count for a message with a text of some length.

        :param characters: The length of the text.
        :returns: Tokens; None where `most_tokens` would be None.
        """
        return self._bound("least_tokens", characters)

    def _bound(self, name: str, size: int) -> int | None:
        sizing = self._sizing
        bound = vars(type(sizing)).get(name)
        try:
            return plausible(bound(sizing, size)) if isinstance(bound, FunctionType) else None
        except Exception:  # noqa: BLE001 - then the message is counted
            return None

    def count(self, messages: list[ChatMessage], tools: ToolsType | None) -> int:
        """
        Count where the caller is.

        :param messages: The messages.
        :param tools: Tools whose schemas count too.
        :returns: Tokens.
        """
        try:
            if self._estimate is None:
                self._count = self._count or synchronous(self.counter, "count")
                return plausible(self._count(messages, tools))
        except Exception as error:  # noqa: BLE001 - counting never ends a run
            self._fall_back(error)
        return self._estimated(messages, tools)

    async def count_async(self, messages: list[ChatMessage], tools: ToolsType | None) -> int:
        """
        Count without blocking the event loop.

        :param messages: The messages.
        :param tools: Tools whose schemas count too.
        :returns: Tokens.
        """
        try:
            if self._estimate is None:
                return plausible(await method(self.counter, "count", messages, tools).run_async())
        except Exception as error:  # noqa: BLE001 - counting never ends a run
            self._fall_back(error)
        return self._estimated(messages, tools)

    def ask(self, messages: list[ChatMessage], tools: ToolsType | None) -> Steps[int | None]:
        """
        Have the user's counter count a whole conversation.

        :param messages: The conversation.
        :param tools: The tools of the model's next call.
        :returns: Steps that end in tokens; None if it failed, and is not asked again.
        """
        try:
            return plausible((yield from await_effect(method(self.counter, "count", messages, tools))))
        except Exception as error:  # noqa: BLE001 - counting never ends a run
            self._fall_back(error)
            return None

    def _fall_back(self, error: Exception) -> None:
        self.is_asked = False
        self._estimate = ApproximateTokenCounter()
        logger.warning(
            "A token counter failed; sizes are estimated from the length of the text for the rest of the run.",
            extra={"counter": type(self.counter).__name__, "error": type(error).__name__},
        )

    def _estimated(self, messages: list[ChatMessage], tools: ToolsType | None) -> int:
        return (self._estimate or ApproximateTokenCounter()).count(messages, tools)


def _said(counter: object, name: str) -> Any:
    """Return what a counter says of itself; None if it says nothing, or fails to."""
    try:
        return getattr(counter, name, None)
    except Exception:  # noqa: BLE001 - a counter never ends a run
        return None
