"""How the matches of a search are shown to a model: one line each, cut around the match, with its offset."""

from dataclasses import dataclass

from haybaler.framing import is_seen
from haybaler.readback.searching import Found, Match, compiled, search
from haybaler.stores.driver import page_start

# What a search may take, so that the answer is there within a second.
_SECONDS = 0.3
# The most that is shown of a match itself, in characters.
_MATCH_CHARS = 200
# What stands around a match. In the text itself they are escaped.
_MARKS = "\u27e6\u27e7"


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """
    What a model wants to find.

    :param pattern: What to look for.
    :param is_regex: Whether it is a regular expression; otherwise it stands for itself.
    :param case_sensitive: Whether upper and lower case differ.
    :param context: How many characters to show before and after each match.
    :param most: The most matches to show.
    :param offset: Where to begin, in characters; negative counts from the end.
    :param budget: The most characters to show; one match is always shown.
    """

    pattern: str
    is_regex: bool
    case_sensitive: bool
    context: int
    most: int
    offset: int
    budget: int

    def answer(self, text: str) -> str:
        """
        Search, and return the matches under a line that says how far the search came.

        Line breaks, everything else that does not print and the marks of a match are escaped inside a match's line, so
        that no text can pass for a line of the answer or for a match. May take up to a second; touches nothing that
        changes.

        :param text: The whole text.
        :returns: The answer.
        :raises ToolArgumentError: If the pattern is not valid or not allowed.
        """
        pattern = compiled(self.pattern, is_regex=self.is_regex, case_sensitive=self.case_sensitive)
        start = page_start(self.offset, len(text))
        found = search(text, pattern, start=start, most=self.most + 1, seconds=_SECONDS)
        lines: list[str] = []
        budget = self.budget
        for match in found.matches[: self.most]:
            line = _line(text, match, self.context)
            budget -= len(line)
            if lines and budget < 0:
                break
            lines.append(line)
        following = found.matches[len(lines)].start if len(lines) < len(found.matches) else None
        return "\n".join([f"[{_count(len(lines))} in {_state(len(text), found, following)}]", *lines])


def _count(number: int) -> str:
    return "1 match" if number == 1 else f"{number or 'no'} matches"


def _state(total: int, found: Found, following: int | None) -> str:
    if following is not None:
        return f"{total} characters so far; there are more, continue with offset={following}"
    if found.timed_out:
        return (
            f"{total} characters up to {found.reached}; the search took too long and was stopped there, "
            f"use a simpler pattern or continue with offset={found.reached}"
        )
    return f"{total} characters; that is all"


def _line(text: str, match: Match, context: int) -> str:
    start, end = max(match.start - context, 0), min(match.end + context, len(text))
    inside = _printable(text[match.start : min(match.end, match.start + _MATCH_CHARS)])
    cut = f"... ({match.end - match.start} characters)" if match.end - match.start > _MATCH_CHARS else ""
    before = ("..." if start else "") + _printable(text[start : match.start])
    after = _printable(text[match.end : end]) + ("..." if end < len(text) else "")
    return f"offset {match.start}: {before}{_MARKS[0]}{inside}{cut}{_MARKS[1]}{after}"


def _printable(text: str) -> str:
    return "".join(c if is_seen(c) and c not in _MARKS else c.encode("unicode_escape").decode("ascii") for c in text)
