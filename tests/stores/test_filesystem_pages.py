"""Pages and streams of large files: the same as cut from the whole, without reading the whole."""

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybaler.errors import CorruptEntryError, InvalidReferenceError, ReferenceNotFoundError
from haybaler.stores.driver import Content, page_of
from haybaler.stores.page_scan import CHUNK_BYTES, PageScan
from haybaler.stores.protocol import StorePage
from haybaler.workers import run_in_worker
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_filesystem.seals import encoded

LARGE: list[Content] = [
    "ascii\n" * 100_000,
    "aé世🎉\ud800" * 60_000,
    "x" * (CHUNK_BYTES - 1) + "🎉" * 10 + "x" * CHUNK_BYTES,
    bytes(range(256)) * 3_000,
]


def _open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def _scanned(content: Content, offset: int, limit: int) -> tuple[StorePage, int]:
    data = encoded(content)
    scan = PageScan(binary=isinstance(content, bytes), size=len(data), length=len(content), offset=offset, limit=limit)
    fed = 0
    while scan.wanted:
        position, size = scan.wanted
        assert 0 < size <= CHUNK_BYTES
        scan.feed(data[position : position + size])
        fed += size
    return scan.page(), fed


@given(st.text() | st.binary() | st.text(st.characters(codec="ascii")), st.integers(-50, 50), st.integers(-2, 50))
def test_a_page_is_what_a_slice_of_the_whole_is(content: Content, offset: int, limit: int) -> None:
    page, _ = _scanned(content, offset, limit)
    assert page == page_of(content, offset, limit)
    assert type(page.content) is type(content)


@pytest.mark.parametrize("content", LARGE, ids=range(len(LARGE)))
@pytest.mark.parametrize(
    ("offset", "limit"),
    [(0, 10), (0, 10**9), (262_140, 20), (131_072, 262_144), (-20, 10), (-20, 100), (-200_000, 5), (10**9, 1), (5, 0)],
)
def test_a_page_of_a_large_file_is_what_a_slice_of_the_whole_is(content: Content, offset: int, limit: int) -> None:
    page, _ = _scanned(content, offset, limit)
    assert page == page_of(content, offset, limit)


def test_a_page_needs_no_more_bytes_than_it_must() -> None:
    assert _scanned("x" * 10_000_000, 5_000_000, 1000)[1] == 1000
    assert _scanned("é" * 5_000_000, -1000, 500)[1] == 4000
    assert _scanned("é" * 5_000_000, 0, 1000)[1] == 4000


@pytest.mark.parametrize("offset", [0, -2])
@pytest.mark.parametrize("data", [b"", b"\xc3\xa9\xc3", b"\xff\xff\xff\xff", b"\x80\x80\x80\x80"])
def test_a_page_of_other_bytes_than_were_sealed_is_damage(data: bytes, offset: int) -> None:
    scan = PageScan(binary=False, size=4, length=2, offset=offset, limit=2)
    with pytest.raises(CorruptEntryError):
        scan.feed(data)


def test_a_file_that_ends_before_its_characters_do_is_damage() -> None:
    scan = PageScan(binary=False, size=300_000, length=150_001, offset=0, limit=150_001)
    for size in (CHUNK_BYTES, 300_000 - CHUNK_BYTES):
        scan.feed("é".encode() * (size // 2))
    assert scan.wanted == (300_000, 0)
    with pytest.raises(CorruptEntryError):
        scan.feed(b"")


@pytest.mark.anyio
@pytest.mark.parametrize("content", [*LARGE, "small", "", b""], ids=range(len(LARGE) + 3))
async def test_both_colours_read_the_same_pages(tmp_path: Path, content: Content) -> None:
    store = FileSystemToolResultStore(tmp_path)
    reference = await store.write_async(key="key", content=content)
    for offset, limit in ((0, 100), (100_000, 300_000), (-50, 20), (10**9, 1), (0, 0)):
        page = await store.read_page_async(reference, offset=offset, limit=limit)
        assert page == page_of(content, offset, limit)
        assert page == await run_in_worker(partial(store.read_page, reference, offset=offset, limit=limit))


@pytest.mark.anyio
@pytest.mark.parametrize("content", [*LARGE, "small", "", b""], ids=range(len(LARGE) + 3))
async def test_a_stream_gives_the_bytes_of_the_file(tmp_path: Path, content: Content) -> None:
    store = FileSystemToolResultStore(tmp_path)
    reference = await store.write_async(key="key", content=content)
    pieces = [piece async for piece in store.stream_async(reference, chunk_bytes=100_000)]
    assert b"".join(pieces) == encoded(content)
    assert all(len(piece) == 100_000 for piece in pieces[:-1])


@pytest.mark.anyio
async def test_a_stream_ends_with_an_error_where_the_file_is_damaged(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path)
    reference = await store.write_async(key="key", content="x" * 100_000)
    await run_in_worker((tmp_path / "key").write_bytes, b"x" * 99_999 + b"y")
    received = []

    async def receive() -> None:
        async for piece in store.stream_async(reference):
            received.append(piece)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(CorruptEntryError):
        await receive()
    assert len(b"".join(received)) == 100_000


@pytest.mark.anyio
async def test_a_stream_of_nothing_or_of_something_else_is_refused(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path)
    with pytest.raises(ReferenceNotFoundError):
        await anext(store.stream_async(store.reference("key")))
    with pytest.raises(InvalidReferenceError):
        await anext(store.stream_async("/etc/passwd"))


@pytest.mark.anyio
async def test_a_stream_that_is_left_early_closes_its_file(tmp_path: Path) -> None:
    store = FileSystemToolResultStore(tmp_path)
    reference = await store.write_async(key="key", content="x" * 1_000_000)
    before = await run_in_worker(_open_files)
    for _ in range(20):
        stream = store.stream_async(reference)
        await anext(stream)
        await stream.aclose()
    assert await run_in_worker(_open_files) == before
