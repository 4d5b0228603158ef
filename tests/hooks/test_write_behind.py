"""Writing behind a run's back: the model is called meanwhile, and nothing that it is told of can be lost."""

import asyncio
import copy
import logging
import pickle
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.core.serialization import allow_deserialization_module
from haystack.dataclasses import ChatMessage
from haystack.hooks import FunctionHook
from haystack.hooks.compaction import CompactionHook as HaystackCompactionHook
from haystack.hooks.compaction import Compactor
from tests.hooks.agents import Colour, ScriptedModel, agent_state, both_colours, conversation, work
from tests.hooks.behind import (
    DOWN,
    HANGS,
    Model,
    agent_with,
    entries,
    history,
    offloading,
    pointers,
    run,
    steps_whole,
    tasks_left,
    whole,
)
from tests.hooks.parts import SyncStore

from haybaler import (
    ApproximateTokenCounter,
    CompactionHook,
    InMemoryToolResultStore,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
)
from haybaler.conversation import last_assistant_index
from haybaler.errors import ConfigurationError, StoreError
from haybaler.testing import Fault, FaultyStore

allow_deserialization_module("haybaler*")
anyio_test = pytest.mark.anyio
LATE_FAILURE = Fault(before=0.02, error=StoreError("full"))


@anyio_test
async def test_the_model_is_called_while_the_batch_is_being_written() -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=HANGS)
    seen: list[tuple[int, int]] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages) and not seen:
            await store.hanging.wait_async()
            seen.append((store.in_flight, len(entries(store))))
            store.release()

    messages = await run(agent_with(offloading(store), model=Model(work(6), meanwhile)))
    assert seen == [(2, 0)]
    assert steps_whole(messages, store) == [1, 2, 3, 4, 5, 6]
    assert len(pointers(messages)) == store.calls["write_async"] == len(entries(store))
    assert tasks_left() == []


@anyio_test
async def test_what_the_model_sees_is_what_it_sees_without() -> None:
    """The same pointers at the same calls, but for the random part of a reference."""
    shown = []
    for write_behind in (False, True):
        model = ScriptedModel(work(8))
        compactor = ToolResultOffloadCompactor(InMemoryToolResultStore(), write_behind=write_behind)
        await run(agent_with(CompactionHook(compactor, context_window=2_000), model=model))
        shown.append([[len(str(m.tool_call_results)) for m in prompt] for prompt in model.prompts])
    assert shown[0] == shown[1]


@anyio_test
@pytest.mark.parametrize("failing", [{1: DOWN}, {1: Fault(error=ValueError("odd"))}], ids=["unavailable", "odd error"])
async def test_a_failed_write_is_put_back_before_the_next_call(
    failing: dict[int, Fault], caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore(InMemoryToolResultStore(), writes=failing)
    model = ScriptedModel(work(6))
    with caplog.at_level(logging.WARNING):
        messages = await run(agent_with(offloading(store), model=model))
    first = next(n for n, prompt in enumerate(model.prompts) if pointers(prompt))
    assert 1 not in whole(model.prompts[first])
    # Put back, and then written at once, now that the store works again: no call sees less than all of it.
    assert steps_whole(model.prompts[first + 1], store) == list(range(1, first + 2))
    assert steps_whole(messages, store) == [1, 2, 3, 4, 5, 6]
    assert len(entries(store)) == len(pointers(messages))
    (record,) = caplog.records
    fields = vars(record)
    assert (fields["tools"], fields["store"]) == (["fetch"], "FaultyStore")
    assert "page 1 line" not in str(fields)


@anyio_test
async def test_a_run_whose_store_failed_once_writes_at_once_from_then_on() -> None:
    store = FaultyStore(InMemoryToolResultStore(), writes={1: DOWN}, every_write=Fault(before=0.01))
    complete: list[bool] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages):
            complete.append(set(pointers(messages)) <= set(entries(store)))

    await run(agent_with(offloading(store), model=Model(work(8), meanwhile)))
    assert complete == [False] + [True] * 5


@anyio_test
async def test_the_rest_of_a_batch_stays_replaced_where_one_write_fails() -> None:
    store = FaultyStore(InMemoryToolResultStore(), writes={2: DOWN})
    started = history(4)
    model = ScriptedModel(work(4))
    result = await agent_with(offloading(store), model=model).run_async(started)
    assert whole(model.prompts[0]) == [4]
    assert whole(result["messages"]) == [2, 4]
    assert result["messages"][4] is started[4]
    assert len(entries(store)) == 2


