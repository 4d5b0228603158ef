"""The text that stands in the conversation for a stored result, and the marks in a message's metadata."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from haystack.dataclasses import ChatMessage, ToolCallResult

from haybaler.framing import framed, framed_where_needed, most_bytes, shortened

# Marks of Haystack's own hooks, kept so that both kinds can run on one Agent.
OFFLOADED_META = "tool_result_offloaded"  # the list of references written for a message
COMPACTION_META = "context_compaction"  # a dict: `strategy` and its figures

# Tools whose results are never stored or pruned again: a result that was read back would be sent away in a loop.
READ_BACK_TOOL_NAMES = frozenset({"read_tool_result", "search_tool_result"})

# What a pointer may call a part, without parameters. Whoever made the part chose its MIME type, in any form.
_LABEL = re.compile(
    r"(?:text|image|file|[a-z0-9][\w.+-]{0,49}/[a-z0-9][\w.+-]{0,99})(?=\s*;|\Z)", re.ASCII | re.IGNORECASE
)
# As long as file systems let a name be.
_FILENAME_CHARS = 255
# More than the rest of a pointer has: the words around its lines and, as counters render it, the words around the name
# of its tool; and in a line the number, label, size and words.
_WORDS = 100
_WORDS_OF_LINE = 300


class PartDescription(NamedTuple):
    """
    What the pointer says of one stored part.

    :param label: "text", or a MIME type.
    :param size: The size in characters (text) or bytes (binary).
    :param filename: What the tool called the file, or None.
    :param preview: The first characters of a text, or None for no preview.
    """

    label: str
    size: int
    filename: str | None = None
    preview: str | None = None

    def line(self, reference: str) -> str:
        """
        Describe the part and where it went, on one line.

        :param reference: The part's reference.
        :returns: The line.
        """
        label, unit = "text", "characters"
        if self.label != "text":
            label, unit = match.group() if (match := _LABEL.match(self.label)) else "file", "bytes"
        named = f" named {framed(shortened(self.filename, _FILENAME_CHARS))}" if self.filename else ""
        where = f"{label}{named} ({self.size} {unit}) at {framed(reference)}"
        return where if self.preview is None else f"{where}. Preview: {framed_where_needed(self.preview)}"


def pointer_text(lines: Sequence[str]) -> str:
    """
    Return what replaces a result in the conversation.

    :param lines: The line that describes each part of the result, in order.
    :returns: The line itself for a single part, otherwise a numbered line for each.
    """
    if len(lines) == 1:
        return f"Tool result offloaded to {lines[0]}"
    numbered = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
    return "\n".join([f"Tool result offloaded to {len(lines)} files:", *numbered])


def most_bytes_of_pointers(shown: Sequence[str], *, parts: int, pointers: int = 1) -> int:
    """
    Bound the size of pointers as counters render them, without making them.

    :param shown: What they show: references, names of files and tools, previews with or without the mark of a cut.
    :param parts: How many parts they describe.
    :param pointers: How many pointers there are.
    :returns: Bytes of UTF-8.
    """
    return _WORDS * pointers + _WORDS_OF_LINE * parts + most_bytes(shown)


def preview_of(text: str, characters: int) -> str | None:
    """
    Return the beginning of a text, marked with an ellipsis where it was cut.

    :param text: The whole text.
    :param characters: How many characters to keep; 0 for no preview.
    :returns: The preview, or None.
    """
    return None if characters == 0 else shortened(text, characters)


def offloaded_references(message: ChatMessage) -> list[str]:
    """
    Return where the results of a message went.

    :param message: Any message.
    :returns: The references, in the order of the parts; empty if the message was not offloaded.
    """
    references = message.meta.get(OFFLOADED_META)
    return [r for r in references if isinstance(r, str)] if isinstance(references, (list, tuple)) else []


def is_offloaded(message: ChatMessage) -> bool:
    """
    Whether a message already holds a pointer.

    :param message: Any message.
    :returns: True if some hook or compactor marked it so.
    """
    return bool(message.meta.get(OFFLOADED_META))


def compaction_mark(message: ChatMessage, strategy: str | None = None) -> dict[str, Any] | None:
    """
    Return the mark that a compaction left on a message.

    :param message: Any message.
    :param strategy: Only a mark of this strategy.
    :returns: The mark, or None. A mark of an unknown form counts as one without figures.
    """
    if COMPACTION_META not in message.meta:
        return None
    value = message.meta[COMPACTION_META]
    mark = value if isinstance(value, dict) else {}
    return mark if strategy is None or mark.get("strategy") == strategy else None


def is_read_back(message: ChatMessage) -> bool:
    """
    Whether a message holds what haybaler's own tools read back.

    :param message: Any message.
    :returns: True if one of its results comes from such a tool.
    """
    return any_read_back(message.tool_call_results)


def any_read_back(results: Iterable[ToolCallResult]) -> bool:
    """
    Whether haybaler's own tools read one of several results back.

    :param results: Results of tools.
    :returns: True if one of them comes from such a tool.
    """
    return not READ_BACK_TOOL_NAMES.isdisjoint([result.origin.tool_name for result in results])
