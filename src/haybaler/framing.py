"""
Text that somebody else chose, shown to a model so that it passes for nothing but itself.

A tool, a file or another model chose it. In a pointer, a note or a sentence of ours it must neither end the place where
it stands nor look like words of ours: a line of its own, another pointer, an instruction.
"""

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence

# Names as tools have them: nothing in one ends a quote or a sentence.
_NAME = re.compile(r"[\w.:/@-]{1,128}\Z")
_NAME_CHARS = 128

# Unicode's default ignorable characters, as far as Python takes them for printable: text can be hidden in them.
_UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
# What a model may take for the quote that ends a JSON string, and for any quote.
_DOUBLE = "\u02ba\u02dd\u02ee\u201c-\u201f\u2033\u2036\u275d\u275e\u301d-\u301f\uff02\U0001f676-\U0001f678"
_QUOTES = "\"'`\u00b4\u02b9\u02bb-\u02bd\u02ca\u02cb\u2018-\u201b\u2032\u2035\u275b\u275c\uff07\uff40" + _DOUBLE
_INVISIBLE = re.compile(f"[{_UNSEEN}]")
_TO_BE_ESCAPED = re.compile(f"[{_UNSEEN}{_DOUBLE}]")
_NOT_PLAIN = re.compile(rf"[\\{_UNSEEN}{_QUOTES}]")
# Printable ASCII without quotes and backslashes, which is what nearly all references are.
_PLAIN_ASCII = re.compile(r"[ !#-&(-\[\]-_a-~]*\Z")

# What belongs to pointers, to notes, to answers of the read-back tools, and to the frames of chat templates, each under
# what it cannot do without: a preview without those words is checked in a twentieth of the time. All is in small
# letters.
_SPEAKING = {
    word: re.compile(pattern)
    for word, pattern in {
        "off": r"offload|\boffset\s{0,9}[=\d]",
        "result": r"(?:read|search)_tool_result|tool\s{1,9}results?\b",
        "character": r"characters?\s{0,9}\)?\s{0,9}at\b",
        "byte": r"bytes?\s{0,9}\)?\s{0,9}at\b",
    }.items()
}
# What cannot do without one of these marks either.
_MARKS = ":/[]}<>"
_ROLES = ("system", "developer", "assistant", "user", "human", "tool", "ai", "instruction", "instructions")
_SPEAKING_WITH_MARKS = {
    word: re.compile(pattern)
    for word, pattern in {
        **{role: rf"\b{role}\s{{0,9}}[:>\]}}]" for role in _ROLES},
        "preview": r"preview\s{0,9}:",
        "at ": r"\bat\s{1,9}\S*[/:]",
        "[": r"\[\s{0,9}(?:(?:\d+|no)\s{1,9}match|characters\b|/?\s{0,9}inst\b)",
        "<": r"<\s{0,9}[|/]|<<\s{0,9}/?\s{0,9}sys",
        ">": r"[|/]\s{0,9}>",
    }.items()
}
# Letters that are taken for an "i" where case does not count, but have no "i" as their small letter.
_SMALL_I = str.maketrans("\u0130\u0131", "ii")


def framed(text: str) -> str:
    """
    Put a text between quotes that it cannot close.

    :param text: A reference or a file name.
    :returns: The text in single quotes where that is safe, otherwise as a JSON string.
    """
    return f"'{text}'" if _is_plain(text) else json_framed(text)


def json_framed(text: str) -> str:
    """
    Return text as a JSON string on one line, with everything escaped that cannot be seen or looks like its end.

    :param text: Any text.
    :returns: A string in which no line break, control or direction character is left.
    """
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable() and not _TO_BE_ESCAPED.search(quoted):
        return quoted
    return "".join(c if is_seen(c) and not _TO_BE_ESCAPED.match(c) else json.dumps(c)[1:-1] for c in quoted)


def most_bytes(texts: Sequence[str]) -> int:
    """
    Bound the size of texts in any of these frames, each in its own.

    :param texts: The texts.
    :returns: Bytes of UTF-8: between quotes, each character as an escape, those outside the BMP as two.
    """
    joined = "".join(texts)
    return (6 if joined.isascii() else 12) * len(joined) + 2 * len(texts)


def framed_where_needed(text: str) -> str:
    """
    Return a text that stands at the end of a line of ours.

    :param text: The beginning of a result.
    :returns: The text as it is where it looks like plain words, otherwise as a JSON string.
    """
    if not text or text != text.strip() or not _is_plain(text):
        return json_framed(text)
    return json_framed(text) if _is_speaking(text) else text


def name_in_words(name: str) -> str:
    """
    Return the name of a tool for a sentence of ours.

    :param name: What a model or a server of tools chose as a name.
    :returns: The name itself if it looks like one, otherwise a JSON string of bounded length without backticks.
    """
    return name if _NAME.match(name) else json_framed(shortened(name, _NAME_CHARS)).replace("`", "\\u0060")


def shortened(text: str, most: int) -> str:
    """
    Return the beginning of a text, marked with an ellipsis where it was cut.

    :param text: Any text.
    :param most: How many characters to keep.
    :returns: The text, or its beginning.
    """
    return text if len(text) <= most else f"{text[:most]}..."


def is_seen(character: str) -> bool:
    """
    Whether a character leaves a mark where it stands, and moves nothing else.

    :param character: One character.
    :returns: False for controls, line breaks, direction marks and what is invisible, except the ordinary blank.
    """
    return character.isprintable() and not _INVISIBLE.match(character)


def _is_plain(text: str) -> bool:
    """Whether nothing in a text ends a quote, a line or a direction, and nothing is hidden in it."""
    if text.isascii():
        return _PLAIN_ASCII.match(text) is not None
    return text.isprintable() and not _NOT_PLAIN.search(text)


def _is_speaking(text: str) -> bool:
    """Whether a printable text on one line has something in it that belongs to words of ours."""
    # Full-width and other compatibility forms read like the letters that they stand for.
    read = text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_SMALL_I)
    small = read.lower()
    if any(map(small.__contains__, _MARKS)) and _has_any(_SPEAKING_WITH_MARKS, small):
        return True
    return _has_any(_SPEAKING, small)


def _has_any(patterns: Mapping[str, re.Pattern[str]], text: str) -> bool:
    return bool([word for word, pattern in patterns.items() if word in text and pattern.search(text)])