@anyio_test
@pytest.mark.parametrize("fault", [Fault(before=0.02), DOWN, LATE_FAILURE], ids=["late", "down", "late failure"])
async def test_a_run_does_not_return_before_its_last_batch_is_settled(fault: Fault) -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=fault)
    messages = await run(agent_with(offloading(store), model=ScriptedModel(work(3))))
    assert store.calls["write_async"] > 0
    assert store.in_flight == 0
    assert steps_whole(messages, store) == [1, 2, 3]
    assert len(entries(store)) == len(pointers(messages)) == (0 if fault.error else 2)
    assert tasks_left() == []


def test_a_loop_that_is_closed_at_once_finds_every_entry_and_no_task(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.01))
    with caplog.at_level(logging.DEBUG, logger="asyncio"):
        messages = asyncio.run(run(agent_with(offloading(store), model=ScriptedModel(work(4)))))
    assert steps_whole(messages, store) == [1, 2, 3, 4]
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@anyio_test
async def test_a_batch_that_takes_too_long_is_put_back_in_time() -> None:
    store = FaultyStore(InMemoryToolResultStore(), writes={1: HANGS})
    messages = await run(agent_with(offloading(store, write_timeout=0.02), model=ScriptedModel(work(5))))
    assert steps_whole(messages, store) == [1, 2, 3, 4, 5]
    assert len(entries(store)) == len(pointers(messages))
    assert store.in_flight == 0


# Where batches are written at once.


@both_colours
@pytest.mark.parametrize("hook", [True, False], ids=["with the hook", "without the hook"])
def test_a_synchronous_run_writes_at_once(colour: Colour, hook: bool, caplog: pytest.LogCaptureFixture) -> None:
    """So does an asynchronous one without the hook, which says so once."""
    store = FaultyStore(InMemoryToolResultStore())
    complete: list[bool] = []

    def look(messages: list[ChatMessage], _: ChatMessage) -> dict[str, int]:
        complete.append(set(pointers(messages)) <= set(entries(store)))
        return {}

    model = ScriptedModel(work(8), usage=look)
    agent = agent_with(offloading(store), model=model)
    if not hook:
        agent = Agent(chat_generator=model, tools=agent.tools, hooks={"before_llm": agent.hooks["before_llm"]})
    with caplog.at_level(logging.WARNING):
        messages = colour.run(agent, "task")["messages"]
    assert steps_whole(messages, store) == list(range(1, 9))
    if colour is Colour.SYNC or not hook:
        assert all(complete)
    assert len(caplog.records) == (colour is Colour.ASYNC and not hook)
    assert all("WriteBehindHook" in record.message for record in caplog.records)


@anyio_test
@pytest.mark.filterwarnings("ignore::haystack.utils.experimental.ExperimentalWarning")  # of Haystack's hook
async def test_haystacks_own_hook_and_direct_callers_write_at_once() -> None:
    """They have no run to which a batch could belong."""
    store = FaultyStore(InMemoryToolResultStore())
    compactor = ToolResultOffloadCompactor(store, write_behind=True)
    state = agent_state(history(6))
    await HaystackCompactionHook(compactor, context_window=2_000).run_async(state)
    assert set(pointers(conversation(state))) == set(entries(store))
    compacted = await compactor.compact_async(history(6), 800, ApproximateTokenCounter())
    assert compacted is not None
    assert set(pointers(compacted)) <= set(entries(store))
    assert tasks_left() == []


@anyio_test
async def test_a_store_that_cannot_tell_its_references_is_written_at_once() -> None:
    class Lazy(SyncStore):
        def write(self, *, key: str, content: str | bytes) -> str:
            return super().write(key=f"{len(self)}", content=content)

    store = Lazy()
    complete: list[bool] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        complete.append(set(pointers(messages)) <= store.entries.keys())

    messages = await run(agent_with(offloading(store), model=Model(work(6), meanwhile)))
    assert len(pointers(messages)) > 2
    assert all(complete)


