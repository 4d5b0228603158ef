"""What the compactors of tool results replace, and what they leave."""

import inspect
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall
from tests.compactors.conversations import PNG, Blocks, answer, several
from tests.compactors.subjects import COLOURS, run, size_of

from haybaler import (
    ApproximateTokenCounter,
    InMemoryToolResultStore,
    ToolResultOffloadCompactor,
    ToolResultPruningCompactor,
)
from haybaler.errors import ConfigurationError, StoreError, StoreUnavailableError
from haybaler.hooks.context import RESULT_STORE_CONTEXT_KEY
from haybaler.references import COMPACTION_META, OFFLOADED_META
from haybaler.testing import Fault, FaultyStore

each_colour = pytest.mark.parametrize("colour", COLOURS)
TEXT = "lorem ipsum " * 100  # about 300 tokens
SYSTEM = ChatMessage.from_system("Be brief.")
TASK = ChatMessage.from_user("Find the answer.")
IMAGE = ImageContent(base64_image=PNG, mime_type="image/png")
FILE = FileContent(base64_data=PNG, mime_type="application/pdf", filename="report.pdf")

Make = Callable[..., Any]


def pruning(**settings: Any) -> ToolResultPruningCompactor:
    return ToolResultPruningCompactor(**settings)


def offloading(store: Any = None, **settings: Any) -> ToolResultOffloadCompactor:
    return ToolResultOffloadCompactor(store or InMemoryToolResultStore(), **settings)


each_kind = pytest.mark.parametrize("make", [pruning, offloading])


def step(number: int, content: Blocks = TEXT, *, error: bool = False, **meta: Any) -> list[ChatMessage]:
    call = ToolCall("fetch", {"n": number}, id=f"call_{number}")
    return [ChatMessage.from_assistant(tool_calls=[call]), answer(call, content, error=error, **meta)]


def conversation(*contents: Blocks) -> list[ChatMessage]:
    """Return a task with a step for each content, and a newest step that stays."""
    steps = [message for number, content in enumerate((*contents, TEXT)) for message in step(number, content)]
    return [SYSTEM, TASK, *steps]


def replaced(before: list[ChatMessage], after: list[ChatMessage] | None) -> list[int]:
    """Return which messages were replaced, by index."""
    if after is None:
        return []
    return [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old is not new]


@each_colour
@each_kind
def test_the_oldest_results_go_until_the_target_is_reached(colour: str, make: Make) -> None:
    messages = conversation(TEXT, TEXT, TEXT)
    assert replaced(messages, run(colour, make(), messages, size_of(messages) - 1)) == [3]
    assert replaced(messages, run(colour, make(), messages, size_of(messages) - 300)) == [3, 5]
    assert replaced(messages, run(colour, make(), messages, 0)) == [3, 5, 7]


@each_colour
@each_kind
def test_a_conversation_that_fits_is_unchanged(colour: str, make: Make) -> None:
    messages = conversation(TEXT, TEXT)
    assert run(colour, make(), messages, size_of(messages)) is None


@each_colour
@each_kind
def test_without_older_results_nothing_changes(colour: str, make: Make) -> None:
    for messages in ([], [TASK], conversation(), [*conversation(), ChatMessage.from_assistant("So.")]):
        assert run(colour, make(), messages, 0) is None


@each_colour
@each_kind
@pytest.mark.parametrize("keep", [1, 2, 3])
def test_parallel_results_of_a_recent_step_are_protected_together(colour: str, make: Make, keep: int) -> None:
    called = [ToolCall("fetch", {"n": n}, id=None) for n in range(3)]
    newest = [ChatMessage.from_assistant(tool_calls=called), *(answer(call, TEXT) for call in called)]
    messages = [*conversation(TEXT), *newest]
    assert replaced(messages, run(colour, make(min_keep_steps=keep), messages, 0)) == [3, 5][: 3 - keep]


