"""The laws that every compactor keeps, for generated conversations, in both colours."""

import copy
from collections import Counter

import pytest
from haystack.dataclasses import ChatMessage
from haystack.tools import ToolsType
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.compactors.conversations import conversations, is_provider_valid, valid_conversations
from tests.compactors.subjects import COLOURS, MAKERS, SUBJECTS, Subject, new_references, run, size_of

from haybaler.compactors.offload import ToolResultOffloadCompactor
from haybaler.compactors.sliding_window import SlidingWindowCompactor
from haybaler.conversation import repaired
from haybaler.counters.approximate import ApproximateTokenCounter
from haybaler.counters.run import RunTokenCounter
from haybaler.errors import StoreError, StoreUnavailableError
from haybaler.references import OFFLOADED_META, is_read_back
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.testing import Fault, FaultyStore

EXAMPLES = 25
each_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: f"{s.name}-{s.colour}")
each_colour = pytest.mark.parametrize("colour", COLOURS)
fractions = st.floats(0, 1.1)


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), fraction=fractions)
def test_a_result_is_smaller_and_the_input_is_not_touched(
    subject: Subject, messages: list[ChatMessage], fraction: float
) -> None:
    given_list, objects, original = messages, list(messages), copy.deepcopy(messages)
    target = int(fraction * size_of(messages))
    compacted = subject.compact(given_list, target)
    assert given_list == original
    assert all(now is before for now, before in zip(given_list, objects, strict=True))
    if compacted is not None:
        assert compacted is not given_list
        assert size_of(messages) > target
        assert size_of(compacted) < size_of(messages)


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), fraction=fractions)
def test_every_call_that_is_kept_has_all_its_results_and_every_result_its_call(
    subject: Subject, messages: list[ChatMessage], fraction: float
) -> None:
    compacted = subject.compact(messages, int(fraction * size_of(messages)))
    assert compacted is None or is_provider_valid(compacted)


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=valid_conversations(), fraction=fractions)
def test_a_step_is_kept_or_removed_as_a_whole(subject: Subject, messages: list[ChatMessage], fraction: float) -> None:
    compacted = subject.compact(messages, int(fraction * size_of(messages)))
    if compacted is None:
        return
    before, after = Counter(map(step_of, messages)), Counter(map(step_of, compacted))
    for step in before.keys() - {None}:
        assert after[step] in (0, before[step])
    if "window" not in subject.name:
        assert len(compacted) == len(messages)


def step_of(message: ChatMessage) -> int | None:
    """Return the step of a call or a result; what only stands between them may go alone."""
    return message.meta.get("step") if message.tool_calls or message.tool_call_results else None


@given(messages=valid_conversations())
def test_a_valid_conversation_needs_no_repair(messages: list[ChatMessage]) -> None:
    mended = repaired(messages)
    assert all(now is before for now, before in zip(mended, messages, strict=True))


@settings(max_examples=400)
@given(messages=conversations())
def test_a_repaired_conversation_is_valid_and_stays_as_it_is(messages: list[ChatMessage]) -> None:
    mended = repaired(messages)
    assert is_provider_valid(mended)
    assert repaired(mended) == mended


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=valid_conversations(), fraction=fractions)
def test_the_newest_tool_calling_steps_stay_whole(
    subject: Subject, messages: list[ChatMessage], fraction: float
) -> None:
    if subject.name == "sliding_window_silent":
        return
    keep = 2 if subject.name == "pruning_all" else 1
    compacted = subject.compact(messages, int(fraction * size_of(messages)))
    task_end = max((i for i, m in enumerate(messages) if "unit" in m.meta and m.is_from("user")), default=0)
    counted = messages[task_end:] if "window" in subject.name else messages
    newest = sorted({m.meta["step"] for m in counted if m.tool_call_results})[-keep:]
    kept = {id(message) for message in compacted or messages}
    for message in messages:
        if step_of(message) in newest:
            assert id(message) in kept


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=valid_conversations())
def test_a_compactor_stops_exactly_at_the_target(subject: Subject, messages: list[ChatMessage]) -> None:
    outcomes: list[list[ChatMessage]] = []
    size = size_of(messages)
    while (compacted := subject.compact(messages, size - 1)) is not None and size_of(compacted) < size:
        size = size_of(compacted)
        outcomes.append(compacted)
    for number, outcome in enumerate(outcomes):
        # Asked for exactly this size, it replaces no more; asked for one token less, it does.
        again = subject.compact(messages, size_of(outcome))
        assert again is not None
        assert size_of(again) == size_of(outcome)
        gone, more = changed(messages, outcome), [changed(messages, later) for later in outcomes[number + 1 :]]
        assert all(gone < later for later in more)
        if "window" not in subject.name:
            assert all(max(gone) < min(later - gone) for later in more)


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), fraction=fractions)
def test_a_compactor_reaches_the_target_wherever_it_can(
    subject: Subject, messages: list[ChatMessage], fraction: float
) -> None:
    least = size_of(subject.compact(messages, 0) or messages)
    target = least + int(fraction * (size_of(messages) - least))
    assert size_of(subject.compact(messages, target) or messages) <= max(target, least)


