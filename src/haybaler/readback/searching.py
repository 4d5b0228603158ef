r"""
Searching a text for what a model asks, within a bound on time whatever the pattern.

Python's own engine cannot be interrupted, and holds the interpreter's lock. The `regex` engine lets go of the lock and
has a time limit, with four gaps, found by experiment and closed here:

- Repeats such as `(?:a{1000}){1000}` are written out when the pattern is compiled, without a limit: a pattern whose
  written-out size is too great is refused before.
- The limit is looked at between the scans of one operator, and `\w+` or a lookbehind alone scans as far as the text
  goes: the engine sees one piece of the text at a time.
- The limit counts the processor time of the whole process, which on a busy machine is much less than the time that
  passes: each piece has a small limit, and the time that passes is looked at in between.
- Fuzzy matching and recursion take memory faster than time: they are refused, with all other special constructs that
  Python's own `re` does not have.
"""

import re
from dataclasses import dataclass
from time import monotonic

import regex

from haybaler.errors import ToolArgumentError

MAX_PATTERN_CHARS = 500
# Compiling takes a few microseconds for each character of the pattern with its repeats written out.
_MAX_WRITTEN_OUT = 10_000
# Matches that begin in a window are looked for; the engine sees as much again on either side of it, in characters.
WINDOW_CHARS = 4_096
# Processor time for one piece of the text. A pattern that is not hostile takes a few milliseconds at most.
_PIECE_SECONDS = 0.1

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_REPEAT = re.compile(r"\{(\d+)(?:,\d*)?\}")
_GROUP = re.compile(r"\(\?(?!:|=|!|>|<=|<!|P?<[A-Za-z_]\w*>|P=\w+\)|[ims]+\)|[ims]*-?[ims]+:)|\(\*")
_FUZZY = re.compile(r"\{\d*(?:[deis]\d*[<,:}+]|<)")


@dataclass(frozen=True, slots=True)
class Match:
    """
    Where a pattern matched.

    :param start: The position of the first character.
    :param end: The position after the last one. A match that reaches very far may really end later.
    """

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Found:
    """
    What a search brought.

    :param matches: The matches, in order, not overlapping.
    :param reached: Up to where the text was searched; the search can be taken up there.
    :param timed_out: Whether time ran out before the end, or before enough matches were found.
    """

    matches: list[Match]
    reached: int
    timed_out: bool


def compiled(pattern: str, *, is_regex: bool, case_sensitive: bool) -> "regex.Pattern[str]":
    """
    Compile a pattern that can be searched for within bounds.

    :param pattern: What to look for; at most `MAX_PATTERN_CHARS` characters.
    :param is_regex: Whether it is a regular expression; otherwise it stands for itself.
    :param case_sensitive: Whether upper and lower case differ.
    :returns: The compiled pattern, in which `^` and `$` match at the ends of lines.
    :raises ToolArgumentError: If it is not valid or not allowed; the text says why.
    """
    if is_regex:
        _check(pattern)
    flags = regex.VERSION0 | regex.MULTILINE | (0 if case_sensitive else regex.IGNORECASE)
    try:
        return regex.compile(pattern if is_regex else regex.escape(pattern), flags, cache_pattern=False)
    except Exception as error:  # the engine has more kinds of refusal than its own error class
        reason = error if isinstance(error, regex.error) else "it is too complicated"
        raise ToolArgumentError(f"The pattern is not a valid regular expression: {reason}.") from error


def _check(pattern: str) -> None:
    # Blind to what stands in brackets: that refuses too much sometimes, never too little.
    bare = _ESCAPE.sub("_", pattern)
    if found := _GROUP.search(bare):
        raise ToolArgumentError(
            f"The pattern uses `{found.group()}` in a way that is not allowed. Allowed are groups, (?:...), "
            "lookaround, named groups and the flags i, m and s. To find these characters themselves, escape them."
        )
    if _FUZZY.search(bare):
        raise ToolArgumentError("Fuzzy matching is not allowed in the pattern. Write \\{ to find a brace.")
    if _written_out(bare) > _MAX_WRITTEN_OUT:
        raise ToolArgumentError("The pattern repeats too much. Use smaller numbers in {...}, or + or *.")


def _written_out(bare: str) -> int:
    """Bound the pattern's size from above: each character as often as the most repeated one, in all repeated groups."""
    single, nested = 1, 1
    for repeat in _REPEAT.finditer(bare):
        least = max(int(repeat.group(1)), 1)
        if bare[repeat.start() - 1] in ")}?*+":
            nested *= least
        else:
            single = max(single, least)
    return len(bare) * single * nested


def search(text: str, pattern: "regex.Pattern[str]", *, start: int = 0, most: int, seconds: float) -> Found:
    """
    Find the first matches of a pattern.

    Takes at most about `seconds`, and lets other threads run meanwhile. A match is followed for at least 4,096
    characters, and so is what an expression looks at before and after it.

    :param text: The text, of any size.
    :param pattern: A pattern from `compiled`.
    :param start: The position to begin at.
    :param most: The most matches to return.
    :param seconds: The time to spend.
    :returns: The matches and how far the search came.
    """
    deadline = monotonic() + seconds
    matches: list[Match] = []
    position = start
    while position <= len(text) and len(matches) < most:
        origin = max(position - WINDOW_CHARS, 0)
        piece = text[origin : position + 2 * WINDOW_CHARS]
        left = deadline - monotonic()
        if left <= 0:
            return Found(matches, position, timed_out=True)
        try:
            found = pattern.search(piece, position - origin, concurrent=True, timeout=min(left, _PIECE_SECONDS))
        except (TimeoutError, MemoryError):
            return Found(matches, position, timed_out=True)
        if found is None or found.start() + origin >= position + WINDOW_CHARS:
            position += WINDOW_CHARS
        else:
            matches.append(Match(found.start() + origin, found.end() + origin))
            position = matches[-1].end + (found.start() == found.end())
    return Found(matches, min(position, len(text)), timed_out=False)
