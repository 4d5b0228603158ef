"""Content as bytes and back, piece by piece, for wrappers that store something else than they are given."""

import codecs
import io
from collections.abc import Iterable, Iterator

from haybaler.errors import CorruptEntryError
from haybaler.slices import in_slices
from haybaler.stores.driver import Content

TEXT = b"t"
BINARY = b"b"
# Of so many characters or bytes, all work on a piece takes well under a millisecond; no more is copied at once, since
# copying keeps the interpreter lock.
PIECE = 512 * 1024

Octets = bytes | memoryview


def kind_of(content: Content) -> bytes:
    """Return `TEXT` or `BINARY`."""
    return TEXT if isinstance(content, str) else BINARY


def pieces_of(content: Content) -> Iterator[Octets]:
    """
    Return content as bytes.

    :param content: Text or bytes.
    :returns: Its bytes, in pieces of limited size: those of text in UTF-8, lone surrogates included.
    """
    if isinstance(content, bytes):
        return cut(content)
    if len(content) <= PIECE:
        return iter((content.encode("utf-8", "surrogatepass"),))
    starts = in_slices(range(0, len(content), PIECE))
    return (content[start : start + PIECE].encode("utf-8", "surrogatepass") for start in starts)


def cut(data: Octets) -> Iterator[Octets]:
    """
    Return bytes in pieces of limited size, without copying them.

    :param data: The bytes.
    :returns: The pieces.
    """
    view = memoryview(data)
    if len(view) <= PIECE:
        return iter((view,))
    return (view[start : start + PIECE] for start in in_slices(range(0, len(view), PIECE)))


def joined(pieces: Iterable[Octets]) -> bytes:
    """
    Return pieces as one.

    :param pieces: The pieces; large ones are copied in smaller ones.
    :returns: Their bytes.
    """
    # It hands over what it has collected without copying it once more.
    whole = io.BytesIO()
    for piece in pieces:
        for part in cut(piece):
            whole.write(part)
    return whole.getvalue()


def content_of(kind: bytes, pieces: Iterable[Octets]) -> Content:
    """
    Return the content whose kind and bytes these are.

    :param kind: `TEXT` or `BINARY`.
    :param pieces: What `pieces_of` yielded, cut anywhere.
    :returns: Text or bytes.
    :raises CorruptEntryError: If `pieces_of` cannot have yielded them.
    """
    if kind == BINARY:
        return joined(pieces)
    if kind != TEXT:
        raise corrupt()
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    try:
        texts = [decoder.decode(part) for piece in pieces for part in cut(piece)]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise corrupt() from error
    return "".join(texts)


def size_of(content: Content) -> int:
    """Return how many bytes `pieces_of` yields in all."""
    if isinstance(content, bytes) or content.isascii():
        return len(content)
    return sum(map(len, pieces_of(content)))


def corrupt() -> CorruptEntryError:
    """Return the error for an entry that is not what was written."""
    return CorruptEntryError("What is stored under the reference is not what was written.")
