"""
Whatever is parsed ends in a value that means what it says, or in the right error; and never in another content.

Each property takes no fixture, so that `python -m tests.fuzz` can feed it for as long as one likes.
"""

import json
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall, ToolCallResult
from haystack.utils import Secret
from hypothesis import given
from hypothesis import strategies as st
from tests.hostile.corpus_readback import ARGUMENTS
from tests.hostile.corpus_texts import FILE_NAMES, FORGERIES, MIME_TYPES
from tests.hostile.corpus_urls import URLS
from tests.hostile.test_framing import only_line, unframed
from tests.tools.calling import find, read

from haybaler import CompressedStore, EncryptedStore, InMemoryToolResultStore, store_from_url
from haybaler.compactors.notes import Note, removed_before, without_note
from haybaler.counters.files import tokens_of_file
from haybaler.counters.images import size_of_image
from haybaler.errors import (
    ConfigurationError,
    CorruptEntryError,
    EntryTooLargeError,
    InvalidReferenceError,
    StoreConfigurationError,
)
from haybaler.framing import framed, is_seen, json_framed, name_in_words
from haybaler.parts import parts_of
from haybaler.references import compaction_mark, is_offloaded, offloaded_references, pointer_text
from haybaler.stores.names import is_name
from haybaler.stores.page_scan import PageScan
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_filesystem.seals import Seal
from haybaler_redis import RedisToolResultStore
from haybaler_redis.records import HEADER_BYTES, Header, record_in_pieces, records
from haybaler_s3 import S3ToolResultStore
from haybaler_s3.records import Record, encoded

SPECIAL = "'\"\\`\n\r\t\x00\x1b\u2028\u202e\u200b\u3164\ud800\udfff\U000e0101\u201d\uff02 ./@:%?#&={}[]<>|~*_-+0a"
texts = st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from(SPECIAL)), max_size=60)
contents = st.one_of(texts, st.binary(max_size=200), texts.map(lambda text: text * 50))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def changed(draw: Any, original: Any, pieces: Any) -> Any:
    """Return a text or bytes in which a part has been replaced."""
    whole = draw(original) if isinstance(original, st.SearchStrategy) else original
    start = draw(st.integers(0, len(whole)))
    end = draw(st.integers(start, min(start + 4, len(whole))))
    return whole[:start] + draw(pieces) + whole[end:]


KEYS = [Secret.from_token(EncryptedStore.generate_key())]

STORES = [
    store.scoped("run/step")
    for store in (
        InMemoryToolResultStore(),
        FileSystemToolResultStore("/srv/results"),
        FileSystemToolResultStore("/srv/results", references="relative"),
        RedisToolResultStore("redis://host"),
        S3ToolResultStore("bucket"),
    )
]


@given(data=st.data(), store=st.sampled_from(STORES), key=texts)
def test_a_reference_is_one_of_the_scope_or_refused(data: st.DataObject, store: Any, key: str) -> None:
    own = store.reference(key)
    reference = data.draw(st.one_of(texts, changed(own, texts), values))
    try:
        path = store._path(reference)
    except InvalidReferenceError:
        assert reference != own
        return
    name = path.removeprefix(store._scope_path)
    assert (reference, path) == (store._prefix + name, store._scope_path + name)
    assert is_name(name)


@given(data=st.data(), key=st.binary(max_size=20))
def test_a_redis_header_is_what_was_packed_or_damage(data: st.DataObject, key: bytes) -> None:
    genuine = b"".join(records([(key, "content")])[0][1])
    record = data.draw(st.one_of(st.binary(max_size=80), changed(genuine, st.binary(max_size=4))))
    try:
        header = Header.parse(record, key)
    except CorruptEntryError:
        return
    assert header.pack() == record[:HEADER_BYTES]
    assert header.length <= header.size <= 4 * header.length


def untimed(record: bytes) -> bytes:
    """Leave out the time of writing, which ends the header."""
    return record[: HEADER_BYTES - 8] + record[HEADER_BYTES:]


@given(data=st.data(), key=st.binary(max_size=20), content=contents)
def test_a_redis_record_gives_its_content_or_damage(data: st.DataObject, key: bytes, content: str | bytes) -> None:
    whole = b"".join(record_in_pieces(key, content))
    assert untimed(whole) == untimed(b"".join(records([(key, content)])[0][1]))
    cut = data.draw(st.integers(HEADER_BYTES, len(whole)))
    assert Header.parse(whole, key).content([whole[HEADER_BYTES:cut], whole[cut:]]) == content
    record = data.draw(changed(whole, st.binary(max_size=4)))
    try:
        found = Header.parse(record, key).content([record[HEADER_BYTES:]])
    except CorruptEntryError:
        assert record != whole
        return
    assert (type(found), found) == (type(content), content)