@each_colour
@each_kind
def test_an_answer_without_calls_protects_nothing(colour: str, make: Make) -> None:
    messages = [*conversation(TEXT), ChatMessage.from_assistant("So."), ChatMessage.from_user("And?")]
    assert replaced(messages, run(colour, make(), messages, 0)) == [3]


@each_colour
@each_kind
def test_only_results_above_min_tokens_go(colour: str, make: Make) -> None:
    messages = conversation(TEXT)
    tokens = size_of([messages[3]])
    assert run(colour, make(min_tokens=tokens), messages, 0) is None
    assert replaced(messages, run(colour, make(min_tokens=tokens - 1), messages, 0)) == [3]


@each_colour
@each_kind
@pytest.mark.parametrize(
    "meta",
    [
        {COMPACTION_META: {"strategy": "tool_result_pruning", "original_tokens": 9}},
        {COMPACTION_META: {"strategy": "their own"}},
        {COMPACTION_META: None},
        {OFFLOADED_META: ["memory:1/x"]},
    ],
    ids=str,
)
def test_results_that_were_compacted_or_offloaded_stay(colour: str, make: Make, meta: dict[str, Any]) -> None:
    messages = [TASK, *step(1, TEXT, **meta), *step(2)]
    assert run(colour, make(), messages, 0) is None


@each_colour
@each_kind
def test_origin_error_flag_and_metadata_stay(colour: str, make: Make) -> None:
    messages = [TASK, *step(1, TEXT, colour="blue"), *step(2)]
    result = run(colour, make(), messages, 0)
    assert result is not None
    old, new = messages[2].tool_call_results[0], result[2].tool_call_results[0]
    assert (new.origin, new.error) == (old.origin, old.error)
    assert result[2].meta["colour"] == "blue"
    strategy = "tool_result_pruning" if make is pruning else "tool_result_offloading"
    assert result[2].meta[COMPACTION_META] == {"strategy": strategy, "original_tokens": size_of([messages[2]])}


@each_colour
@each_kind
def test_all_results_of_one_message_are_replaced_and_every_call_stays_answered(colour: str, make: Make) -> None:
    called = [ToolCall("fetch", {"n": n}, id=f"p{n}") for n in range(2)]
    parallel = [ChatMessage.from_assistant(tool_calls=called), several([answer(call, TEXT) for call in called])]
    messages = [TASK, *parallel, *step(2)]
    result = run(colour, make(), messages, 0)
    assert result is not None
    assert [r.origin for r in result[2].tool_call_results] == called
    assert all(len(str(r.result)) < len(TEXT) for r in result[2].tool_call_results)
    if make is offloading:
        assert len(result[2].meta[OFFLOADED_META]) == 2


@each_colour
@each_kind
def test_a_result_after_an_interposed_message_is_protected_with_its_step(colour: str, make: Make) -> None:
    call, result = step(2)
    messages = [*conversation(TEXT)[:-2], call, ChatMessage.from_user("A remark."), result]
    assert replaced(messages, run(colour, make(), messages, 0)) == [3]


@each_colour
@each_kind
def test_a_crashed_call_is_left_out_when_compacting(colour: str, make: Make) -> None:
    crashed = ChatMessage.from_assistant(tool_calls=[ToolCall("fetch", {}, id="lost")])
    messages = [TASK, *step(1), crashed, ChatMessage.from_user("Again."), *step(2)]
    result = run(colour, make(), messages, 0)
    assert result is not None
    assert crashed not in result
    assert len(result) == len(messages) - 1


@each_kind
def test_limits_out_of_range_are_refused(make: Make) -> None:
    for keep in (0, -1):
        with pytest.raises(ConfigurationError, match=f"min_keep_steps.*at least 1.*{keep}"):
            make(min_keep_steps=keep)
    with pytest.raises(ConfigurationError, match=r"min_tokens.*-1"):
        make(min_tokens=-1)
    with pytest.raises(ConfigurationError, match=r"preview_chars.*-1"):
        offloading(preview_chars=-1)


