"""What is large gets smaller, comes back as it was, and never takes more memory than is allowed."""

import importlib
import os
import struct
import zlib
from typing import Any

import pytest
from tests.stores.examples import AsyncOnlyStore
from tests.stores.wrappers.around import noting_threads
from tests.stores.wrappers.conftest import Check

from haybaler import CompressedStore, CorruptEntryError, InMemoryToolResultStore, StoreEntry
from haybaler.errors import ConfigurationError, EntryTooLargeError, StoreConfigurationError
from haybaler.stores.wrappers import compression
from haybaler.stores.wrappers.compression import ZLIB, ZSTD, algorithm_called, decompressed
from haybaler.testing.access import ASYNC, Access, run_law

zstd: Any = compression._zstd()
MIB = 1024 * 1024
TEXT = "Revenue grew by 4 % in every region. " * 1_000
ALGORITHMS = {"zstd": b"s", "zlib": b"z"}


def packed(tag: bytes, data: bytes, *, size: int | None = None, kind: bytes = b"b") -> bytes:
    algorithm = {b"s": ZSTD, b"z": ZLIB}[tag]
    length = len(data) if size is None else size
    return b"hb:z1:" + tag + struct.pack(">cQ", kind, length) + b"".join(algorithm.compressed([data], 3))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    "content", [TEXT, TEXT.encode(), "é中😀" * 5_000, b"\x00" * MIB], ids=["ascii", "bytes", "wide", "zeros"]
)
def test_what_is_large_takes_less_room_and_comes_back_as_it_was(
    check: Check, algorithm: str, content: str | bytes
) -> None:
    inner = InMemoryToolResultStore()

    async def law(access: Access) -> None:
        reference = await access.write("key", content)
        stored = inner.read(reference)
        assert isinstance(stored, bytes)
        assert stored[6:7] == ALGORITHMS[algorithm]
        assert len(stored) < len(content) / 10
        read = await access.read(reference)
        assert (type(read), read) == (type(content), content)

    check(CompressedStore(inner, algorithm=algorithm), law)


@pytest.mark.parametrize(
    "content", ["short", "x" * 1_023, b"short", os.urandom(10_000)], ids=["", "almost", "bytes", "random"]
)
def test_what_is_small_or_would_not_get_smaller_is_left_as_it_is(check: Check, content: str | bytes) -> None:
    inner = InMemoryToolResultStore()

    async def law(access: Access) -> None:
        assert inner.read(await access.write("key", content)) == content
        assert await access.read(inner.reference("key")) == content

    check(CompressedStore(inner), law)


@pytest.mark.parametrize(
    "content", ["hb:z1:", "hb:z1:s", "hb:z1;", b"hb:z1:", b"hb:z1:=b", packed(b"s", b"inner" * 100)], ids=repr
)
def test_content_that_looks_compressed_is_content(check: Check, content: str | bytes) -> None:
    async def law(access: Access) -> None:
        read = await access.read(await access.write("key", content))
        assert (type(read), read) == (type(content), content)

    check(CompressedStore(InMemoryToolResultStore()), law)


def test_entries_of_either_algorithm_are_read_whichever_writes(check: Check) -> None:
    inner = InMemoryToolResultStore()
    stores = [CompressedStore(inner, algorithm=algorithm) for algorithm in ALGORITHMS]
    references = [store.write(key=str(number), content=TEXT) for number, store in enumerate(stores)]
    references.append(inner.write(key="plain", content=TEXT))

    async def law(access: Access) -> None:
        for store in stores:
            for reference in references:
                assert await access.to(store).read(reference) == TEXT

    check(stores[0], law)


def test_a_page_is_that_of_the_content(check: Check) -> None:
    store = CompressedStore(InMemoryToolResultStore())

    async def law(access: Access) -> None:
        reference = await access.write("key", TEXT)
        for offset in (0, 5, -7, len(TEXT), -len(TEXT) - 1):
            page = await access.call(
                access.colour.reads,
                lambda: store.read_page(reference, offset=offset, limit=12),  # noqa: B023 - called at once
                lambda: store.read_page_async(reference, offset=offset, limit=12),  # noqa: B023
            )
            start = min(max(offset + len(TEXT), 0) if offset < 0 else offset, len(TEXT))
            assert (page.content, page.offset, page.total) == (TEXT[start : start + 12], start, len(TEXT))

    check(store, law)


@pytest.mark.parametrize("tag", ALGORITHMS.values())
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda record: record[:-1], id="cut off"),
        pytest.param(lambda record: record[:16], id="nothing left"),
        pytest.param(lambda record: record[:12], id="no header"),
        pytest.param(lambda record: record[:6], id="only the mark"),
        pytest.param(lambda record: record + b"x", id="something behind"),
        pytest.param(lambda record: record + record[16:], id="another behind"),
        pytest.param(lambda record: record[:6] + b"?" + record[7:], id="an unknown algorithm"),
        pytest.param(lambda record: record[:7] + b"?" + record[8:], id="neither text nor bytes"),
        pytest.param(lambda record: record[:7] + b"t" + record[8:], id="no UTF-8"),
        pytest.param(lambda record: record[:40] + bytes([record[40] ^ 4]) + record[41:], id="a bit"),
        pytest.param(lambda record: record[:8] + struct.pack(">Q", 99) + record[16:], id="larger than it says"),
        pytest.param(lambda record: record[:8] + struct.pack(">Q", 10_000) + record[16:], id="smaller than it says"),
    ],
)
def test_damage_is_damage(check: Check, tag: bytes, spoil: Any) -> None:
    inner = InMemoryToolResultStore()
    record = packed(tag, bytes(range(128, 256)) * 40)
    reference = inner.write(key="key", content=spoil(record))

    async def law(access: Access) -> None:
        with pytest.raises(CorruptEntryError):
            await access.read(reference)

    check(CompressedStore(inner), law)