@given(data=st.data(), content=contents)
def test_s3_metadata_are_what_was_written_or_damage(data: st.DataObject, content: str | bytes) -> None:
    genuine = Record.of(content)
    value = data.draw(st.one_of(st.just(genuine.text), texts, changed(genuine.text, st.text("0123456789abft._ +-x"))))
    name = data.draw(st.sampled_from(["haybaler", "Haybaler", "HAYBALER", "other"]))
    try:
        record = Record.parse({"x": genuine.text, name: value})
        found = record.content(
            [data.draw(st.one_of(st.just(encoded(content)), changed(encoded(content), st.binary())))]
        )
    except CorruptEntryError:
        return
    assert record.text == value
    assert found == (content if record.kind == genuine.kind else encoded(content)) or value != genuine.text


@given(data=st.data(), name=st.sampled_from(["key", "key.txt", "a.t.1.1.00.0"]), content=contents)
def test_the_name_of_a_seal_is_what_was_sealed_or_none(data: st.DataObject, name: str, content: str | bytes) -> None:
    genuine = Seal.of(name, content, encoded(content), data.draw(st.integers(0, 2**64)))
    assert Seal.parse(genuine.file_name) == genuine
    file_name = data.draw(st.one_of(texts, changed(genuine.file_name, st.text("0123456789abft._ +-x\u0663"))))
    seal = Seal.parse(file_name)
    if seal is not None:
        assert seal.file_name == file_name
        assert seal.length <= seal.size <= 4 * seal.length


@given(data=st.data(), content=contents)
def test_a_file_that_was_changed_gives_its_content_or_damage(data: st.DataObject, content: str | bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="haybaler-") as folder, FileSystemToolResultStore(folder) as store:
        reference = store.write(key="key", content=content)
        Path(folder, "key").write_bytes(data.draw(changed(encoded(content), st.binary(max_size=4))))
        try:
            found = store.read(reference)
        except CorruptEntryError:
            return
        assert (type(found), found) == (type(content), content)


@given(data=st.data(), content=contents)
def test_what_a_wrapper_has_stored_gives_its_content_or_damage(data: st.DataObject, content: str | bytes) -> None:
    inner = InMemoryToolResultStore()
    make = data.draw(st.sampled_from([_compressed, _encrypted]))
    store = make(inner)
    reference = store.write(key="key", content=content)
    stored = inner.read(reference)
    assert store.read(reference) == content
    pieces = st.text(max_size=4) if isinstance(stored, str) else st.binary(max_size=4)
    inner.write(key="key", content=data.draw(changed(stored, pieces)))
    try:
        found = store.read(reference)
    except (CorruptEntryError, EntryTooLargeError, StoreConfigurationError):
        assert inner.read(reference) != stored
        return
    # What is not compressed has no checksum of its own; a backend has.
    assert found == content or make is _compressed


def _compressed(inner: InMemoryToolResultStore) -> CompressedStore:
    return CompressedStore(inner, min_bytes=1, max_bytes=10_000)


def _encrypted(inner: InMemoryToolResultStore) -> EncryptedStore:
    return EncryptedStore(inner, keys=KEYS)


@given(
    data=st.binary(max_size=300),
    binary=st.booleans(),
    size=st.integers(0, 400),
    length=st.integers(0, 400),
    offset=st.integers(-500, 500),
    limit=st.integers(-1, 500),
)
def test_a_page_is_looked_for_within_the_sizes_and_comes_to_an_end(
    data: bytes, binary: bool, size: int, length: int, offset: int, limit: int
) -> None:
    try:
        scan = PageScan(binary=binary, size=size, length=length, offset=offset, limit=limit)
        for _ in range(3):
            if scan.wanted is None:
                break
            start, count = scan.wanted
            assert 0 <= start <= start + count <= size
            scan.feed(data[start : start + count])
        else:
            assert scan.wanted is None
    except CorruptEntryError:
        return
    page = scan.page()
    assert (0 <= page.offset <= page.total, page.total, len(page.content) <= max(limit, 0)) == (True, length, True)


