"""The toolset in real Agents, in both colours: how its tools find the run's store, and that no run sees another's."""

import logging
from collections.abc import Callable
from threading import Barrier
from typing import Annotated, Any

import anyio
import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent
from haystack.hooks import hook
from haystack.tools import tool
from tests.tools.calling import READ, SEARCH, agent_that_says, calls, results, run_in
from tests.tools.stores import SyncStore
from tests.tools.test_paging import PNG

from haybaler.compactors.sliding_window import SlidingWindowCompactor
from haybaler.hooks.compaction import CompactionHook
from haybaler.hooks.context import RESULT_STORE_CONTEXT_KEY
from haybaler.hooks.offload import ToolResultOffloadHook
from haybaler.policies import AlwaysOffload
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.tools import ResultTool, ToolResultToolset, bind_tools

COLOURS = pytest.mark.parametrize("colour", ["sync", "async"])
pytestmark = pytest.mark.anyio


@hook
def bind(state: State) -> None:
    bind_tools(state)


@tool
def other(text: Annotated[str, "Any text."]) -> str:
    """Return the text."""
    return text


def context(store: Any) -> dict[str, Any]:
    return {RESULT_STORE_CONTEXT_KEY: store}


def shown(text: str) -> str:
    return f"[characters 0-{len(text)} of {len(text)}; end]\n{text}"


@COLOURS
async def test_a_result_is_read_back_twice_and_searched(colour: str) -> None:
    store = InMemoryToolResultStore()
    reference = store.write(key="a", content="first line\nsecond line")
    agent = agent_that_says(
        [
            calls({"reference": reference, "limit": 10}),
            calls({"reference": reference, "offset": 11}),
            calls({"reference": reference, "pattern": "second"}, name=SEARCH),
            "Done.",
        ],
        ToolResultToolset(store),
        hooks={"before_llm": [bind]},
    )
    run = await run_in(colour, agent)
    assert results(run) == [
        "[characters 0-10 of 22; continue with offset=10]\nfirst line",
        "[characters 11-22 of 22; end]\nsecond line",
        "[1 match in 22 characters; that is all]\noffset 11: first line\\n\u27e6second\u27e7 line",
    ]
    assert not any(result.error for message in run["messages"] for result in message.tool_call_results)


@COLOURS
@pytest.mark.parametrize("hooks", [None, {"before_llm": [bind]}])
async def test_the_first_step_reads_from_the_runs_store_with_and_without_a_hook(colour: str, hooks: Any) -> None:
    agent = agent_that_says([calls({"reference": "ref"}), "Done."], ToolResultToolset(), hooks=hooks)
    run = await run_in(colour, agent, hook_context=context(SyncStore(ref="run")))
    assert results(run) == [shown("run")]


@COLOURS
@pytest.mark.parametrize("hooks", [None, {"before_llm": [bind]}])
async def test_the_runs_store_wins_over_the_configured_one(colour: str, hooks: Any) -> None:
    agent = agent_that_says(
        [calls({"reference": "ref"}), "Done.", calls({"reference": "ref"}), "Done."],
        ToolResultToolset(SyncStore(ref="configured")),
        hooks=hooks,
    )
    assert results(await run_in(colour, agent, hook_context=context(SyncStore(ref="run")))) == [shown("run")]
    assert results(await run_in(colour, agent)) == [shown("configured")]


@COLOURS
@pytest.mark.parametrize("hooks", [None, {"before_llm": [bind]}])
async def test_a_run_without_any_store_goes_on(colour: str, hooks: Any) -> None:
    agent = agent_that_says([calls({"reference": "ref"}), "Done."], ToolResultToolset(), hooks=hooks)
    run = await run_in(colour, agent)
    assert results(run)[0].startswith("Stored results cannot be read back, because this run has no store.")
    assert run["last_message"].text == "Done."


