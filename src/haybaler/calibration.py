"""
Pure: how the provider's own figure and local counts go together.

The provider reports the size of its last request and reply (Haystack keeps it in `context_tokens`). That figure is
messages, tools, and an overhead that no local counter sees, such as the chat template. Once the overhead is known, what
remains is the size of the messages, whatever a local counter makes of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_

from haystack.dataclasses import ChatMessage

# At most this part of the window is taken for fixed overhead, as long as the figure can be explained so.
OVERHEAD_SHARE = 0.02
# A compactor is never asked for less than this part of the goal, however much of it tools and overhead fill: emptying
# the conversation would not help then.
FLOOR_SHARE = 0.25
# A first figure above this multiple of what the messages probably have is not theirs alone: something goes along that
# nobody counted, and it is all taken for overhead.
EXPLAINABLE = 6.0


@dataclass(frozen=True, slots=True)
class Anchor:
    """
    What is known of the beginning of a conversation, up to the model's last reply.

    :param reported: The provider's figure; 0 if there is none.
    :param messages: The messages that it was given for, or that are left of them.
    :param tokens: Their size with everything that goes along.
    :param overhead: How much of it is neither messages nor tools.
    """

    reported: int
    messages: Sequence[ChatMessage] = field(repr=False)
    tokens: int
    overhead: int

    def covers(self, messages: Sequence[ChatMessage]) -> bool:
        """
        Whether these are the messages that the figure was given for.

        :param messages: The messages up to the model's last reply, as they are now.
        :returns: True if they are the same objects.
        """
        return len(messages) == len(self.messages) and all(map(is_, messages, self.messages))


@dataclass(frozen=True, slots=True)
class Fill:
    """
    How full the window is.

    :param tokens: The size of the next request.
    :param fixed: How much of it no compactor can change: tools and overhead.
    """

    tokens: int
    fixed: int

    def target(self, goal: float) -> int:
        """
        Return what a compactor is to bring the messages down to.

        :param goal: What the whole request should have, in tokens.
        :returns: Tokens for the messages; at least `FLOOR_SHARE` of the goal.
        """
        return int(max(goal - self.fixed, FLOOR_SHARE * goal))


def overhead_of(reported: int, judged: float, *, context_window: int) -> int:
    """
    Tell overhead from messages in the first figure of a run.

    :param reported: The provider's figure.
    :param judged: What the messages and tools that it covers probably have.
    :param context_window: The size of the window, in tokens.
    :returns: What is neither, in tokens.
    """
    surplus = max(reported - round(judged), 0)
    room = int(OVERHEAD_SHARE * context_window)
    return surplus if judged < room or reported > EXPLAINABLE * judged else min(surplus, room)
