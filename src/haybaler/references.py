"""The text that stands in the conversation for a stored result, and the marks in a message's metadata."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from haystack.dataclasses import ChatMessage

# Marks of Haystack's own hooks, kept so that both kinds can run on one Agent.
OFFLOADED_META = "tool_result_offloaded"  # the list of references written for a message
COMPACTION_META = "context_compaction"  # a dict: `strategy` and its figures

# Tools whose results are never stored or pruned again: a result that was read back would be sent away in a loop.
READ_BACK_TOOL_NAMES = frozenset({"read_tool_result", "search_tool_result"})


@dataclass(frozen=True, slots=True)
class PartDescription:
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
        unit = "characters" if self.label == "text" else "bytes"
        named = f" named {framed(self.filename)}" if self.filename else ""
        where = f"{_plain(self.label) or 'file'}{named} ({self.size} {unit}) at {framed(reference)}"
        return (
            where if self.preview is None else f"{where}. Preview: {_plain(self.preview) or json_framed(self.preview)}"
        )


def pointer_text(parts: Sequence[PartDescription], references: Sequence[str]) -> str:
    """
    Return what replaces a result in the conversation.

    :param parts: The parts of the result, in order.
    :param references: Reference i belongs to part i.
    :returns: One line for a single part, otherwise a numbered line for each.
    """
    lines = [part.line(reference) for part, reference in zip(parts, references, strict=True)]
    if len(lines) == 1:
        return f"Tool result offloaded to {lines[0]}"
    numbered = [f"{number}. {line}" for number, line in enumerate(lines, start=1)]
    return "\n".join([f"Tool result offloaded to {len(lines)} files:", *numbered])


def preview_of(text: str, characters: int) -> str | None:
    """
    Return the beginning of a text, marked with an ellipsis where it was cut.

    :param text: The whole text.
    :param characters: How many characters to keep; 0 for no preview.
    :returns: The preview, or None.
    """
    if characters == 0:
        return None
    return text if len(text) <= characters else f"{text[:characters]}..."


def framed(text: str) -> str:
    """
    Put text that somebody else chose between quotes that it cannot close.

    :param text: A reference or a file name.
    :returns: The text in single quotes where that is safe, otherwise as a JSON string.
    """
    return f"'{text}'" if _plain(text) else json_framed(text)


def json_framed(text: str) -> str:
    """
    Return text as a JSON string on one line, with everything escaped that does not print.

    :param text: Any text.
    :returns: A string in which no line break, control or direction character is left.
    """
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isprintable():
        return quoted
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in quoted)


def _plain(text: str) -> str | None:
    """Return `text` if it can stand in a line as it is: nothing in it ends a quote, a line or a direction."""
    return None if not text.isprintable() or "'" in text or '"' in text or "\\" in text else text


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
    return any(result.origin.tool_name in READ_BACK_TOOL_NAMES for result in message.tool_call_results)