def changed(before: list[ChatMessage], after: list[ChatMessage]) -> set[int]:
    """Return the indices of the messages that are no longer there."""
    kept = {id(message) for message in after}
    return {index for index, message in enumerate(before) if id(message) not in kept}


@each_colour
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=valid_conversations(plain=True))
def test_the_sliding_window_removes_one_turn_or_step_after_the_other(colour: str, messages: list[ChatMessage]) -> None:
    compactor = SlidingWindowCompactor(min_keep_steps=0, omission_note=None)
    size, gone = size_of(messages), set[int]()
    while (compacted := run(colour, compactor, messages, size - 1)) is not None and size_of(compacted) < size:
        size = size_of(compacted)
        more = changed(messages, compacted)
        sizes_of_units: Counter[int] = Counter()
        for index in more - gone:
            sizes_of_units[messages[index].meta["unit"]] += size_of([messages[index]])
        assert len([unit for unit, tokens in sizes_of_units.items() if tokens]) == 1
        assert not gone or max(gone) < min(more - gone)
        gone = more


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), fraction=fractions)
def test_compacting_again_finds_nothing_more_to_do(
    subject: Subject, messages: list[ChatMessage], fraction: float
) -> None:
    target = int(fraction * size_of(messages))
    compacted = subject.compact(messages, target)
    if compacted is not None:
        assert subject.compact(compacted, target) is None


FAULTS = st.dictionaries(
    st.integers(1, 6),
    st.sampled_from(
        [
            Fault(error=StoreError("refused")),
            Fault(error=StoreUnavailableError("away")),
            Fault(result=lambda reference: None),
        ]
    ),
)


@each_colour
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), fraction=fractions, faults=FAULTS, preview_chars=st.sampled_from([0, 200]))
def test_what_lies_in_the_store_afterwards_is_what_the_conversation_refers_to(
    colour: str, messages: list[ChatMessage], fraction: float, faults: dict[int, Fault], preview_chars: int
) -> None:
    memory = InMemoryToolResultStore()
    compactor = ToolResultOffloadCompactor(
        FaultyStore(memory, writes=faults), min_tokens=0, preview_chars=preview_chars, offload_errors=True
    )
    compacted = run(colour, compactor, messages, int(fraction * size_of(messages)))
    references = list(new_references(messages, compacted))
    # A write whose reference got lost cannot be undone.
    lost = sum(fault.result is not None for fault in faults.values())
    assert len(memory) - len(references) <= lost
    for reference in references:
        memory.read(reference)


@each_colour
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), fraction=fractions)
def test_nothing_is_written_that_the_conversation_will_not_refer_to(
    colour: str, messages: list[ChatMessage], fraction: float
) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    compacted = run(colour, MAKERS["offload_all"](store), messages, int(fraction * size_of(messages)))
    written = store.calls["write"] + store.calls["write_async"]
    assert written == len(list(new_references(messages, compacted)))
    assert store.calls["delete"] + store.calls["delete_async"] == 0


@each_colour
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), fraction=fractions)
def test_what_was_offloaded_is_read_back_as_it_was(colour: str, messages: list[ChatMessage], fraction: float) -> None:
    store = InMemoryToolResultStore()
    compactor = ToolResultOffloadCompactor(store, min_tokens=0, offload_errors=True)
    compacted = run(colour, compactor, messages, int(fraction * size_of(messages)))
    written = [store.read(reference) for reference in new_references(messages, compacted)]
    paired = repaired(messages)
    originals = [m for m, now in zip(paired, compacted or paired, strict=True) if m != now]
    texts = [r.result for m in originals for r in m.tool_call_results if isinstance(r.result, str) and r.result]
    assert all(text in written for text in texts)


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), fraction=fractions)
def test_what_was_read_back_or_is_a_pointer_stays(
    subject: Subject, messages: list[ChatMessage], fraction: float
) -> None:
    if "window" in subject.name:
        return
    compacted = subject.compact(messages, int(fraction * size_of(messages)))
    paired = repaired(messages)
    for before, after in zip(paired, compacted or paired, strict=True):
        if is_read_back(before) or before.meta.get(OFFLOADED_META) or "context_compaction" in before.meta:
            assert before == after


class Ledger:
    """A counter that remembers how often it was asked for each message."""

    counts_inline = True

    def __init__(self) -> None:
        self.asked: Counter[int] = Counter()
        self.kept: list[ChatMessage] = []  # so that no id is given away twice

    def count(self, messages: list[ChatMessage], tools: ToolsType | None = None) -> int:
        self.asked.update(map(id, messages))
        self.kept += messages
        return ApproximateTokenCounter().count(messages, tools)


@each_subject
@settings(max_examples=EXAMPLES, deadline=None)
@given(messages=conversations(), more=conversations(), fraction=fractions)
def test_each_message_is_counted_once_in_a_run(
    subject: Subject, messages: list[ChatMessage], more: list[ChatMessage], fraction: float
) -> None:
    ledger = Ledger()
    counter = RunTokenCounter(ledger)
    first = subject.compact(messages, int(fraction * size_of(messages)), counter) or messages
    assert set(ledger.asked.values()) <= {1}
    grown = [*first, *more]
    asked = ledger.asked.copy()
    subject.compact(grown, int(fraction * size_of(grown)), counter)
    assert set(ledger.asked.values()) <= {1}
    assert all(asked[id(message)] for message in first)