@pytest.mark.parametrize("tag", ALGORITHMS.values())
def test_a_bomb_is_damage_and_never_in_memory(monkeypatch: pytest.MonkeyPatch, tag: bytes) -> None:
    bomb = b"".join({b"s": ZSTD, b"z": ZLIB}[tag].compressed([b"\x00" * 64 * MIB], 9))
    assert len(bomb) < 100_000
    made = 0
    pieces = {b"s": ZSTD, b"z": ZLIB}[tag].pieces

    def counted(data: bytes | memoryview) -> Any:
        nonlocal made
        for piece in pieces(data):
            made += len(piece)
            yield piece

    spied = compression.Algorithm("spied", tag, 1, 1, zlib.compressobj, counted)
    monkeypatch.setattr(compression, {b"s": "ZSTD", b"z": "ZLIB"}[tag], spied)
    with pytest.raises(CorruptEntryError):
        list(decompressed(tag, bomb, 1_000))
    assert made <= MIB


def test_a_window_that_takes_more_memory_than_ours_do_is_refused() -> None:
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
    }
    compressor = zstd.ZstdCompressor(options=options)
    frame = compressor.compress(b"x" * 1_000) + compressor.flush()  # without its size, so that the window counts
    with pytest.raises(CorruptEntryError):
        list(decompressed(b"s", frame, 1_000))


@pytest.mark.parametrize("level", [1, 3, 19])
def test_what_any_level_compresses_can_be_read(level: int) -> None:
    data = os.urandom(1_000) * 12_000  # 12 MB, more than any window
    frame = b"".join(ZSTD.compressed([data[: 5 * MIB], data[5 * MIB :]], level))
    assert b"".join(decompressed(b"s", frame, len(data))) == data


def test_what_is_larger_than_allowed_is_neither_written_nor_read(check: Check) -> None:
    inner = InMemoryToolResultStore()
    store = CompressedStore(inner, max_bytes=2_000)
    generous = CompressedStore(inner)

    async def law(access: Access) -> None:
        outcomes = await access.write_many([StoreEntry("a", "x" * 2_000), StoreEntry("b", "é" * 1_001)])
        assert outcomes[0] == inner.reference("a")
        assert isinstance(outcomes[1], EntryTooLargeError)
        reference = await access.to(generous).write("b", "é" * 1_001)
        with pytest.raises(EntryTooLargeError):
            await access.read(reference)

    check(store, law)


def test_a_store_that_only_holds_text_holds_compressed_text() -> None:
    inner = AsyncOnlyStore()
    store = CompressedStore(inner)
    assert not store.supports_binary_content

    async def law(access: Access) -> None:
        reference = await access.write("key", TEXT)
        stored = inner.server.entries["key"]
        assert stored.isascii()
        assert len(stored) < len(TEXT) / 10
        assert await access.read(reference) == TEXT
        assert stored.startswith("hb:z1;")
        for content in ("hb:z1:", "hb:z1:s", "hb:z1;", "hb:z1;?!", "hb:z1;cw=="):
            assert await access.read(await access.write("key", content)) == content
        inner.server.entries["key"] = "hb:z1;no base64"
        with pytest.raises(CorruptEntryError):
            await access.read(reference)

    run_law(law, store, ASYNC)


def test_long_contents_are_worked_on_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    async def law(access: Access) -> None:
        for content in ("short", "x" * 2_000):
            await access.read(await access.write("key", content))
        assert set(threads) == {"MainThread"}
        threads.clear()
        # The second one is a few bytes in the store: its size is what it will be.
        for content in (TEXT, "x" * MIB):
            await access.read(await access.write("key", content))
        assert len(threads) == 4
        assert "MainThread" not in threads

    run_law(law, noting_threads(CompressedStore, threads)(InMemoryToolResultStore()), ASYNC)


def test_a_large_batch_is_encoded_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    class Spied(CompressedStore):
        def _all_encoded(self, entries: Any, names: Any) -> Any:
            sizes.append(len(entries))
            return super()._all_encoded(entries, names)

    store = Spied(InMemoryToolResultStore())
    entries = [StoreEntry(str(number), b"\x00" * (9 * MIB)) for number in range(7)]
    assert store.write_many(entries) == [store.reference(entry.key) for entry in entries]
    assert sizes == [3, 3, 1]


def test_without_zstd_zlib_is_used_and_entries_of_zstd_say_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = InMemoryToolResultStore()
    reference = CompressedStore(inner, algorithm="zstd").write(key="key", content=TEXT)

    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert algorithm_called(None) is ZLIB
    store = CompressedStore(inner)
    assert store.read(store.write(key="other", content=TEXT)) == TEXT
    with pytest.raises(StoreConfigurationError, match=r"haybaler\[zstd\]"):
        store.read(reference)
    with pytest.raises(ConfigurationError, match=r"haybaler\[zstd\]"):
        CompressedStore(inner, algorithm="zstd")


@pytest.mark.parametrize(
    "settings",
    [
        {"algorithm": "lz4"},
        {"level": 0},
        {"level": 20},
        {"algorithm": "zlib", "level": 10},
        {"min_bytes": -1},
        {"max_bytes": 0},
    ],
    ids=str,
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=list(settings)[-1]):
        CompressedStore(InMemoryToolResultStore(), **settings)
