"""Content as bytes and back, for wrappers that store something else than they are given."""

import codecs

from haybaler.errors import CorruptEntryError
from haybaler.slices import in_slices
from haybaler.stores.driver import Content

TEXT = b"t"
BINARY = b"b"
# Long content is worked on in pieces of this many characters or bytes, each well under a millisecond.
PIECE = 512 * 1024


def to_bytes(content: Content) -> tuple[bytes, bytes]:
    """
    Return content as bytes.

    :param content: Text or bytes.
    :returns: `TEXT` or `BINARY`, and the bytes: text in UTF-8, lone surrogates included.
    """
    if isinstance(content, bytes):
        return BINARY, content
    starts = in_slices(range(0, len(content), PIECE))
    return TEXT, b"".join(content[start : start + PIECE].encode("utf-8", "surrogatepass") for start in starts)


def from_bytes(kind: bytes, data: bytes) -> Content:
    """
    Return the content that `to_bytes` was given.

    :param kind: `TEXT` or `BINARY`.
    :param data: The bytes.
    :returns: Text or bytes.
    :raises CorruptEntryError: If `to_bytes` cannot have returned them.
    """
    if kind == BINARY:
        return data
    if kind != TEXT:
        raise corrupt()
    view = memoryview(data)
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    starts = in_slices(range(0, len(data), PIECE))
    try:
        pieces = [decoder.decode(view[start : start + PIECE]) for start in starts]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise corrupt() from error
    return "".join(pieces)


def size_of(content: Content) -> int:
    """Return how many bytes `to_bytes` would return."""
    if isinstance(content, bytes) or content.isascii():
        return len(content)
    return len(to_bytes(content)[1])


def corrupt() -> CorruptEntryError:
    """Return the error for an entry that is not what was written."""
    return CorruptEntryError("What is stored under the reference is not what was written.")
