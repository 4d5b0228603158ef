"""
Pure: how full the model's window is, from the provider's own figure and local counts.

The provider reports the size of its last request and reply (Haystack keeps it in `context_tokens`); a local counter
sees the same messages differently, because it estimates and because it does not see the provider's template. The
difference is split: a small fixed part is overhead, the rest is a scale that holds for whatever the counter counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_

from haystack.dataclasses import ChatMessage

# At most this part of the window is taken for fixed overhead, such as a chat template; the rest of a difference grows
# with the conversation and belongs to the scale.
OVERHEAD_SHARE = 0.02
# A compactor is never asked for less than this part of the goal, however much of it tools and overhead fill: emptying
# the conversation would not help then.
FLOOR_SHARE = 0.25
# Counters are off by factors from about 0.04 (long blanks) to 6 (emoji). A figure beyond this range does not measure
# the same messages (some chat models report only a part of them) and is not used.
SCALE_RANGE = (0.02, 10.0)


@dataclass(frozen=True, slots=True)
class Calibration:
    """
    How a counter's tokens become the provider's: `provider = overhead + scale * counted`.

    :param scale: Provider's tokens for each counted token.
    :param overhead: Provider's tokens that no message or tool accounts for.
    """

    scale: float = 1.0
    overhead: int = 0

    def provider_tokens(self, counted: int) -> int:
        """
        Convert a counted size of messages and tools.

        :param counted: Tokens as the counter sees them.
        :returns: Tokens as the provider sees them, overhead included.
        """
        return self.overhead + round(self.scale * counted)

    def counter_tokens(self, provider_tokens: float, tools: int) -> int:
        """
        Convert a goal for the whole window into a goal for the messages.

        :param provider_tokens: Tokens as the provider sees them, overhead included.
        :param tools: The counted size of the tools' schemas, which go along.
        :returns: Tokens for the messages as the counter sees them, at least `FLOOR_SHARE` of the goal.
        """
        available = (provider_tokens - self.overhead) / self.scale - tools
        return int(max(available, FLOOR_SHARE * provider_tokens / self.scale))

    def nearest(self, provider_tokens: int, *counted: int) -> int:
        """
        Return the counted size that the provider's figure most likely belongs to.

        :param provider_tokens: The provider's figure.
        :param counted: Counted sizes.
        :returns: The one that is nearest to the figure; of equally near ones the first.
        """
        return min(counted, key=lambda size: abs(self.provider_tokens(size) - provider_tokens))


def calibrate(provider_tokens: int, counted: int, *, context_window: int) -> Calibration | None:
    """
    Compare the provider's figure with the count of the same messages and tools.

    :param provider_tokens: The provider's figure.
    :param counted: What the counter makes of the same messages and tools.
    :param context_window: The size of the window, in tokens.
    :returns: The calibration, or None if the figure cannot be one of these messages.
    """
    if counted < OVERHEAD_SHARE * context_window:
        return Calibration(overhead=max(provider_tokens - counted, 0))  # too few messages to tell a scale from
    overhead = min(max(provider_tokens - counted, 0), int(OVERHEAD_SHARE * context_window))
    scale = (provider_tokens - overhead) / counted
    return Calibration(scale, overhead) if SCALE_RANGE[0] <= scale <= SCALE_RANGE[1] else None


@dataclass(frozen=True, slots=True)
class Anchor:
    """
    What is known of the beginning of a conversation, up to the model's last reply.

    :param reported: The provider's figure; 0 if there is none.
    :param messages: The messages that it covers.
    :param tokens: Their size with everything that goes along, in provider's tokens.
    :param calibration: How counted tokens become provider's.
    """

    reported: int
    messages: Sequence[ChatMessage] = field(repr=False)
    tokens: int
    calibration: Calibration

    def covers(self, messages: Sequence[ChatMessage]) -> bool:
        """
        Whether these are the messages that the figure was given for.

        :param messages: The messages up to the model's last reply, as they are now.
        :returns: True if they are the same objects.
        """
        return len(messages) == len(self.messages) and all(map(is_, messages, self.messages))


def anchor_at(
    reported: int,
    messages: Sequence[ChatMessage],
    counted: int,
    *,
    last: Anchor | None,
    context_window: int,
    least: int = 0,
    sent: int | None = None,
) -> Anchor:
    """
    Return what is known of the beginning of a conversation.

    A figure that has not changed although the messages have (somebody cut the conversation, or the last reply came
    without a figure) is not trusted: the messages are counted, in the scale that the figure once gave. Nor is a new
    figure that fits what the model was sent better than what somebody has left of it since.

    :param reported: The provider's figure; 0 if there is none.
    :param messages: The messages up to the model's last reply.
    :param counted: What the counter makes of them and of the tools.
    :param last: What was known before.
    :param context_window: The size of the window, in tokens.
    :param least: The fewest tokens that the messages can have. A figure below it does not measure them and is not used:
        some chat models leave tool results out, some providers report what they read from a cache apart.
    :param sent: If messages are gone that were there before the reply: what the counter made of them with the reply.
    :returns: The anchor.
    """
    if reported < max(least, 1):
        return Anchor(0, messages, counted, Calibration())
    if last is None or last.reported != reported:
        measured = counted if sent is None or last is None else last.calibration.nearest(reported, counted, sent)
        calibration = calibrate(reported, measured, context_window=context_window)
        if calibration and measured == counted:
            return Anchor(reported, messages, reported, calibration)
        calibration = calibration or Calibration()
        return Anchor(reported, messages, calibration.provider_tokens(counted), calibration)
    if last.covers(messages):
        return last
    return Anchor(reported, messages, last.calibration.provider_tokens(counted), last.calibration)
