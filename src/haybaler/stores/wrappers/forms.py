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
    a record. In a store that only holds text, records are text.

    :param mark: What records begin with; ASCII, and different for each kind of wrapper.
    :param binary: Whether the store holds bytes.
    """

    def __init__(self, mark: str, *, binary: bool) -> None:
        self._text_mark = mark
        self._mark = mark.encode("ascii")
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
        return "".join([self._text_mark, *pieces])

    def parse(self, stored: Content) -> Content | Record:
        """
        Tell a record from content.

        :param stored: What stands in the store.
        :returns: The record, or what was given to `of_content`.
        :raises CorruptEntryError: If it begins like a record and is none.
        """
        if not self._is_marked(stored):
            return stored
        data = memoryview(stored)[len(self._mark) :] if isinstance(stored, bytes) else memoryview(self._decoded(stored))
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
        if isinstance(stored, bytes):
            return stored[len(self._mark) : len(self._mark) + length]
        quarters = -(-length // 3) * 4
        return self._decoded(stored[: len(self._text_mark) + quarters])[:length]

    def _is_marked(self, content: Content) -> bool:
        if isinstance(content, bytes):
            return content.startswith(self._mark)
        return content.startswith(self._text_mark)

    def _decoded(self, stored: str) -> bytes:
        try:
            return base64.b64decode(stored[len(self._text_mark) :], validate=True)
        except (binascii.Error, ValueError) as error:
            raise corrupt() from error