def test_the_defaults_follow_haystacks() -> None:
    pruned, moved = ToolResultPruningCompactor(), offloading()
    assert (pruned.min_keep_steps, pruned.min_tokens, pruned.skip_meta_keys) == (1, 200, ("tool_result_offloaded",))
    assert pruned.placeholder == ("[Tool result removed to free up context. Call `{tool_name}` again if you need it.]")
    assert (moved.min_keep_steps, moved.min_tokens, moved.preview_chars) == (1, 200, 200)
    assert (moved.offload_errors, moved.write_timeout) == (False, None)


def test_settings_survive_serialization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "haybaler*")
    pruned = ToolResultPruningCompactor(min_keep_steps=2, min_tokens=3, placeholder="x", skip_meta_keys=("a", "b"))
    data = json.loads(json.dumps(pruned.to_dict()))
    assert vars(ToolResultPruningCompactor.from_dict(data)) == vars(pruned)
    moved = offloading(
        min_keep_steps=2, min_tokens=3, preview_chars=4, offload_errors=True, write_timeout=5.0, write_behind=True
    )
    again = ToolResultOffloadCompactor.from_dict(json.loads(json.dumps(moved.to_dict())))
    assert isinstance(again.store, InMemoryToolResultStore)
    parameters = inspect.signature(ToolResultOffloadCompactor).parameters.keys() - {"store"}
    assert {name: getattr(again, name) for name in parameters} == {name: getattr(moved, name) for name in parameters}


# Pruning


@each_colour
def test_a_placeholder_names_the_tool_and_keeps_other_braces(colour: str) -> None:
    messages = conversation(TEXT)
    result = run(colour, pruning(placeholder='{"gone": "{tool_name}", "x": {y}}'), messages, 0)
    assert result is not None
    assert result[3].tool_call_results[0].result == '{"gone": "fetch", "x": {y}}'


@each_colour
def test_a_placeholder_that_is_no_smaller_changes_nothing(colour: str) -> None:
    assert run(colour, pruning(placeholder=TEXT), conversation(TEXT), 0) is None


@each_colour
def test_results_with_a_key_to_skip_stay(colour: str) -> None:
    messages = [TASK, *step(1, TEXT, pinned=False), *step(2), *step(3)]
    result = run(colour, pruning(skip_meta_keys=("pinned",)), messages, 0)
    assert replaced(messages, result) == [4]


@each_colour
def test_errors_are_pruned_as_haystack_does(colour: str) -> None:
    messages = [TASK, *step(1, TEXT, error=True), *step(2)]
    result = run(colour, pruning(), messages, 0)
    assert result is not None
    assert result[2].tool_call_results[0].error


# Offloading


@each_colour
def test_errors_stay_unless_asked_for(colour: str) -> None:
    messages = [TASK, *step(1, "trace " * 80_000, error=True), *step(2)]
    assert run(colour, offloading(), messages, 0) is None
    result = run(colour, offloading(offload_errors=True), messages, 0)
    assert result is not None
    assert result[2].tool_call_results[0].error


@each_colour
def test_an_error_beside_a_result_in_one_message_stays(colour: str) -> None:
    called = [ToolCall("fetch", {"n": n}, id=f"p{n}") for n in range(2)]
    both = several([answer(called[0], TEXT), answer(called[1], TEXT, error=True)])
    messages = [TASK, ChatMessage.from_assistant(tool_calls=called), both, *step(2)]
    result = run(colour, offloading(), messages, 0)
    assert result is not None
    assert str(result[2].tool_call_results[0].result).startswith("Tool result offloaded to ")
    assert result[2].tool_call_results[1].result == TEXT


@each_colour
@pytest.mark.parametrize("content", ["", [], [TextContent(""), TextContent("")]], ids=repr)
def test_empty_results_are_never_written(colour: str, content: Blocks) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    assert run(colour, offloading(store, min_tokens=0), conversation(content), 0) is None
    assert not store.calls


