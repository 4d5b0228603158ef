"""A ladder of stores behind a hook: where one rung breaks the next one holds, and the last is the conversation."""

from typing import Any

from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from tests.hooks.agents import Colour, ScriptedModel, both_colours, pages, tool, work

from haybaler import (
    AlwaysOffload,
    CircuitBreakerStore,
    FallbackStore,
    InMemoryToolResultStore,
    StoreUnavailableError,
    ToolResultOffloadHook,
)
from haybaler.references import is_offloaded, offloaded_references
from haybaler.testing import Fault, FaultyStore

DOWN = Fault(error=StoreUnavailableError("down"))
STEPS = 8


def results_of_a_run(colour: Colour, store: Any) -> list[ChatMessage]:
    agent = Agent(
        chat_generator=ScriptedModel(work(STEPS)),
        tools=[tool("fetch", pages(2_000))],
        hooks={"after_tool": [ToolResultOffloadHook(store, {"*": AlwaysOffload()})]},
    )
    results = [message for message in colour.run(agent, "task")["messages"] if message.tool_call_results]
    assert len(results) == STEPS
    return results


@both_colours
def test_a_dead_server_is_asked_a_few_times_and_every_result_goes_to_the_next_store(colour: Colour) -> None:
    server, spare = FaultyStore(InMemoryToolResultStore(), every_write=DOWN), InMemoryToolResultStore()
    store = FallbackStore(CircuitBreakerStore(server, failure_threshold=3), spare)
    results = results_of_a_run(colour, store)
    assert all(is_offloaded(message) for message in results)
    assert server.calls["write"] + server.calls["write_async"] == 3
    assert len(spare) == STEPS
    for step, message in enumerate(results, 1):
        (reference,) = offloaded_references(message)
        assert store.read(reference) == pages(2_000)(step)


@both_colours
def test_at_the_end_of_the_ladder_the_results_stay_whole_in_the_conversation(colour: Colour) -> None:
    stores = [FaultyStore(InMemoryToolResultStore(), every_write=DOWN) for _ in range(2)]
    results = results_of_a_run(colour, FallbackStore(*map(CircuitBreakerStore, stores)))
    assert [message.tool_call_results[0].result for message in results] == [
        pages(2_000)(step) for step in range(1, STEPS + 1)
    ]
    # Five times each, and not once more: what is dead costs the further steps nothing.
    assert [store.calls["write"] + store.calls["write_async"] for store in stores] == [5, 5]
