"""Files are measured by their pages or bytes; what cannot be measured costs the flat fee."""

import threading
import zlib
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, FileContent, TextContent, ToolCall
from hypothesis import given
from hypothesis import strategies as st
from tests.compactors.conversations import answer
from tests.counters.pictures import encoded, png

from haybaler import ApproximateTokenCounter, TiktokenCounter
from haybaler.counters.files import pages_of_pdf, tokens_of_file
from haybaler.counters.rendering import is_short
from haybaler.counters.run import RunTokenCounter

BOTH_COUNTERS = pytest.mark.parametrize("counter", [ApproximateTokenCounter, TiktokenCounter])

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
PAGE = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] >>"


def tree(pages: int) -> bytes:
    kids = b" ".join(b"%d 0 R" % number for number in range(3, 3 + pages))
    return b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, pages)


def pdf(*objects: bytes) -> bytes:
    """Return a PDF file with these objects."""
    written = (b"%d 0 obj\n%s\nendobj\n" % numbered for numbered in enumerate(objects, start=1))
    return b"%PDF-1.7\n" + b"".join(written) + b"trailer << /Root 1 0 R >>\nstartxref\n9\n%%EOF\n"


def document(pages: int) -> bytes:
    return pdf(CATALOG, tree(pages), *[PAGE] * pages)


def packed(*objects: bytes, stated: int = 0, turned: bool = False, end: bytes = b"\n") -> bytes:
    """
    Return a compressed stream of objects, as newer files have.

    :param stated: Where the first object is said to begin, if not where it does.
    :param turned: Whether the table is in another order than the objects.
    :param end: How the line with the word `stream` ends.
    """
    places = [sum(len(before) + 1 for before in objects[:n]) for n in range(len(objects))]
    numbered = list(enumerate(places, start=50))
    table = b" ".join(b"%d %d" % place for place in (reversed(numbered) if turned else numbered)) + b" "
    data = zlib.compress(table + b" ".join(objects))
    first = stated or len(table)
    return b"<< /Type /ObjStm /N %d /First %d /Filter /FlateDecode /Length %d >>\nstream%s%s\nendstream" % (
        len(objects),
        first,
        len(data),
        end,
        data,
    )


def drawing(size: int) -> bytes:
    return b"<< /Length %d >>\nstream\n%s\nendstream" % (size, bytes(size))


BRANCHES = [
    b"<< /Type /Pages /Kids [5 0 R] /Count 9 /Parent 2 0 R >>",
    b"<< /Type /Pages /Parent 2 0 R /Kids [6 0 R] /Count 3 >>",
]

TWELVE = {
    "plain": document(12),
    "no blanks": pdf(b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 12/Kids[3 0 R]>>", PAGE),
    "count first": pdf(CATALOG, b"<< /Count 12 /Kids [3 0 R] /Type /Pages >>", PAGE),
    "with resources": pdf(CATALOG, b"<< /Resources << /Font << >> >> /Type /Pages /Kids [3 0 R] /Count 12 >>"),
    "branches": pdf(CATALOG, BRANCHES[0], tree(12), *BRANCHES, PAGE),
    "outlines": pdf(CATALOG, tree(12), b"<< /Type /Outlines /Count 99 >>", b"<< /Title (x) /Count -70 >>"),
    "compressed": pdf(packed(CATALOG, BRANCHES[0], tree(12), PAGE), drawing(100)),
    "compressed with carriage return": pdf(packed(CATALOG, tree(12), end=b"\r\n")),
    "table in another order": pdf(packed(tree(12), BRANCHES[0], turned=True)),
    "a place with too many digits": pdf(packed(b"1 " + b"9" * 5000, tree(12), stated=5000)),
    "in the second stream": pdf(packed(CATALOG, PAGE), packed(PAGE, tree(12)), packed(PAGE)),
    "changed later": document(15) + pdf(CATALOG, tree(12)),
    "changed later in a stream": document(15) + pdf(packed(tree(12))),
    "tree at the end of a large file": pdf(CATALOG, drawing(5_000_000), tree(12)),
    "tree at the start of a large file": pdf(CATALOG, tree(12), drawing(5_000_000)),
    "text before the signature": b"\xef\xbb\xbf" + document(12),
}


@pytest.mark.parametrize("data", TWELVE.values(), ids=TWELVE.keys())
def test_pages_are_counted(data: bytes) -> None:
    assert pages_of_pdf(encoded(data)) == 12
    assert tokens_of_file(encoded(data), "application/pdf", tokens_per_page=258, bytes_per_token=4) == 12 * 258


UNCOUNTABLE = {
    "nothing": b"",
    "text": b"The /Pages of a book, /Count 3 of them.",
    "no tree": pdf(CATALOG, PAGE),
    "no pages": pdf(CATALOG, tree(0)),
    "branches alone": pdf(CATALOG, *BRANCHES),
    "no count": pdf(CATALOG, b"<< /Type /Pages /Kids [3 0 R] >>"),
    "count elsewhere": pdf(CATALOG, b"<< /Type /Pages /Count 12 0 R >>", b"7"),
    "a negative count": pdf(CATALOG, b"<< /Type /Pages /Count -12 >>"),
    "too many to be true": pdf(CATALOG, b"<< /Type /Pages /Count 10001 >>"),
    "far too many": pdf(CATALOG, b"<< /Type /Pages /Count %s >>" % (b"9" * 5000)),
    "tree in the middle of a large file": pdf(CATALOG, drawing(3_000_000), tree(12), drawing(3_000_000)),
    "a damaged stream": pdf(packed(CATALOG, tree(12)).replace(b"stream\n\x78", b"stream\n\x79")),
    "a stream without a first object": pdf(packed(tree(12)).replace(b"/First", b"/Fir")),
    "a stream whose objects begin behind its end": pdf(packed(tree(12), stated=999_999_999)),
    "a stream that grows": pdf(packed(bytes(5_000_000), tree(12))),
    "many streams that grow": pdf(packed(tree(12)), *[packed(bytes(600_000))] * 2),
}


@pytest.mark.parametrize("data", UNCOUNTABLE.values(), ids=UNCOUNTABLE.keys())
def test_pages_that_cannot_be_counted_cost_the_flat_fee(data: bytes) -> None:
    assert pages_of_pdf(encoded(data)) is None
    file = FileContent(base64_data=encoded(data), mime_type="application/pdf", filename="x", validation=False)
    counter = ApproximateTokenCounter(tokens_per_file=77_000, tokens_per_page=258)
    assert 77_000 < counter.count([ChatMessage.from_user(content_parts=[file])]) < 77_010


@pytest.mark.parametrize("payload", ["no base64!", "\ud800", "JVBERi0x=", "JVBERi0xLjc\n" * 5])
def test_what_is_no_base64_has_no_pages(payload: str) -> None:
    assert pages_of_pdf(payload) is None


PIECES = [CATALOG, tree(3), PAGE, packed(tree(3)), b"endobj", b"stream\n", b"/Type /Pages", b"/Count 3", b"/ObjStm"]


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=30)), max_size=30))
def test_no_file_raises(pieces: list[bytes]) -> None:
    pages = pages_of_pdf(encoded(b"%PDF-1.7\n" + b" ".join(pieces)))
    assert pages is None or 0 < pages <= 10_000


