"""A tool result taken apart: one part for each entry of the store."""

import base64
import binascii
import mimetypes
import re
from typing import NamedTuple

from haystack.dataclasses import FileContent, ImageContent, TextContent, ToolCallResult

from haybaler.references import PartDescription, preview_of

Block = TextContent | ImageContent | FileContent

_SLICE = 1_000_000  # characters of base64, a multiple of four; decoded in 2 ms

_SUFFIX = re.compile(r"\.[a-z0-9]{1,8}\Z")


class Part(NamedTuple):
    """
    One content block of a result, on its way to the store.

    :param key: The key to be written under.
    :param content: What is written: a text as it is, an image or file as the bytes behind its base64 form.
    :param place: The place of the result among its message's.
    :param preview_chars: How many characters of a text the pointer shows.
    :param block: The block that was an image or file; None for a text.
    """

    key: str
    content: str | bytes
    place: int
    preview_chars: int
    block: ImageContent | FileContent | None = None

    @property
    def description(self) -> PartDescription:
        """What the pointer says of it."""
        if isinstance(self.content, str):
            return PartDescription("text", len(self.content), preview=preview_of(self.content, self.preview_chars))
        return PartDescription(_label(self.block), len(self.content), filename=_filename(self.block))

    @property
    def shown(self) -> str:
        """What the pointer shows of it: the beginning of a text, or the name of a file."""
        return self.content[: self.preview_chars] if isinstance(self.content, str) else _filename(self.block) or ""

    def __repr__(self) -> str:
        """Without the content, its preview, and the key, which nobody else should know."""
        return f"Part({type(self.content).__name__}, {len(self.content)})"


def _filename(block: ImageContent | FileContent | None) -> str | None:
    return block.filename if isinstance(block, FileContent) else None


def _label(block: ImageContent | FileContent | None) -> str:
    if block and block.mime_type and "/" in block.mime_type:  # "text" is what only texts are
        return block.mime_type
    return "image" if isinstance(block, ImageContent) else "file"


def is_empty(result: ToolCallResult) -> bool:
    """
    Whether nothing would be gained by storing a result.

    :param result: The result.
    :returns: True if it has no blocks, or nothing but empty texts.
    """
    if isinstance(result.result, str):
        return not result.result
    return all(isinstance(block, TextContent) and not block.text for block in result.result)


def is_text(result: ToolCallResult) -> bool:
    """
    Whether a store that only holds text can hold a result.

    :param result: The result.
    :returns: False if it carries an image or a file.
    """
    return isinstance(result.result, str) or all(isinstance(block, TextContent) for block in result.result)


def payload_of(result: ToolCallResult) -> str:
    """
    Return the text that a result occupies in the conversation, as policies see it.

    :param result: The result.
    :returns: The texts and base64 payloads of its blocks, joined.
    """
    if isinstance(result.result, str):
        return result.result
    return "".join(_payload(block) for block in result.result)


def _payload(block: Block) -> str:
    if isinstance(block, TextContent):
        return block.text
    return block.base64_image if isinstance(block, ImageContent) else block.base64_data


def parts_of(result: ToolCallResult, place: int, *, prefix: str, preview_chars: int) -> list[Part] | None:
    """
    Take a result apart.

    :param result: The result.
    :param place: Its place among its message's results.
    :param prefix: What the key of each part begins with. A number follows, if there are several, and an extension.
    :param preview_chars: How many characters of each text the pointer shows.
    :returns: One part for each block, in order; None if a base64 payload cannot be decoded.
    """
    if isinstance(result.result, str):
        return [Part(f"{prefix}.txt", result.result, place, preview_chars)]
    prefixes = [prefix] if len(result.result) == 1 else [f"{prefix}_{n}" for n in range(len(result.result))]
    try:
        return [_part(block, place, own, preview_chars) for own, block in zip(prefixes, result.result, strict=True)]
    except (binascii.Error, ValueError):
        return None


def _part(block: Block, place: int, prefix: str, preview_chars: int) -> Part:
    if isinstance(block, TextContent):
        return Part(f"{prefix}.txt", block.text, place, preview_chars)
    suffix = _suffix(_filename(block), block.mime_type)
    return Part(prefix + suffix, _decoded(_payload(block)), place, preview_chars, block)


def _decoded(payload: str) -> bytes:
    # In slices, each complete in itself: no other thread runs while one is decoded, not even the event loop.
    if "=" in payload[:-2].rstrip("="):
        raise binascii.Error("Padding within the data.")
    slices = (payload[start : start + _SLICE] for start in range(0, len(payload), _SLICE))
    return b"".join(base64.b64decode(part, validate=True) for part in slices)


def _suffix(filename: str | None, mime_type: str | None) -> str:
    named = _SUFFIX.search((filename or "").lower())
    guessed = mimetypes.guess_extension(mime_type) if mime_type else None
    return named.group() if named else guessed or ".bin"