@anyio_test
async def test_a_store_that_gives_another_reference_than_it_told_gets_nothing() -> None:
    class Fickle(InMemoryToolResultStore):
        async def write_many_async(self, entries: Any) -> Any:
            return [self.reference("other") for _ in await super().write_many_async(entries)]

    store = Fickle()
    hook = offloading(store)
    model = ScriptedModel(work(3))
    messages = await run(agent_with(hook, model=model))
    assert pointers(model.prompts[-1])
    assert whole(messages) == [1, 2, 3]


def test_it_is_off_by_default_and_survives_serialization() -> None:
    store = InMemoryToolResultStore()
    assert ToolResultOffloadCompactor(store).write_behind is False
    compactor = ToolResultOffloadCompactor(store, write_behind=True)
    copies = [
        ToolResultOffloadCompactor.from_dict(compactor.to_dict()),
        copy.deepcopy(compactor),
        pickle.loads(pickle.dumps(compactor)),
    ]
    assert [one.write_behind for one in copies] == [True] * 3
    old = compactor.to_dict()
    del old["init_parameters"]["write_behind"]
    assert ToolResultOffloadCompactor.from_dict(old).write_behind is False
    with pytest.raises(ConfigurationError, match="write_behind"):
        ToolResultOffloadCompactor(store, write_behind="yes")  # type: ignore[arg-type]


@anyio_test
async def test_a_loaded_agent_writes_behind_as_well() -> None:
    """Its two registrations of the hook are two objects then; what is in flight belongs to the run, not to a hook."""
    made = agent_with(offloading(InMemoryToolResultStore()), model=ScriptedModel(work(4)))
    hooks = {point: [type(hook).from_dict(hook.to_dict()) for hook in listed] for point, listed in made.hooks.items()}
    compaction = cast("Any", hooks["before_llm"][0])
    store = FaultyStore(compaction.compactor.store, every_write=HANGS)
    compaction.compactor.store = store

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages):
            await store.hanging.wait_async()
            store.release()

    agent = Agent(chat_generator=Model(work(4), meanwhile), tools=made.tools, hooks=hooks)
    messages = await run(agent)
    assert steps_whole(messages, store) == [1, 2, 3, 4]
    assert hooks["before_run"][0] is not hooks["after_run"][0]


# Other hooks and compactors.


@anyio_test
async def test_two_hooks_have_their_batches_in_flight_together() -> None:
    """The second neither waits for the first's nor counts what it has already taken out."""
    first = FaultyStore(InMemoryToolResultStore(), every_write=HANGS)
    second = FaultyStore(InMemoryToolResultStore(), every_write=HANGS)
    both: list[tuple[int, int]] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages) and not both:
            await first.hanging.wait_async()
            await second.hanging.wait_async()
            both.append((first.in_flight, second.in_flight))
            first.release()
            second.release()

    hooks = [
        CompactionHook(ToolResultOffloadCompactor(first, write_behind=True), context_window=4_000, compact_to=0.6),
        CompactionHook(
            ToolResultOffloadCompactor(second, write_behind=True), context_window=4_000, compact_at=0.5, compact_to=0.2
        ),
    ]
    started = history(8)
    result = await agent_with(*hooks, model=Model(work(8), meanwhile)).run_async(started)
    assert all(both[0])
    assert set(pointers(result["messages"])) == set(entries(first)) | set(entries(second))
    assert entries(first)
    assert entries(second)


@anyio_test
@pytest.mark.parametrize("fault", [DOWN, LATE_FAILURE], ids=["at once", "later"])
async def test_what_a_window_has_dropped_is_not_put_back(fault: Fault) -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=fault)
    made: list[int] = []

    def watch(state: State) -> None:
        made.append(len(pointers(state.data["messages"])))

    window = CompactionHook(SlidingWindowCompactor(), context_window=800)
    model = ScriptedModel(work(4))
    agent = agent_with(offloading(store), FunctionHook(function=watch), window, model=model)
    result = await agent.run_async(history(4))
    assert made == [3]
    assert pointers(model.prompts[0]) == pointers(result["messages"]) == []
    assert whole(result["messages"]) == [4]
    assert entries(store) == {}


