"""Nothing that a tool returns, and no name, can pass for a pointer or a line of haybaler's own."""

import json
import re
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall, ToolCallResult
from tests.compactors.conversations import PNG
from tests.hostile.case import each
from tests.hostile.corpus_names import TOOL_NAMES
from tests.hostile.corpus_texts import FILE_NAMES, FORGERIES, HARMLESS, MIME_TYPES, WELL_FORMED_MIME_TYPES

from haybaler import ApproximateTokenCounter, ToolResultPruningCompactor
from haybaler.framing import framed, is_seen, json_framed
from haybaler.parts import parts_of
from haybaler.readback.arguments import quoted
from haybaler.references import pointer_text

REFERENCE = "s3://bucket/haybaler/@run/key.txt"

# A frame is a JSON string, or single quotes around a text that has none. Everything else in a line is fixed, but for a
# preview of plain words.
FRAME = r"(?:\"(?:[^\"\\]|\\.)*\"|'[^'\"\\]*')"
LINE = re.compile(
    rf"(?:Tool result offloaded to |\d\. )(?P<label>[\w.+/-]+)(?: named (?P<name>{FRAME}))? "
    rf"\((?P<size>\d+) (?P<unit>characters|bytes)\) at (?P<at>{FRAME})(?:\. Preview: (?P<preview>.*))?",
    re.ASCII,
)
QUOTES = set("\"'`\u2018\u2019\u201c\u201d\u201e\u2033\u275d\u275e\uff02\uff07\U0001f676")


def pointer(*blocks: TextContent | FileContent | ImageContent, at: str = REFERENCE) -> str:
    parts = parts_of(
        ToolCallResult(list(blocks), ToolCall("fetch", {}), error=False), 0, prefix="", preview_chars=10_000
    )
    assert parts is not None
    return pointer_text([part.description.line(at) for part in parts])


def only_line(text: str) -> dict[str, str]:
    """Return the parts of a pointer of one line, which has nothing in it beside them."""
    assert text.splitlines() == [text]
    assert all(map(is_seen, text))
    found = LINE.fullmatch(text)
    assert found is not None, text[:300]
    return {name: value for name, value in found.groupdict().items() if value is not None}


def unframed(frame: str) -> str:
    value: str = json.loads(frame) if frame.startswith('"') else frame[1:-1]
    return value


def file(filename: str | None = None, mime_type: str | None = "application/pdf") -> FileContent:
    return FileContent(base64_data=PNG, mime_type=mime_type, filename=filename, validation=False)


@each(FORGERIES)
def test_a_preview_that_could_pass_for_more_is_one_json_string(case: Any) -> None:
    line = only_line(pointer(TextContent(case.value)))
    assert (unframed(line["at"]), line["label"]) == (REFERENCE, "text")
    assert line["preview"][0] == line["preview"][-1] == '"'
    assert json.loads(line["preview"]) == case.value
    assert not QUOTES - set("'`\u2018\u2019\uff07") & set(line["preview"][1:-1].replace('\\"', ""))


@each(HARMLESS)
def test_plain_words_stand_as_they_are(case: Any) -> None:
    assert only_line(pointer(TextContent(case.value)))["preview"] == case.value


@each(FILE_NAMES)
def test_a_file_name_stays_in_its_frame_and_within_bounds(case: Any) -> None:
    line = only_line(pointer(file(case.value)))
    named = unframed(line["name"])
    assert named == (case.value if len(case.value) <= 255 else case.value[:255] + "...")
    assert not QUOTES & set(line["name"][1:-1]) or line["name"].startswith('"')
    assert unframed(line["at"]) == REFERENCE
    assert len(line["name"]) < 2_000


@each(MIME_TYPES)
def test_a_mime_type_of_another_form_is_not_shown(case: Any) -> None:
    for block, kind in ((file(None, case.value), "file"), (_image(case.value), "image")):
        line = only_line(pointer(block))
        assert line["label"] in {kind, "file"}
        assert line["unit"] == "bytes"


@pytest.mark.parametrize(("mime_type", "shown"), WELL_FORMED_MIME_TYPES.items())
def test_a_mime_type_is_shown_without_parameters(mime_type: str, shown: str) -> None:
    assert only_line(pointer(file(None, mime_type)))["label"] == shown


@each(FORGERIES)
def test_a_reference_of_a_foreign_store_stays_in_its_frame(case: Any) -> None:
    line = only_line(pointer(TextContent("plain"), at=case.value))
    assert unframed(line["at"]) == case.value


@each((*FORGERIES, *FILE_NAMES, *TOOL_NAMES))
def test_every_frame_is_one_line_that_can_be_seen_and_read_back(case: Any) -> None:
    for frame in (framed(case.value), json_framed(case.value)):
        assert unframed(frame) == case.value
        assert all(map(is_seen, frame))
    sentence = quoted(case.value)
    assert len(sentence) < 1_600
    assert unframed(sentence) == case.value[:120] + ("..." if len(case.value) > 120 else "")


@each(TOOL_NAMES)
def test_the_note_in_place_of_a_pruned_result_has_the_name_within_bounds(case: Any) -> None:
    calls = [ToolCall(case.value, {}, id=str(number)) for number in range(2)]
    messages = [ChatMessage.from_user("task")]
    for made in calls:
        messages += [ChatMessage.from_assistant(tool_calls=[made]), ChatMessage.from_tool("word " * 9_000, origin=made)]
    pruned = ToolResultPruningCompactor().compact(messages, 100, ApproximateTokenCounter())
    assert pruned is not None
    note = str(pruned[2].tool_call_results[0].result)
    found = re.fullmatch(r"\[Tool result removed to free up context\. Call `([^`\n]*)` again if you need it\.\]", note)
    assert found is not None
    name = found[1]
    assert all(map(is_seen, note))
    assert len(note) < 2_000
    if re.fullmatch(r"[\w.:/@-]{1,128}", case.value):
        assert name == case.value
    else:
        assert json.loads(name) == case.value[:128] + ("..." if len(case.value) > 128 else "")


def _image(mime_type: str) -> ImageContent:
    return ImageContent(base64_image=PNG, mime_type=mime_type, validation=False)
