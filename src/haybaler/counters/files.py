"""What a file costs: a PDF file by its pages, other documents by their bytes."""

import re
import zlib
from binascii import Error, a2b_base64
from collections.abc import Iterator
from itertools import pairwise

# Characters of base64 that are decoded at each end of a PDF file, a multiple of four: 384 KB. The tree of pages stands
# near one of them; what lies between is mostly images and fonts.
_WINDOW = 512 * 1024

# Bytes that are inflated in one PDF file, so that one made to grow without bound does not.
_MOST_INFLATED = 1_000_000

# Objects that are looked at in one compressed stream; producers put 100 or 200 into each.
_MOST_PACKED = 1_000

# Providers take 100 to 1,000 pages. What claims more than this lies.
_MOST_PAGES = 10_000

_PDF_SIGNATURE = "JVBERi0"  # `%PDF-`, and any digit, in base64
_WITHOUT_TEXT = ("image/", "audio/", "video/")

_PAGES = re.compile(rb"/Type\s{0,8}/Pages\b")
_COUNT = re.compile(rb"/Count\s{1,8}(\d{1,9})\b(?!\s{1,8}\d{1,9}\s{1,8}R\b)")
_FIRST = re.compile(rb"/First\s{1,8}(\d{1,9})\b")
_STREAM = re.compile(rb"\bstream\r?\n")


def tokens_of_file(
    base64_data: str, mime_type: str | None, *, tokens_per_page: int, bytes_per_token: float
) -> int | None:
    """
    Estimate a file's tokens.

    :param base64_data: The file.
    :param mime_type: What it is said to be; a PDF file is also known by its signature.
    :param tokens_per_page: Tokens for each page of a PDF file. Gemini publishes 258
        (https://ai.google.dev/gemini-api/docs/document-processing); Claude 1,500 to 3,000 for the text, and an image
        for each page (https://platform.claude.com/docs/en/build-with-claude/pdf-support).
    :param bytes_per_token: How many bytes of other files make a token.
    :returns: Tokens; None for a PDF file whose pages cannot be counted, and for images, sound and video, whose bytes
        say nothing about what they cost.
    """
    kind = (mime_type or "").lower()
    if kind == "application/pdf" or base64_data.startswith(_PDF_SIGNATURE):
        pages = pages_of_pdf(base64_data)
        return None if pages is None else pages * tokens_per_page
    if kind.startswith(_WITHOUT_TEXT):
        return None
    return int((len(base64_data) * 3 // 4 - base64_data.count("=", -2)) / bytes_per_token)


def pages_of_pdf(base64_data: str) -> int | None:
    """
    Count the pages of a PDF file: what the root of its newest tree of pages says.

    The work is bounded: of a file of more than 768 KB only both ends are read, and at most a megabyte is inflated.
    That takes a few milliseconds; some 100 for a file that was made to be slow.

    :param base64_data: The file.
    :returns: Pages; None if they cannot be found, as in an encrypted or damaged file, or are too many to be true.
    """
    try:
        data = _ends(base64_data)
    except (Error, ValueError):
        return None
    # A node with a parent is a branch, and counts its own pages alone.
    roots = (node for node in _objects(data) if _PAGES.search(node) and b"/Parent" not in node)
    count = _COUNT.search(next(roots, b""))
    pages = int(count[1]) if count else 0
    return pages if 0 < pages <= _MOST_PAGES else None


def _ends(payload: str) -> bytes:
    if len(payload) <= 2 * _WINDOW:
        return a2b_base64(payload, strict_mode=True)
    return b"endobj".join(a2b_base64(part, strict_mode=True) for part in (payload[:_WINDOW], payload[-_WINDOW:]))


def _objects(data: bytes) -> Iterator[bytes]:
    """Yield the objects of a PDF file, the newest first, those in compressed streams too."""
    budget = _MOST_INFLATED
    for written in reversed(data.split(b"endobj")):
        yield written
        if budget > 0 and b"/ObjStm" in written and (begin := _STREAM.search(written)):
            inflated = _inflated(written[begin.end() :], budget)
            budget -= max(len(inflated), 1_000)  # a damaged stream costs time too
            yield from _packed(inflated, _FIRST.search(written, 0, begin.start()))


def _inflated(stream: bytes, most: int) -> bytes:
    try:
        return zlib.decompressobj().decompress(stream, most)
    except zlib.error:
        return b""


def _packed(stream: bytes, first: re.Match[bytes] | None) -> Iterator[bytes]:
    """Yield the objects of a stream, which begins with a table of their numbers and places."""
    begin = int(first[1]) if first else 0
    places = stream[:begin].split(maxsplit=2 * _MOST_PACKED)[1 : 2 * _MOST_PACKED : 2]
    # Sorted and within bounds, no two objects overlap, whatever the table says.
    starts = sorted(begin + int(place[:9]) for place in places if place.isdigit())
    return (stream[start:end] for start, end in pairwise([*starts, len(stream)]))
