"""What a model is shown of an entry: one page of a text, or an image or file as a whole."""

import mimetypes
import re
from binascii import b2a_base64
from pathlib import PurePosixPath

import filetype  # type: ignore[import-untyped]
from haystack.dataclasses import FileContent, ImageContent
from haystack.dataclasses.image_content import IMAGE_MIME_TYPES

from haybaler.readback.arguments import quoted
from haybaler.stores.protocol import StorePage

Answer = str | list[ImageContent | FileContent]

_SURROGATES = re.compile("[\ud800-\udfff]")
_UNKNOWN = "application/octet-stream"
_MAGIC_BYTES = 8192  # what `filetype` looks at
_ENCODED_AT_ONCE = 3 * 256 * 1024  # a multiple of 3; one encoding holds the interpreter's lock for well under 1 ms


def page_answer(page: StorePage) -> str:
    """
    Return a page of text under a line that says where it stands.

    The line comes first, so nothing in the text can be taken for it. Lone surrogates, which no provider's request can
    carry, are shown as U+FFFD; positions and the stored text are not changed by that.

    :param page: A page of a text entry.
    :returns: The line, a line break, and the text.
    """
    end = page.offset + len(page.content)
    rest = f"continue with offset={end}" if end < page.total else "end"
    return f"[characters {page.offset}-{end} of {page.total}; {rest}]\n{shown(str(page.content))}"


def shown(text: str) -> str:
    """
    Return text that every provider's request can carry.

    :param text: Any text.
    :returns: The same number of characters, with U+FFFD for each lone surrogate.
    """
    return _SURROGATES.sub("\ufffd", text)


def binary_answer(content: bytes, reference: str) -> Answer:
    """
    Return an image or file in the form in which a tool would have returned it.

    :param content: The bytes.
    :param reference: Where they were stored; its extension tells the type where the bytes do not.
    :returns: One content part, or a sentence if the type cannot be told.
    """
    mime_type = _mime_type(content, reference)
    if mime_type is None:
        return (
            f"{quoted(reference)} holds {len(content)} bytes of binary content of an unknown type, "
            "which cannot be shown here."
        )
    if _is_image(mime_type):
        return [ImageContent(base64_image=_base64(content), mime_type=mime_type, validation=False)]
    filename = PurePosixPath(reference).name
    return [FileContent(base64_data=_base64(content), mime_type=mime_type, filename=filename, validation=False)]


def _mime_type(content: bytes, reference: str) -> str | None:
    """Trust the bytes for images, which providers check, and the extension for files, which may be zip archives."""
    kind = filetype.guess(content[:_MAGIC_BYTES])
    found: str | None = kind.mime if kind else None
    if found and _is_image(found):
        return found
    named = mimetypes.guess_type(f"name{PurePosixPath(reference).suffix}")[0]
    return (named if named != _UNKNOWN and content else None) or found


def _is_image(mime_type: str) -> bool:
    return mime_type.startswith("image/") and mime_type in IMAGE_MIME_TYPES


def _base64(content: bytes) -> str:
    pieces = range(0, len(content), _ENCODED_AT_ONCE)
    return b"".join(b2a_base64(content[at : at + _ENCODED_AT_ONCE], newline=False) for at in pieces).decode("ascii")
