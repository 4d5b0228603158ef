"""What tools give and users write: big or small, text or bytes, and made anew each time, so that none of it is kept."""

from dataclasses import dataclass
from random import Random

Content = str | bytes

_SIZES = (60, 2_000, 9_000, 20_000, 60_000, 200_000)
_WEIGHTS = (10, 25, 25, 25, 10, 5)
_LARGE = 5_000_000  # of which each store makes something of its own, in pieces
_SCRIPTS = ("a line of text\n", "ein Satz mit Umlauten: äöü\r\n", "一行文字", "🜁🜂", '{"key": "value", "n": 1}, ')


@dataclass(frozen=True, slots=True)
class Origin:
    """
    Where a content comes from; two different ones never have the same content.

    :param user: Whose it is.
    :param number: The number of what the user did.
    :param step: The step of an Agent, or 0.
    :param place: The place in a batch or step.
    """

    user: str
    number: int
    step: int
    place: int

    def text(self) -> str:
        """Return a text."""
        random = Random(repr(self))
        (size,) = random.choices(_SIZES, _WEIGHTS)
        head = f"{self!r}: "
        line = random.choice(_SCRIPTS)
        return (head + line * (size // len(line) + 1))[: max(size, len(head))]

    def content(self, *, large: bool = False) -> Content:
        """Return a text or, now and then, bytes."""
        if large:
            head = f"{self!r}: "
            return head + "x" * (_LARGE - len(head))
        return self.text().encode() if Random(repr(self)).random() < 0.3 else self.text()
