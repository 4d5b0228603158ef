"""The note that a sliding window leaves: a message of its own, or a first part of the user message beside it."""

from dataclasses import dataclass, replace
from typing import Any

from haystack.dataclasses import ChatMessage, TextContent

from haybaler.conversation import is_compaction_product
from haybaler.references import COMPACTION_META, compaction_mark

STRATEGY = "sliding_window"

# Marks a user message with a note in it. It is not `COMPACTION_META`: that mark would make a note of the whole message,
# also in the eyes of Haystack's own compactors, and they drop earlier notes.
MERGED_NOTE_META = "context_compaction_merged_note"


_GAP = "\n\n"


@dataclass(frozen=True, slots=True)
class Note:
    """
    What a sliding window says of the messages that it removed.

    :param text: The text for the model.
    :param removed: How many messages were removed, by this compaction and by those before.
    :param kept: How many messages were kept.
    """

    text: str
    removed: int
    kept: int

    @property
    def _figures(self) -> dict[str, Any]:
        return {"strategy": STRATEGY, "removed_messages": self.removed, "kept_messages": self.kept}

    def message(self) -> ChatMessage:
        """
        Return the note as a message of its own.

        :returns: A user message: not all providers take several system messages.
        """
        return ChatMessage.from_user(self.text, meta={COMPACTION_META: self._figures})

    def merged_into(self, message: ChatMessage) -> ChatMessage:
        """
        Put the note before the first text of a user's message; into the same part, since `ChatMessage.text`, and much
        code that uses it, sees the first part only.

        :param message: The message; it is not touched.
        :returns: A new message, from which `without_note` makes the old one again.
        """
        content = list(message._content)  # noqa: SLF001 - there is no public way to all parts
        place = next((n for n, part in enumerate(content) if isinstance(part, TextContent)), None)
        if place is None:
            content.insert(0, TextContent(self.text))
        else:
            content[place] = TextContent(self.text + _GAP + message.texts[0])
        figures = {**self._figures, "text": self.text}
        return replace(message, _content=content, _meta={**message.meta, MERGED_NOTE_META: figures})


def is_note(message: ChatMessage) -> bool:
    """
    Whether a message is a note of this strategy, also one of Haystack's own compactor.

    :param message: Any message.
    :returns: True if there is nothing in the message but a note.
    """
    return is_compaction_product(message, STRATEGY)


def without_note(message: ChatMessage) -> ChatMessage:
    """
    Return a message as it was before a note was merged into it.

    :param message: Any message.
    :returns: An equal of the original, or the message itself if no note was merged into it.
    """
    if MERGED_NOTE_META not in message.meta:
        return message
    note = str(_figures(message).get("text"))
    content = list(message._content)  # noqa: SLF001 - there is no public way to all parts
    for place, part in enumerate(content):
        if isinstance(part, TextContent) and part.text == note:
            del content[place]
            break
        if isinstance(part, TextContent) and part.text.startswith(note + _GAP):
            content[place] = TextContent(part.text.removeprefix(note + _GAP))
            break
    meta = {key: value for key, value in message.meta.items() if key != MERGED_NOTE_META}
    return replace(message, _content=content, _meta=meta)


def removed_before(message: ChatMessage) -> int:
    """
    Return how many messages were removed according to the note that a message is, or that was merged into it.

    :param message: Any message.
    :returns: The number; 0 if there is no note, or none with a usable number.
    """
    count = _figures(message).get("removed_messages")
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def _figures(message: ChatMessage) -> dict[str, Any]:
    merged = message.meta.get(MERGED_NOTE_META)
    if isinstance(merged, dict):
        return merged
    return compaction_mark(message, STRATEGY) or {} if is_note(message) else {}