@given(
    preview=st.one_of(texts, st.sampled_from([case.value for case in FORGERIES])),
    filename=st.one_of(texts, st.sampled_from([case.value for case in FILE_NAMES])),
    mime_type=st.one_of(texts, st.sampled_from([case.value for case in MIME_TYPES])),
    reference=texts,
)
def test_a_pointer_has_nothing_in_it_but_its_parts(preview: str, filename: str, mime_type: str, reference: str) -> None:
    blocks: list[TextContent | ImageContent | FileContent] = [
        TextContent(preview),
        FileContent(base64_data="QUJD", mime_type=mime_type, filename=filename, validation=False),
        ImageContent(base64_image="QUJD", mime_type=mime_type, validation=False),
    ]
    parts = parts_of(ToolCallResult(blocks, ToolCall("x", {}), error=False), 0, prefix="", preview_chars=1_000)
    assert parts is not None
    text = pointer_text([part.description.line(reference) for part in parts])
    first, *lines = text.split("\n")
    assert first == "Tool result offloaded to 3 files:"
    found = [only_line(line) for line in lines]
    assert [unframed(line["at"]) for line in found] == [reference] * 3
    assert [line["unit"] for line in found] == ["characters", "bytes", "bytes"]
    shown = found[0]["preview"]
    assert (json.loads(shown) if shown.startswith('"') else shown) == preview


@given(text=texts)
def test_a_frame_gives_back_what_is_in_it(text: str) -> None:
    for frame in (framed(text), json_framed(text)):
        assert unframed(frame) == text
        assert all(map(is_seen, frame))
    name = name_in_words(text)
    assert all(map(is_seen, name))
    assert "`" not in name
    assert len(name) < 2_000


@given(
    meta=st.dictionaries(
        st.sampled_from(["tool_result_offloaded", "context_compaction", "context_compaction_merged_note"]), values
    ),
    text=texts,
)
def test_marks_of_any_form_are_read_as_marks_or_as_none(meta: dict[str, Any], text: str) -> None:
    message = ChatMessage.from_user(text or "x", meta=meta)
    assert all(isinstance(reference, str) for reference in offloaded_references(message))
    assert isinstance(is_offloaded(message), bool)
    assert isinstance(compaction_mark(message), (dict, type(None)))
    assert isinstance(compaction_mark(message, "sliding_window"), (dict, type(None)))
    assert removed_before(message) >= 0
    plain = without_note(message)
    assert (text or "x").endswith("".join(plain.texts))
    merged = Note("note", 3, 4).merged_into(plain)
    assert (without_note(merged).texts, removed_before(merged)) == (plain.texts, 3)


urls = st.one_of(
    texts,
    changed(st.sampled_from([case.value for case in URLS if len(case.value) < 200]), texts),
    st.builds(
        "{}://{}{}?{}={}".format,
        st.sampled_from(["file", "memory", "redis", "rediss", "unix", "s3"]),
        st.one_of(texts, st.sampled_from(["", "host:1", "user:password@[::1]", "bucket"])),
        st.one_of(texts, st.sampled_from(["", "/", "/0", "/path"])),
        st.sampled_from(["ttl", "prefix", "cluster", "references", "file_mode", "attempts", "endpoint_url", "x"]),
        st.one_of(texts, st.sampled_from(["1", "true", "1e9", "%41", "nan"])),
    ),
)


@given(url=urls)
def test_a_url_makes_a_store_or_is_refused(url: str) -> None:
    try:
        store: Any = store_from_url(url)
    except ConfigurationError as error:
        told = str(error)
    else:
        told = store.reference("key")
    assert told.isprintable()


@given(
    arguments=st.one_of(
        st.dictionaries(st.sampled_from(["offset", "limit", "pattern", "regex", "context", "max_matches"]), values),
        st.sampled_from([case.value for case in ARGUMENTS]),
    ),
    content=contents,
)
def test_the_tools_answer_whatever_they_are_given(arguments: dict[str, Any], content: str | bytes) -> None:
    store = InMemoryToolResultStore()
    reference = store.write(key="key", content=content)
    assert isinstance(read(store, **{"reference": reference, **arguments}), (str, list))
    assert isinstance(find(store, **{"reference": reference, "pattern": "x", **arguments}), str)


@given(
    data=st.one_of(
        st.binary(max_size=400),
        changed(
            b"%PDF-1.7 1 0 obj << /Type /Pages /Count 3 /ObjStm /First 9 >> stream\n endobj", st.binary(max_size=9)
        ),
        changed(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01", st.binary(max_size=9)),
    ),
    payload=texts,
)
def test_files_and_images_of_any_bytes_are_sized_or_not(data: bytes, payload: str) -> None:
    for encoding in (b64encode(data).decode(), payload):
        for kind in ("application/pdf", "text/plain", None):
            size = tokens_of_file(encoding, kind, tokens_per_page=258, bytes_per_token=4.0)
            assert size is None or size >= 0
        pixels = size_of_image(encoding)
        assert pixels is None or min(pixels) > 0