@COLOURS
@pytest.mark.parametrize(
    "arguments", [{"self": 1}, {"state": "x", "reference": "ref"}, {"cls": 1}, {}, {"reference": 5}]
)
@pytest.mark.parametrize("hooks", [None, {"before_llm": [bind]}])
async def test_no_argument_that_a_model_makes_up_ends_the_run(
    colour: str, arguments: dict[str, Any], hooks: Any
) -> None:
    agent = agent_that_says([calls(arguments), "Done."], ToolResultToolset(SyncStore(ref="x")), hooks=hooks)
    run = await run_in(colour, agent)
    assert run["last_message"].text == "Done."
    assert len(results(run)) == 1


@COLOURS
@pytest.mark.parametrize("own", [True, False])
async def test_what_was_read_back_is_never_stored_again_also_under_a_wildcard(colour: str, own: bool) -> None:
    text = "".join(f"line {n}\n" for n in range(2000))
    store = InMemoryToolResultStore()

    def reply(messages: list[ChatMessage]) -> Any:
        given = [result.result for message in messages for result in message.tool_call_results]
        if not given:
            return calls({"text": text}, name="other")
        reference = str(given[0]).split(" at '")[1].split("'")[0]
        offsets = {1: 0, 2: 8000}
        return calls({"reference": reference, "offset": offsets[len(given)]}) if len(given) in offsets else "Done."

    agent = Agent(
        chat_generator=MockChatGenerator(response_fn=reply),
        tools=[other, ToolResultToolset(None if own else store)],
        hooks={
            "after_tool": [ToolResultOffloadHook(InMemoryToolResultStore() if own else store, {"*": AlwaysOffload()})]
        },
    )
    [pointer, first, second] = results(await run_in(colour, agent, hook_context=context(store) if own else None))
    assert pointer.startswith("Tool result offloaded to text (")
    assert first.split("\n", 1)[1] + second.split("\n", 1)[1] == text[:16000]
    assert len(store) == 1


@COLOURS
async def test_tools_can_be_selected_by_name(colour: str) -> None:
    seen: list[set[str]] = []

    def reply(messages: list[ChatMessage], tools: Any) -> Any:
        seen.append({tool.name for tool in tools})
        return "Done." if len(messages) > 1 else calls({"reference": "ref"})

    toolset = ToolResultToolset(SyncStore(ref="x"))
    agent = Agent(chat_generator=MockChatGenerator(response_fn=reply), tools=[other, toolset])
    assert results(await run_in(colour, agent, tools=[READ])) == [shown("x")]
    assert seen == [{READ}, {READ}]
    await run_in(colour, agent)
    assert seen[-1] == {READ, SEARCH, "other"}
    await run_in(colour, agent, tools=ToolResultToolset(SyncStore(ref="y")))
    assert seen[-1] == {READ, SEARCH}


@COLOURS
async def test_an_image_stays_an_image_in_the_conversation(colour: str) -> None:
    store = InMemoryToolResultStore()
    reference = store.write(key="plot.png", content=PNG)
    run = await run_in(colour, agent_that_says([calls({"reference": reference}), "Done."], ToolResultToolset(store)))
    [[part]] = results(run)
    assert isinstance(part, ImageContent)
    assert part.mime_type == "image/png"


class MeetingStore:
    """Every read waits until as many are under way as there are calls, so that it ends only if they run at once."""

    def __init__(self, parties: int) -> None:
        self.parties = parties
        self.waiting = 0
        self.barrier = Barrier(parties)
        self.all_here = anyio.Event()

    def read(self, reference: str) -> str:
        self.barrier.wait(30)
        return reference

    async def read_async(self, reference: str) -> str:
        self.waiting += 1
        if self.waiting == self.parties:
            self.all_here.set()
        with anyio.fail_after(30):
            await self.all_here.wait()
        return reference


@COLOURS
@pytest.mark.parametrize("own", [True, False])
async def test_reads_of_one_step_are_all_in_flight_at_once_after_a_hook_has_bound_them(colour: str, own: bool) -> None:
    store = MeetingStore(8)
    agent = agent_that_says(
        [calls(*({"reference": str(n)} for n in range(8))), "Done."],
        ToolResultToolset(None if own else store),
        hooks={"before_llm": [bind]},
        tool_concurrency_limit=8,
    )
    run = await run_in(colour, agent, hook_context=context(store) if own else None)
    assert results(run) == [shown(str(n)) for n in range(8)]