@given(table=st.text("0123456789 -x\n", max_size=80), first=st.integers(0, 200))
def test_no_table_of_a_compressed_stream_raises(table: str, first: int) -> None:
    data = zlib.compress(table.encode() + tree(3))
    stream = b"<< /ObjStm /First %d >>\nstream\n%s\nendstream" % (first, data)
    assert pages_of_pdf(encoded(pdf(stream))) in {None, 3}


def test_a_pdf_file_is_known_by_its_signature_too() -> None:
    for kind in (None, "text/plain", "application/octet-stream", "APPLICATION/PDF"):
        assert tokens_of_file(encoded(document(2)), kind, tokens_per_page=100, bytes_per_token=4) == 200


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 1000, 100_001])
@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/vnd.ms-excel", None, ""])
def test_other_documents_go_by_their_bytes(size: int, kind: str | None) -> None:
    assert tokens_of_file(encoded(b"x" * size), kind, tokens_per_page=1, bytes_per_token=1) == size
    assert tokens_of_file(encoded(b"x" * size), kind, tokens_per_page=1, bytes_per_token=4) == size // 4


@pytest.mark.parametrize("kind", ["image/png", "audio/mpeg", "video/mp4", "Video/MP4"])
def test_bytes_that_say_nothing_about_the_cost_are_not_counted(kind: str) -> None:
    assert tokens_of_file(encoded(bytes(10_000_000)), kind, tokens_per_page=1, bytes_per_token=4) is None


@BOTH_COUNTERS
def test_files_are_measured_wherever_they_stand(counter: Any) -> None:
    report = FileContent(base64_data=encoded(document(12)), mime_type="application/pdf", filename="x")
    table = FileContent(base64_data=encoded(b"a,b\n" * 1000), mime_type="text/csv", filename="x")
    sound = FileContent(base64_data=encoded(png(9, 9)), mime_type="audio/wav", filename="x")
    for message in (
        ChatMessage.from_user(content_parts=["See:", report, table, sound]),
        answer(ToolCall("look", {}), [TextContent("x"), report, table, sound]),
    ):
        names = counter(tokens_per_file=0).count([message])
        assert counter().count([message]) == names + 3000
        assert counter(tokens_per_page=2000).count([message]) == names + 24_000 + 1000 + 1000
        assert counter(tokens_per_page=0, tokens_per_file=7).count([message]) == names + 1000 + 7


def test_bytes_become_tokens_at_the_ratio_of_the_counter() -> None:
    table = FileContent(base64_data=encoded(b"a,b\n" * 1000), mime_type="text/csv", filename="x")
    message = ChatMessage.from_user(content_parts=[table])
    names = ApproximateTokenCounter(2, tokens_per_file=0).count([message])
    assert ApproximateTokenCounter(2, tokens_per_page=1).count([message]) == names + 2000


class Threaded(ApproximateTokenCounter):
    """Remembers in which threads it counted."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.threads: list[threading.Thread] = []

    def count(self, *args: Any, **kwargs: Any) -> int:
        self.threads.append(threading.current_thread())
        return super().count(*args, **kwargs)


@pytest.mark.anyio
async def test_large_files_are_measured_off_the_event_loop() -> None:
    large = FileContent(base64_data=encoded(TWELVE["tree at the end of a large file"]), mime_type="application/pdf")
    messages = [ChatMessage.from_user(content_parts=[large])]
    counter = Threaded(tokens_per_page=258)
    assert await counter.count_async(messages) > 12 * 258
    assert await RunTokenCounter(counter).count_async([*messages, *messages]) > 12 * 258
    assert threading.current_thread() not in counter.threads
    flat = Threaded()
    assert await flat.count_async(messages) > 1000
    assert flat.threads == [threading.current_thread()]


@pytest.mark.parametrize("limit", [1000, 100_000])
def test_a_large_file_is_noticed_wherever_it_stands(limit: int) -> None:
    file = FileContent(base64_data="A" * 2000, mime_type="text/plain", filename="x")
    for message in (
        ChatMessage.from_user(content_parts=[file]),
        answer(ToolCall("look", {}), [TextContent("x"), file]),
    ):
        assert is_short([message], limit) is (limit == 100_000)