@anyio_test
async def test_what_somebody_has_replaced_again_is_not_put_back() -> None:
    """But a copy of the pointer is, and one with a remark."""
    store = FaultyStore(InMemoryToolResultStore(), every_write=DOWN)

    def change(state: State) -> None:
        results = [n for n, message in enumerate(state.data["messages"]) if pointers([message])]
        changes: list[Callable[[ChatMessage], ChatMessage]] = [copy.deepcopy, remarked, placeholder]
        for change_one, place in zip(changes, results, strict=False):
            state.data["messages"][place] = change_one(state.data["messages"][place])

    def remarked(message: ChatMessage) -> ChatMessage:
        (result,) = message.tool_call_results
        return ChatMessage.from_tool(f"{result.result} (old)", origin=result.origin, meta=message.meta)

    def placeholder(message: ChatMessage) -> ChatMessage:
        (result,) = message.tool_call_results
        return ChatMessage.from_tool("[gone]", origin=result.origin, meta=message.meta)

    agent = agent_with(offloading(store), model=ScriptedModel(work(4)), after=[FunctionHook(function=change)])
    result = await agent.run_async(history(4))
    assert whole(result["messages"]) == [1, 2, 4]
    assert "[gone]" in str(result["messages"])


class Wrapped(Compactor):
    """Somebody's compactor, which asks haybaler's and then decides for itself what becomes of the answer."""

    def __init__(self, inner: Any, decide: Callable[[list[ChatMessage]], list[ChatMessage] | None]) -> None:
        self.inner = inner
        self.decide = decide

    def for_run(self, hook_context: Mapping[str, Any]) -> "Wrapped":
        return Wrapped(self.inner.for_run(hook_context), self.decide)

    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        raise NotImplementedError

    async def compact_async(
        self, messages: list[ChatMessage], target_tokens: int, token_counter: Any
    ) -> list[ChatMessage] | None:
        compacted = await self.inner.compact_async(messages, target_tokens, token_counter)
        return None if compacted is None else self.decide(compacted)

    def to_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Wrapped":
        raise NotImplementedError


@anyio_test
@pytest.mark.parametrize(
    "decide",
    [lambda _: None, lambda m: m[:1], lambda m: [*m[:1], *m[3:]], copy.deepcopy, lambda m: 1 / 0],
    ids=["no", "another answer", "a part", "a copy", "error"],
)
async def test_only_what_gets_into_the_conversation_is_ever_written(decide: Any) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    compactor = Wrapped(ToolResultOffloadCompactor(store, write_behind=True), decide)
    messages = await run(agent_with(CompactionHook(compactor, context_window=2_000), model=ScriptedModel(work(4))))
    assert set(entries(store)) == set(pointers(messages))
    assert store.calls["write_async"] == len(entries(store))


@anyio_test
async def test_a_hook_that_runs_in_a_task_of_its_own_changes_nothing() -> None:
    """The batch belongs to the run, not to the task in which its hook was called."""
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.01))

    class InATask:
        def __init__(self, hook: Any) -> None:
            self.hook = hook

        def run(self, state: State) -> None:
            raise NotImplementedError

        async def run_async(self, state: State) -> None:
            await asyncio.create_task(self.hook.run_async(state))

    messages = await run(agent_with(InATask(offloading(store)), model=Model(work(5), lambda *_: asyncio.sleep(0.03))))
    assert steps_whole(messages, store) == [1, 2, 3, 4, 5]
    assert entries(store)


@anyio_test
async def test_the_window_is_measured_right_after_a_result_was_put_back() -> None:
    """What the provider has counted is the conversation with the pointer."""
    store = FaultyStore(InMemoryToolResultStore(), every_write=DOWN)
    counter = ApproximateTokenCounter()
    fills: list[tuple[int, int]] = []

    def watch(state: State) -> None:
        messages = state.data["messages"]
        covered = messages[: last_assistant_index(messages) + 1]
        fills.append((state.data["context_tokens"], counter.count(covered)))

    model = ScriptedModel(
        work(5),
        usage=lambda messages, reply: {
            "prompt_tokens": counter.count(messages),
            "completion_tokens": counter.count([reply]),
        },
    )
    await run(agent_with(offloading(store), model=model, after=[FunctionHook(function=watch)]))
    assert len(fills) == 6
    assert [whole(prompt) for prompt in model.prompts[3:5]] == [[3], [1, 2, 3, 4]]
    assert [abs(known - true) <= 0.01 * true for known, true in fills[4:]] == [True] * 2
