"""
Pure: how many tokens a text probably has, judged by what it looks like.

A flat ratio of characters to tokens is off by factors from 0.1 (emoji) to 6 (long blanks), and differs between the
messages of one conversation. Looking at the pieces that a byte-pair encoder works on brings that down to about 0.7 to
1.6. It says how a figure that is known for several messages together is to be divided among them.
"""

import re
from collections.abc import Iterable, Iterator

# The pieces that encoders such as o200k_base cut a text into before they look for pairs, roughly.
_PIECE = re.compile(r"[^\W\d_]+|\d+|[^\S\n]+|\n+|[^\w\s]+|_+")
# Characters for each token in runs of letters, by the first code point of a script; read off o200k_base.
_SCRIPTS = (
    (0x80, 6.5),
    (0x250, 3.5),
    (0x530, 4.2),
    (0xE00, 2.0),
    (0x1000, 1.2),
    (0x3040, 1.25),
    (0x3400, 1.3),
    (0xAC00, 2.2),
)
_MIXED_RUN = 1.8  # letters of both cases without a word among them, as in base64
_LONGEST_WORD = 24
_DIGITS = 3
_PUNCTUATION = 2.5
_BLANKS = 80
_RARE_SYMBOL = 2.2  # tokens for each character beyond the basic plane, such as emoji
# A longer text is judged by samples of this many characters, spread over it.
_SAMPLE = 1_000
_SAMPLES = 4
_FOREIGN = 0.1


def likely_tokens(text: str) -> float:
    """
    Judge how many tokens a text has.

    :param text: Any text.
    :returns: Tokens; the work does not grow with a text beyond a few thousand characters.
    """
    samples = list(_samples(text))
    return sum(map(_judged, samples)) * len(text) / max(sum(map(len, samples)), 1)


def is_foreign(pieces: Iterable[str]) -> bool:
    """
    Judge whether much of a text is not ASCII: a tenth of its characters or more.

    :param pieces: The text, in any number of pieces.
    :returns: The judgement; the work does not grow with a piece beyond a few thousand characters.
    """
    foreign = length = 0.0
    for piece in pieces:
        length += len(piece)
        if not piece.isascii():
            samples = list(_samples(piece))
            others = sum(len(sample) - len(sample.encode("ascii", "ignore")) for sample in samples)
            foreign += len(piece) * others / sum(map(len, samples))
    return foreign > _FOREIGN * length


def _samples(text: str) -> Iterator[str]:
    if len(text) <= _SAMPLE * _SAMPLES:
        yield text
        return
    gap = (len(text) - _SAMPLE) // (_SAMPLES - 1)
    for start in range(0, gap * _SAMPLES, gap):
        yield text[start : start + _SAMPLE]


def _judged(text: str) -> float:
    return sum(map(_tokens, _pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    return (match.group() for match in _PIECE.finditer(text))


def _tokens(piece: str) -> float:
    length, first = len(piece), piece[0]
    if first.isalpha():
        return max(1.0, length / _characters_for_token(piece)) if length > 3 else 1.0
    if first.isdigit():
        return -(-length // _DIGITS)
    if first.isspace():
        return 1.0 if first == "\n" else (length > 1) + length // _BLANKS
    return length * _RARE_SYMBOL if first > "\uffff" else max(1.0, length / _PUNCTUATION)


def _characters_for_token(word: str) -> float:
    code = ord(word[0])
    if code < 0x80 and not (word[1:].islower() and len(word) <= _LONGEST_WORD):
        return _MIXED_RUN
    return next(ratio for start, ratio in reversed(((0, 6.5), *_SCRIPTS)) if code >= start)