@each_colour
@pytest.mark.parametrize("content", ["", [], [TextContent(""), TextContent("")]], ids=repr)
def test_an_empty_result_beside_another_in_one_message_stays_and_is_not_written(colour: str, content: Blocks) -> None:
    called = [ToolCall("fetch", {"n": n}, id=f"p{n}") for n in range(2)]
    both = several([answer(called[0], content), answer(called[1], TEXT)])
    store = InMemoryToolResultStore()
    messages = [TASK, ChatMessage.from_assistant(tool_calls=called), both, *step(2)]
    result = run(colour, offloading(store), messages, 0)
    assert result is not None
    assert result[2].tool_call_results[0].result == content
    assert str(result[2].tool_call_results[1].result).startswith("Tool result offloaded to ")
    assert len(store) == 1


@each_colour
def test_a_pointer_that_is_no_smaller_is_never_written_however_often_it_is_tried(colour: str) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    messages = conversation("42", "short", "a little longer")
    for _ in range(5):
        assert run(colour, offloading(store, min_tokens=0), messages, 0) is None
    assert not store.calls


@each_colour
def test_images_and_files_go_to_a_store_that_holds_them(colour: str) -> None:
    store = InMemoryToolResultStore()
    messages = conversation([TextContent(TEXT), IMAGE, FILE])
    result = run(colour, offloading(store), messages, 0)
    assert result is not None
    references = result[3].meta[OFFLOADED_META]
    assert [type(store.read(reference)) for reference in references] == [str, bytes, bytes]
    assert [reference[reference.rindex(".") :] for reference in references] == [".txt", ".png", ".pdf"]


class TextStore:
    """Somebody's store for text, which only has what Haystack asks for."""

    def __init__(self) -> None:
        self.entries: dict[str, str | bytes] = {}

    def write(self, *, key: str, content: str | bytes) -> str:
        self.entries[key] = content
        return key

    def read(self, reference: str) -> str | bytes:
        return self.entries[reference]


@each_colour
@pytest.mark.parametrize("content", [[IMAGE] * 4, [TextContent(TEXT), FILE]], ids=["images", "text and file"])
def test_images_and_files_stay_with_a_warning_where_the_store_only_holds_text(
    colour: str, content: Blocks, caplog: pytest.LogCaptureFixture
) -> None:
    store = TextStore()
    assert run(colour, offloading(store), conversation(content), 0) is None
    assert not store.entries
    assert [(r.levelno, r.__dict__["tool"], r.__dict__["store"]) for r in caplog.records] == [
        (logging.WARNING, "fetch", "TextStore")
    ]


@each_colour
def test_an_image_that_cannot_be_decoded_stays_with_a_warning(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    broken = ImageContent(base64_image="no base64!", mime_type="image/png", validation=False)
    assert run(colour, offloading(), conversation([TextContent(TEXT), broken]), 0) is None
    assert len(caplog.records) == 1


@each_colour
def test_many_images_are_offloaded_by_their_tokens(colour: str) -> None:
    messages = conversation([IMAGE] * 20)
    result = run(colour, offloading(min_tokens=200), messages, 0)
    assert replaced(messages, result) == [3]


@each_colour
def test_the_next_candidates_take_the_place_of_results_that_could_not_be_written(
    colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = InMemoryToolResultStore()
    store = FaultyStore(memory, writes={1: Fault(error=StoreError("refused"))})
    messages = conversation(TEXT, TEXT, TEXT)
    result = run(colour, offloading(store), messages, size_of(messages) - 100)
    assert replaced(messages, result) == [5]
    assert len(memory) == 1
    assert [(r.__dict__["tools"], r.__dict__["store"]) for r in caplog.records] == [(["fetch"], "FaultyStore")]
    assert "lorem" not in str(caplog.records[0].__dict__)


@each_colour
def test_a_batch_is_written_at_once_and_a_further_one_only_after_failures(colour: str) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    run(colour, offloading(store), conversation(*[TEXT] * 8), 0)
    assert store.calls["write_many" if colour == "sync" else "write_many_async"] == 1


@each_colour
def test_a_store_that_is_away_is_asked_once(colour: str) -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(error=StoreUnavailableError("away")))
    messages = conversation(*[TEXT] * 8)
    assert run(colour, offloading(store), messages, size_of(messages) - 100) is None
    assert store.calls["write_many" if colour == "sync" else "write_many_async"] == 1


@each_colour
@pytest.mark.parametrize("failing", [1, 2, 3])
def test_a_result_of_several_parts_is_replaced_whole_or_its_parts_are_deleted(colour: str, failing: int) -> None:
    memory = InMemoryToolResultStore()
    store = FaultyStore(memory, writes={failing: Fault(error=StoreError("refused"))})
    messages = conversation([TextContent(TEXT), IMAGE, FILE])
    assert run(colour, offloading(store), messages, 0) is None
    assert len(memory) == 0


@each_colour
@pytest.mark.parametrize("reference", [None, "", 7, b"x"], ids=repr)
def test_a_store_that_returns_no_reference_leaves_the_result_in_place(colour: str, reference: object) -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(result=lambda _: reference))
    assert run(colour, offloading(store), conversation(TEXT), 0) is None


