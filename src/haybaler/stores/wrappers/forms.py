"""How a wrapper tells what it has stored itself from content that was passed on as it is."""

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

from haybaler.stores.driver import Content
from haybaler.stores.wrappers.octets import Octets, content_of, corrupt, cut, joined, kind_of, pieces_of

_CONTENT = b"="
_BASE64_PIECE = 3 * 128 * 1024  # threes of bytes become fours of characters


@dataclass(frozen=True, slots=True)
class Record:
    """
    What a wrapper has stored itself.

    :param tag: One byte that says what it is.
    :param body: Anything.
    """

    tag: bytes
    body: memoryview


class Form:
    """
    The form of one wrapper's records: its mark, a tag, and a body.

    Content that happens to begin with the mark is itself wrapped into a record, so nothing that is written can pass for
    a record. In a store that only holds text, records are base64. A record that some store takes for text, since it
    happens to be UTF-8, is understood as well.

    :param mark: What records begin with, and a colon; ASCII, and different for each kind of wrapper.
    :param binary: Whether the store holds bytes.
    """

    def __init__(self, mark: str, *, binary: bool) -> None:
        self._mark = f"{mark}:".encode("ascii")
        self._marks_in_text = (f"{mark}:", f"{mark};")  # as it is, and in base64
        self._binary = binary

    def of_content(self, content: Content) -> Content:
        """
        Return what is stored for content that is not changed.

        :param content: The content.
        :returns: The same, or a record if it looks like one.
        """
        if not self._is_marked(content):
            return content
        return self.of_record(_CONTENT, [kind_of(content), *pieces_of(content)])

    def of_record(self, tag: bytes, body: Iterable[Octets]) -> Content:
        """
        Return what is stored for a record.

        :param tag: One byte that says what it is; not `=`.
        :param body: Anything, in pieces.
        :returns: Bytes, or text for a store that only holds text.
        """
        if self._binary:
            return joined([self._mark, tag, *body])
        data = memoryview(joined([tag, *body]))
        starts = range(0, len(data), _BASE64_PIECE)
        pieces = [base64.b64encode(data[start : start + _BASE64_PIECE]).decode("ascii") for start in starts]
        return "".join([self._marks_in_text[1], *pieces])

    def parse(self, stored: Content) -> Content | Record:
        """
        Tell a record from content.

        :param stored: What stands in the store.
        :returns: The record, or what was given to `of_content`.
        :raises CorruptEntryError: If it begins like a record and is none.
        """
        if not self._is_marked(stored):
            return stored
        data = memoryview(self._unmarked(stored))
        if data[:1] == _CONTENT:
            return content_of(bytes(data[1:2]), cut(data[2:]))
        return Record(bytes(data[:1]), data[1:])

    def beginning(self, stored: Content, length: int) -> bytes:
        """
        Look at the beginning of a record, without the work that the rest would be.

        :param stored: What stands in the store.
        :param length: How many bytes of tag and body to return.
        :returns: At most so many; none if it is no record.
        """
        if not self._is_marked(stored):
            return b""
        enough = len(self._mark) + -(-length // 3) * 4  # characters of base64
        return bytes(self._unmarked(stored[:enough])[:length])

    def _is_marked(self, content: Content) -> bool:
        if isinstance(content, bytes):
            return content.startswith(self._mark)
        return content.startswith(self._marks_in_text)

    def _unmarked(self, stored: Content) -> Octets:
        start = len(self._mark)
        if isinstance(stored, bytes):
            return memoryview(stored)[start:]
        if stored.startswith(self._marks_in_text[0]):
            return stored[start:].encode("utf-8", "surrogatepass")
        try:
            return base64.b64decode(stored[start:], validate=True)
        except (binascii.Error, ValueError) as error:
            raise corrupt() from error