COMPACTION = CompactionHook(SlidingWindowCompactor(), context_window=1_000_000)
OFFLOAD = ToolResultOffloadHook(InMemoryToolResultStore(), {})


@COLOURS
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("hooks", "first"),
    [
        ({"before_llm": [COMPACTION]}, []),
        ({"before_tool": [OFFLOAD], "after_tool": [OFFLOAD]}, []),
        ({"after_tool": [OFFLOAD]}, [calls({"text": "first"}, name="other")]),
    ],
    ids=["compaction", "offload before and after", "offload after, from the second step on"],
)
async def test_reads_of_one_step_run_side_by_side_with_each_of_the_hooks(
    colour: str, hooks: Any, first: list[ChatMessage], own: bool
) -> None:
    store = MeetingStore(4)  # as many as an Agent calls at once by default
    agent = agent_that_says(
        [*first, calls(*({"reference": str(n)} for n in range(4))), "Done."],
        [other, ToolResultToolset(None if own else store)],
        hooks=hooks,
    )
    run = await run_in(colour, agent, hook_context=context(store) if own else None)
    assert results(run)[-4:] == [shown(str(n)) for n in range(4)]


@COLOURS
@pytest.mark.parametrize("hooks", [None, {"before_llm": [bind]}])
async def test_concurrent_runs_with_stores_of_their_own_never_meet(colour: str, hooks: Any) -> None:
    def reply(messages: list[ChatMessage]) -> Any:
        steps = sum(bool(message.tool_calls) for message in messages)
        return "Done." if steps == 3 else calls({"reference": "ref"}, {"reference": "ref"})

    agent = Agent(
        chat_generator=MockChatGenerator(response_fn=reply),
        tools=[ToolResultToolset(SyncStore(ref="configured"))],
        hooks=hooks,
    )
    read: dict[int, list[Any]] = {}

    async def run(number: int) -> None:
        own = {} if number == 0 else {"hook_context": context(SyncStore(ref=str(number)))}
        read[number] = results(await run_in(colour, agent, **own))

    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(run, number)
    assert read == {n: [shown(str(n) if n else "configured")] * 6 for n in range(20)}


async def test_a_tool_outside_its_toolset_is_shared_by_runs_and_still_reads_from_each_runs_store() -> None:
    agent = agent_that_says(
        [calls({"reference": "ref"}), "Done."] * 3, [*ToolResultToolset()], hooks={"before_llm": [bind]}
    )
    for text in ("one", "two"):
        run = await agent.run_async([ChatMessage.from_user("Go.")], hook_context=context(SyncStore(ref=text)))
        assert results(run) == [shown(text)]
    run = await agent.run_async([ChatMessage.from_user("Go.")])
    assert results(run)[0].startswith("Stored results cannot be read back")


async def test_binding_follows_the_runs_store_and_leaves_other_tools_alone() -> None:
    spawned = ToolResultToolset().spawn()
    tools = [other, *spawned]
    state = State({"tools": {"type": list}, "hook_context": {"type": dict}}, {"tools": tools})
    function: Callable[..., Any] = other.function  # type: ignore[assignment]
    for store in (SyncStore(ref="a"), SyncStore(ref="b"), None):
        state.data["hook_context"] = context(store)
        bind_tools(state)
        first = spawned.tools[0]
        assert isinstance(first, ResultTool)
        answer = first.invoke(reference="ref")
        assert answer.startswith("Stored") if store is None else answer == shown(store.contents["ref"])
    assert other.function is function


def test_binding_without_tools_does_nothing() -> None:
    bind_tools(State({"messages": {"type": list[ChatMessage]}}, {}))


async def test_a_traced_run_logs_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    from haystack.tracing.utils import coerce_tag_value

    tools = [ToolResultToolset(InMemoryToolResultStore()).spawn()]
    assert "read_tool_result" in str(coerce_tag_value([*tools[0]]))
    assert "InMemoryToolResultStore" in str(coerce_tag_value(tools))
    assert not caplog.records