class LongWinded(TextStore):
    """A store whose references are longer than anyone could expect."""

    def write(self, *, key: str, content: str | bytes) -> str:
        return super().write(key=f"{'deep/' * 400}{key}", content=content)

    def delete(self, references: list[str]) -> None:
        for reference in references:
            del self.entries[reference]


@each_colour
def test_a_pointer_that_turns_out_larger_is_not_used_and_its_entry_removed(colour: str) -> None:
    store = LongWinded()
    messages = conversation(TEXT)
    assert run(colour, offloading(store), messages, 0) is None
    assert not store.entries


@each_colour
def test_keys_never_meet_however_alike_runs_and_calls_are(colour: str) -> None:
    store = InMemoryToolResultStore()
    for number in range(5):
        call = ToolCall("../../a tool\n", {}, id=None)
        messages = [TASK, ChatMessage.from_assistant(tool_calls=[call]), answer(call, TEXT + str(number)), *step(2)]
        result = run(colour, offloading(store), messages, 0)
        assert result is not None
        assert store.read(result[2].meta[OFFLOADED_META][0]) == TEXT + str(number)
    assert len(store) == 5


def test_the_store_of_the_run_takes_the_place_of_the_compactors_own() -> None:
    own, runs = InMemoryToolResultStore(), InMemoryToolResultStore()
    compactor = offloading(own)
    bound = compactor.for_run({RESULT_STORE_CONTEXT_KEY: runs})
    assert bound.compact(conversation(TEXT), 0, ApproximateTokenCounter())
    assert (len(own), len(runs)) == (0, 1)
    assert compactor.store is own
    assert compactor.for_run({}) is compactor


@pytest.mark.anyio
async def test_writes_that_take_too_long_leave_results_in_place_and_no_entries() -> None:
    memory = InMemoryToolResultStore()
    store = FaultyStore(memory, every_write=Fault(hang_after=True))
    messages = conversation(TEXT, TEXT)
    compactor = offloading(store, write_timeout=0.01)
    assert await compactor.compact_async(messages, 0, ApproximateTokenCounter()) is None
    assert len(memory) == 0


def test_lifecycle_reaches_the_store() -> None:
    store = FaultyStore(InMemoryToolResultStore())
    compactor = offloading(store)
    compactor.warm_up()
    compactor.close()
    assert dict(store.calls) == {"warm_up": 1, "close": 1}


@pytest.mark.anyio
async def test_asynchronous_lifecycle_reaches_the_store() -> None:
    store = FaultyStore(InMemoryToolResultStore())
    compactor = offloading(store)
    await compactor.warm_up_async()
    await compactor.close_async()
    assert dict(store.calls) == {"warm_up_async": 1, "close_async": 1}
