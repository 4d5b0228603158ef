"""What the hooks say on Haystack's current span: figures, and never content."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.tracing.tracer import Span, Tracer, disable_tracing, enable_tracing
from haystack.tracing.tracer import tracer as current_tracer
from tests.hooks.agents import (
    Colour,
    ScriptedModel,
    agent_state,
    answered,
    both_colours,
    call,
    calling,
    pages,
    tool,
    work,
)
from tests.hooks.parts import CountingCounter

from haybaler import (
    AlwaysOffload,
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    ToolResultOffloadHook,
    ToolResultPruningCompactor,
)

TAG = "haystack.agent.hook.compaction."


class RecordedSpan(Span):
    def __init__(self, name: str, tags: dict[str, Any]) -> None:
        self.name = name
        self.tags = tags

    def set_tag(self, key: str, value: Any) -> None:
        self.tags[key] = value


class RecordingTracer(Tracer):
    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []
        self._current: ContextVar[RecordedSpan | None] = ContextVar("current", default=None)

    @contextmanager
    def trace(
        self, operation_name: str, tags: dict[str, Any] | None = None, parent_span: Span | None = None
    ) -> Iterator[Span]:
        span = RecordedSpan(operation_name, dict(tags or {}))
        self.spans.append(span)
        token = self._current.set(span)
        try:
            yield span
        finally:
            self._current.reset(token)

    def current_span(self) -> Span | None:
        return self._current.get()

    def of_hooks(self) -> list[RecordedSpan]:
        return [span for span in self.spans if span.name == "haystack.agent.hook"]


@pytest.fixture
def tracer() -> Iterator[RecordingTracer]:
    recording = RecordingTracer()
    enable_tracing(recording)
    try:
        yield recording
    finally:
        disable_tracing()


def hook(compactor: Any) -> CompactionHook:
    return CompactionHook(compactor, context_window=2_000, token_counter=CountingCounter())


@both_colours
def test_each_span_of_the_hook_says_how_full_the_window_is(colour: Colour, tracer: RecordingTracer) -> None:
    agent = Agent(
        chat_generator=ScriptedModel(work(20)),
        tools=[tool("fetch", pages(1_200))],
        hooks={"before_llm": [hook(SlidingWindowCompactor())]},
    )
    colour.run(agent, "task")
    spans = tracer.of_hooks()
    assert len(spans) == 21
    for span in spans:
        own = {key.removeprefix(TAG): value for key, value in span.tags.items() if key.startswith(TAG)}
        triggered = own["estimated_context_tokens"] >= 0.7 * 2_000
        assert own["triggered"] is triggered
        assert own["strategy"] == "haybaler.compactors.sliding_window.SlidingWindowCompactor"
        assert ("target_tokens" in own) is ("compacted" in own) is triggered
        if triggered:
            assert own["compacted"] is True
            assert own["target_tokens"] == 800 - 10
    assert any(span.tags[TAG + "triggered"] for span in spans)


@both_colours
def test_each_hook_of_a_list_writes_to_its_own_span(colour: Colour, tracer: RecordingTracer) -> None:
    hooks: list[Any] = [hook(ToolResultPruningCompactor()), hook(SlidingWindowCompactor())]
    agent = Agent(chat_generator=ScriptedModel(work(0)), hooks={"before_llm": hooks})
    colour.run(agent, "task")
    names = [span.tags[TAG + "strategy"].rpartition(".")[2] for span in tracer.of_hooks()]
    assert names == ["ToolResultPruningCompactor", "SlidingWindowCompactor"]


@both_colours
def test_a_compactor_that_declines_is_named_as_such(colour: Colour, tracer: RecordingTracer) -> None:
    made = call("fetch", 1)
    state = agent_state([calling(made), answered(made, "x" * 8_000)])
    with current_tracer.trace("test"):
        colour.call(hook(ToolResultPruningCompactor()), "run", state)
    assert tracer.spans[0].tags[TAG + "triggered"] is True
    assert tracer.spans[0].tags[TAG + "compacted"] is False


@both_colours
def test_without_a_span_the_hook_works(colour: Colour, tracer: RecordingTracer) -> None:
    colour.call(hook(SlidingWindowCompactor()), "run", agent_state([]))
    assert tracer.spans == []


@both_colours
def test_neither_spans_nor_logs_hold_any_content(
    colour: Colour, tracer: RecordingTracer, caplog: pytest.LogCaptureFixture
) -> None:
    store = InMemoryToolResultStore()
    agent = Agent(
        chat_generator=ScriptedModel(work(20)),
        tools=[tool("fetch", lambda step: f"SECRET {step} " * 300)],
        hooks={
            "before_llm": [hook(SlidingWindowCompactor())],
            "after_tool": [ToolResultOffloadHook(store, {"*": AlwaysOffload()})],
        },
    )
    with caplog.at_level(logging.DEBUG):
        colour.run(agent, "SECRET task")
    assert len(store) == 20
    for span in tracer.of_hooks():
        assert "SECRET" not in str(span.tags)
    assert not [record for record in caplog.records if "SECRET" in str(record.__dict__)]
