"""Results of tools with hostile names, ids and contents, through the hook, into each backend and back."""

import asyncio
import logging
import re
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, FileContent, TextContent, ToolCall
from tests.compactors.conversations import PNG
from tests.hooks.agents import agent_state, conversation
from tests.hostile.corpus_names import CALL_IDS, TOOL_NAMES
from tests.hostile.corpus_texts import FILE_NAMES, FORGERIES, MIME_TYPES
from tests.hostile.test_framing import only_line, unframed
from tests.services.places import Place
from tests.tools.calling import read

from haybaler import AlwaysOffload, ToolResultOffloadHook
from haybaler.references import offloaded_references


def step(results: list[tuple[str, str | None, Any]]) -> list[ChatMessage]:
    """Return a conversation with one step: for each result the name of its tool, the id of its call and its content."""
    calls = [ToolCall(name, {}, id=call_id) for name, call_id, _ in results]
    answers = [ChatMessage.from_tool(result, origin=made) for made, (*_, result) in zip(calls, results, strict=True)]
    return [ChatMessage.from_user("task"), ChatMessage.from_assistant(tool_calls=calls), *answers]


def test_every_result_goes_into_its_scope_and_its_pointer_says_nothing_else(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [case.value for case in FORGERIES]
    names = [(case.value, None) for case in TOOL_NAMES] + [("fetch", case.value) for case in CALL_IDS]
    results = [(*name, texts[n % len(texts)] + "\n" + "x" * 3_000) for n, name in enumerate(names)]
    run = place.store.scoped("run")
    state = agent_state(step(results))
    caplog.set_level(logging.DEBUG, "haybaler")

    async def move() -> list[Any]:
        await ToolResultOffloadHook(run, {"*": AlwaysOffload()}).run_async(state)
        references = [r for message in conversation(state) for r in offloaded_references(message)]
        read = [await run.read_async(reference) for reference in references]
        assert await place.outside(run) == []
        await place.store.close_async()
        return read

    assert asyncio.run(move()) == [text for *_, text in results]
    answers = conversation(state)[2:]
    for message, (name, call_id, text) in zip(answers, results, strict=True):
        (result,) = message.tool_call_results
        assert (result.origin.tool_name, result.origin.id) == (name, call_id)
        line = only_line(str(result.result))
        (reference,) = offloaded_references(message)
        assert unframed(line["at"]) == reference
        assert (line["label"], line["size"]) == ("text", str(len(text)))
        assert read(run, reference=reference).startswith(f"[characters 0-{len(text)} of {len(text)}; end]\n")
    assert not any(re.search(r"[^ -~]", record.getMessage()) for record in caplog.records)


def test_every_file_goes_into_its_scope_under_a_name_of_bounded_length(place: Place) -> None:
    files = [(case.value, "application/pdf") for case in FILE_NAMES] + [("x.pdf", case.value) for case in MIME_TYPES]
    parts = [
        [
            TextContent("word " * 400_000 if len(name) > 100_000 else "word " * 9_000),
            FileContent(base64_data=PNG, mime_type=mime_type, filename=name, validation=False),
        ]
        for name, mime_type in files
    ]
    run = place.store.scoped("run")
    state = agent_state(step([("fetch", str(n), part) for n, part in enumerate(parts)]))
    ToolResultOffloadHook(run, {"*": AlwaysOffload()}).run(state)
    for message in conversation(state)[2:]:
        (result,) = message.tool_call_results
        first, *lines = str(result.result).splitlines()
        assert first == "Tool result offloaded to 2 files:"
        assert len(str(result.result)) < 4_000
        references = offloaded_references(message)
        assert [unframed(only_line(line)["at"]) for line in lines] == references
        assert all(re.fullmatch(r"[a-z0-9_.-]+", reference.rpartition("/")[2]) for reference in references)
    assert asyncio.run(place.outside(run)) == []
