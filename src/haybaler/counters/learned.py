"""Pure: what the provider's figures say about the sizes of single messages."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

# Judged and reported sizes of ordinary text differ by less than this factor either way. What differs more, an image
# for example, is believed for its own message and tells nothing about others.
ORDINARY = 4.0
# A figure that contradicts what was learned by more than this part of it shows that something was learned wrongly.
TOLERANCE = 0.05


# How far judged sizes are off, as a part of them: English and most code by little, what is not ASCII by much. So when a
# figure surprises, it is mostly the latter that was judged wrongly.
_SPREAD = {False: 0.2, True: 0.6}


class Judged(NamedTuple):
    """
    What a message probably has.

    :param tokens: Tokens.
    :param foreign: Whether much of its text is not ASCII. Both kinds have a scale of their own: the pointers and calls
        of a conversation in Thai are not counted as if they were Thai.
    """

    tokens: float
    foreign: bool = False


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
        # Of ordinary text so far: its tokens, and what they were judged to be.
        self._ordinary = {False: (0.0, 0.0), True: (0.0, 0.0)}

    @property
    def has_figures(self) -> bool:
        """Whether a figure was learned and messages that it covered are still there."""
        return bool(self._tokens)

    @property
    def is_scaled(self) -> bool:
        """Whether sizes are in the provider's tokens: after the first figure, or where the factor was known before."""
        return bool(self._tokens) or self._known_factor is not None

    def factor(self, foreign: bool = False) -> float:
        """
        Return the provider's tokens for each judged token.

        :param foreign: Of which kind of text; of both where nothing is known of it yet.
        :returns: The factor; 1 before the first figure.
        """
        if not self._tokens:
            return self._known_factor or 1.0
        tokens, judged = self._ordinary[foreign]
        if not judged:
            tokens, judged = self._ordinary[not foreign]
        return tokens / judged if judged else 1.0

    def sizes(self, keys: Iterable[int], judged: Iterable[Judged]) -> list[float]:
        """
        Return the sizes of messages.

        :param keys: Stand for the messages.
        :param judged: What message i probably has.
        :returns: Size i: what was learned of message i; otherwise its judged size, scaled like others of its kind.
        """
        factors, known = (self.factor(), self.factor(foreign=True)), self._tokens.get
        return [known(key, tokens * factors[foreign]) for key, (tokens, foreign) in zip(keys, judged, strict=True)]

    def learn(self, judged: Mapping[int, Judged], tokens: float) -> None:
        """
        Take a figure.

        :param judged: What each message that the figure covers probably has, by what stands for the message.
        :param tokens: The figure, without what is not messages.
        """
        fresh = {key: size for key, size in judged.items() if key not in self._tokens}
        known = sum(self._tokens[key] for key in judged if key not in fresh)
        rest = tokens - known
        if rest < (0.0 if fresh else known * -TOLERANCE) or (not fresh and rest > known * TOLERANCE):
            self._rescale(judged, tokens)
        elif fresh:
            self._divide(fresh, rest)

    def _divide(self, fresh: Mapping[int, Judged], tokens: float) -> None:
        sums = {foreign: sum(max(j.tokens, 1.0) for j in fresh.values() if j.foreign is foreign) for foreign in _SPREAD}
        ratios = self._ratios(sums, tokens)
        for key, (size, foreign) in fresh.items():
            self._tokens[key] = max(size, 1.0) * ratios[foreign]
        for foreign, ratio in ratios.items():
            if sums[foreign] and 1 / ORDINARY <= ratio <= ORDINARY:
                known, judged = self._ordinary[foreign]
                self._ordinary[foreign] = (known + ratio * sums[foreign], judged + sums[foreign])

    def _ratios(self, sums: Mapping[bool, float], tokens: float) -> dict[bool, float]:
        """Return the provider's tokens for each judged token, such that all together have as many as were reported."""
        expected = {foreign: size * self.factor(foreign) for foreign, size in sums.items()}
        surprise = tokens - sum(expected.values())
        doubt = {foreign: (size * _SPREAD[foreign]) ** 2 for foreign, size in expected.items()}
        shares = {foreign: expected[foreign] + surprise * doubt[foreign] / sum(doubt.values()) for foreign in sums}
        if min(shares.values()) < 0:
            return dict.fromkeys(sums, tokens / sum(sums.values()))
        return {foreign: shares[foreign] / size if size else 1.0 for foreign, size in sums.items()}

    def _rescale(self, judged: Mapping[int, Judged], tokens: float) -> None:
        sizes = dict(zip(judged, self.sizes(judged, judged.values()), strict=True))
        ratio = tokens / max(sum(sizes.values()), 1.0)
        self._tokens.update({key: size * ratio for key, size in sizes.items()})

    def keep_only(self, keys: Collection[int]) -> None:
        """
        Forget all other messages; what they said about ordinary text stays.

        :param keys: What stands for the messages to keep.
        """
        self._tokens = {key: size for key, size in self._tokens.items() if key in keys}
