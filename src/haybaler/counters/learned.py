"""Pure: what the provider's figures say about the sizes of single messages."""

from collections.abc import Collection, Mapping

# Judged and reported sizes of ordinary text differ by less than this factor either way. What differs more, an image
# for example, is believed for its own message and tells nothing about others.
ORDINARY = 4.0
# A figure that contradicts what was learned by more than this part of it shows that something was learned wrongly.
TOLERANCE = 0.05


class LearnedSizes:
    """
    Sizes of messages in the provider's own tokens.

    A figure is known for several messages together. What is already known of some is taken off, and the rest is
    divided among the others by what each of them probably has. So a conversation of many kinds of text gets each
    kind's own scale, step by step.

    :param known_factor: The factor before the first figure; None for "not known".
    """

    def __init__(self, known_factor: float | None = None) -> None:
        self._known_factor = known_factor
        self._tokens: dict[int, float] = {}
        self._ordinary_tokens = 0.0
        self._ordinary_likely = 0.0

    @property
    def has_figures(self) -> bool:
        """Whether a figure was learned and messages that it covered are still there."""
        return bool(self._tokens)

    @property
    def factor(self) -> float | None:
        """The provider's tokens for each judged token, over all ordinary text so far; None before the first figure."""
        if not self._tokens:
            return self._known_factor
        return self._ordinary_tokens / self._ordinary_likely if self._ordinary_likely else 1.0

    def size(self, key: int, likely: float) -> float:
        """
        Return the size of a message.

        :param key: Stands for the message.
        :param likely: Its judged size.
        :returns: What was learned of it; otherwise its judged size, scaled like the others.
        """
        return self._tokens.get(key, likely * (self.factor or 1.0))

    def learn(self, likely: Mapping[int, float], tokens: float) -> None:
        """
        Take a figure.

        :param likely: The judged size of each message that the figure covers, by what stands for the message.
        :param tokens: The figure, without what is not messages.
        """
        fresh = {key: max(size, 1.0) for key, size in likely.items() if key not in self._tokens}
        known = sum(self._tokens[key] for key in likely if key not in fresh)
        rest, judged = tokens - known, sum(fresh.values())
        if rest < (0.0 if fresh else known * -TOLERANCE) or (not fresh and rest > known * TOLERANCE):
            self._rescale(likely, tokens)
        elif fresh:
            self._divide(fresh, rest / judged)

    def _divide(self, fresh: Mapping[int, float], ratio: float) -> None:
        for key, size in fresh.items():
            self._tokens[key] = size * ratio
        if 1 / ORDINARY <= ratio <= ORDINARY:
            self._ordinary_tokens += ratio * sum(fresh.values())
            self._ordinary_likely += sum(fresh.values())

    def _rescale(self, likely: Mapping[int, float], tokens: float) -> None:
        sizes = {key: self.size(key, size) for key, size in likely.items()}
        ratio = tokens / max(sum(sizes.values()), 1.0)
        self._tokens.update({key: size * ratio for key, size in sizes.items()})

    def keep_only(self, keys: Collection[int]) -> None:
        """
        Forget all other messages; what they said about ordinary text stays.

        :param keys: What stands for the messages to keep.
        """
        self._tokens = {key: size for key, size in self._tokens.items() if key in keys}
