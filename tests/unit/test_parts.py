"""A tool result taken apart."""

import base64
from typing import Any

import pytest
from haystack.dataclasses import FileContent, ImageContent, TextContent, ToolCall, ToolCallResult
from hypothesis import given
from hypothesis import strategies as st
from tests.compactors.conversations import PNG

from haybaler.parts import is_empty, is_text, parts_of, payload_of

CALL = ToolCall("fetch", {})
IMAGE = ImageContent(base64_image=PNG, mime_type="image/png")


def result(content: Any) -> ToolCallResult:
    return ToolCallResult(content, CALL, error=False)


def file(filename: str | None, mime_type: str | None, data: str = PNG) -> FileContent:
    return FileContent(base64_data=data, mime_type=mime_type, filename=filename, validation=False)


def test_a_text_stays_as_it_is() -> None:
    parts = parts_of(result("a\r\n\x00\ud800"), 0, prefix="", preview_chars=2)
    assert parts is not None
    assert [(p.content, p.key, p.description.size) for p in parts] == [("a\r\n\x00\ud800", ".txt", 5)]


def test_each_block_becomes_a_part_in_order() -> None:
    parts = parts_of(result([TextContent("x"), IMAGE, TextContent("")]), 0, prefix="", preview_chars=0)
    assert parts is not None
    assert [p.content for p in parts] == ["x", base64.b64decode(PNG), ""]


@pytest.mark.parametrize(
    ("content", "keys"),
    [
        ("x", ["key.txt"]),
        ([TextContent("x")], ["key.txt"]),
        ([TextContent("x"), IMAGE, file("a.csv", None)], ["key_0.txt", "key_1.png", "key_2.csv"]),
    ],
)
def test_the_parts_of_one_result_are_numbered_if_there_are_several(content: Any, keys: list[str]) -> None:
    parts = parts_of(result(content), 3, prefix="key", preview_chars=0)
    assert [(p.key, p.place) for p in parts or []] == [(key, 3) for key in keys]


@given(st.binary())
def test_bytes_come_back_from_base64(data: bytes) -> None:
    parts = parts_of(result([file(None, None, base64.b64encode(data).decode())]), 0, prefix="", preview_chars=0)
    assert parts is not None
    assert parts[0].content == data


@pytest.mark.parametrize("payload", ["no base64!", "abc", "QQ==QQ==", "QUJD\n", "QQ=", "é"])
def test_what_cannot_be_decoded_is_not_taken_apart(payload: str) -> None:
    assert parts_of(result([TextContent("x"), file(None, None, payload)]), 0, prefix="", preview_chars=0) is None


@pytest.mark.parametrize(
    ("filename", "mime_type", "suffix"),
    [
        ("report.PDF", "text/plain", ".pdf"),
        ("archive.tar.gz", None, ".gz"),
        ("report", "application/pdf", ".pdf"),
        (None, "application/pdf", ".pdf"),
        (None, "application/x-unknown", ".bin"),
        (None, None, ".bin"),
        ("../../etc/passwd", None, ".bin"),
        ("x.verylongsuffix", None, ".bin"),
        ("x.p\nf", None, ".bin"),
        ("x.", None, ".bin"),
        (".bashrc", None, ".bashrc"),
    ],
)
def test_the_extension_comes_from_the_name_then_from_the_type(
    filename: str | None, mime_type: str | None, suffix: str
) -> None:
    parts = parts_of(result([file(filename, mime_type)]), 0, prefix="", preview_chars=0)
    assert parts is not None
    assert parts[0].key == suffix


@pytest.mark.parametrize(
    ("content", "empty", "text"),
    [
        ("", True, True),
        ([], True, True),
        ([TextContent("")], True, True),
        (" ", False, True),
        ([TextContent(""), IMAGE], False, False),
        ([TextContent("x")], False, True),
    ],
    ids=repr,
)
def test_empty_and_textual_results(content: Any, empty: bool, text: bool) -> None:
    assert (is_empty(result(content)), is_text(result(content))) == (empty, text)


def test_policies_see_texts_and_payloads() -> None:
    assert payload_of(result("x")) == "x"
    assert payload_of(result([TextContent("x"), IMAGE, file("a", None)])) == f"x{PNG}{PNG}"


def test_what_is_shown_of_a_part_has_nothing_of_its_content() -> None:
    shown = list(map(repr, parts_of(result([TextContent("a secret"), IMAGE]), 0, prefix="", preview_chars=8) or []))
    assert shown == ["Part(str, 8)", f"Part(bytes, {len(base64.b64decode(IMAGE.base64_image))})"]


@pytest.mark.parametrize("preview_chars", [0, 5, 100])
def test_what_the_bound_of_a_pointer_goes_by_is_what_the_pointer_shows(preview_chars: int) -> None:
    blocks = [TextContent("a long text"), IMAGE, file("report.pdf", None), file(None, "text/csv")]
    parts = parts_of(result(blocks), 0, prefix="", preview_chars=preview_chars) or []
    assert len(parts) == 4
    described = [(part.description.preview or part.description.filename or "") for part in parts]
    assert [part.shown for part in parts] == [text.removesuffix("...") for text in described]
