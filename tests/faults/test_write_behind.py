"""However a run ends that writes behind its own back: no entry nobody refers to, no reference to nothing, no task."""

import asyncio
import copy
import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage
from haystack.hooks import FunctionHook
from tests.faults.test_cancelled_runs import MemoryStore, RemoteStore, no_threads_left
from tests.freed import are_freed, until_freed
from tests.hooks.agents import ScriptedModel, conversation, pages, steps_done, tool, work
from tests.hooks.behind import (
    DOWN,
    HANGS,
    SIZE,
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

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    InMemoryToolResultStore,
    WriteBehindHook,
)
from haybaler.hooks.context import run_writes
from haybaler.testing import Fault, FaultyStore, each_cancellation
from haybaler.workers import run_in_worker
from haybaler_filesystem import FileSystemToolResultStore

anyio_test = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The event loop complains of no task that was destroyed, and of no exception that nobody took."""
    with caplog.at_level(logging.DEBUG, logger="asyncio"):
        yield
        gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio" and record.levelno > 10] == []


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clean-up that cannot end is given up soon."""
    monkeypatch.setattr("haybaler.in_flight.CLEAN_UP_SECONDS", 0.1)
    monkeypatch.setattr("haybaler.prepared.CLEAN_UP_SECONDS", 0.1)
    monkeypatch.setattr("haybaler.stores.writing.CLEAN_UP_SECONDS", 0.05)


class PredictingRemoteStore:
    """Somebody's own store: single writes, no batches, but it tells references before."""

    supports_binary_content = False

    def __init__(self) -> None:
        self.entries: dict[str, str | bytes] = {}

    def reference(self, key: str) -> str:
        return f"own/{key}"

    async def write_async(self, *, key: str, content: str | bytes) -> str:
        await asyncio.sleep(0)
        self.entries[self.reference(key)] = content
        await asyncio.sleep(0)
        return self.reference(key)

    async def read_async(self, reference: str) -> str | bytes:
        return self.entries[reference]

    async def delete_async(self, references: list[str]) -> None:
        await asyncio.sleep(0)
        for reference in references:
            self.entries.pop(reference, None)


class RefusingStore(RemoteStore):
    """Every third entry is refused."""

    async def _put_async(self, path: str, content: str | bytes) -> None:
        await asyncio.sleep(0)
        if len(self.entries) == 1:
            raise OSError("disk full")
        await super()._put_async(path, content)


STORES: dict[str, Callable[[], Any]] = {
    "remote": RemoteStore,
    "threads": MemoryStore,
    "somebody's own": PredictingRemoteStore,
    "refusing": RefusingStore,
}


async def settled() -> None:
    """Wait until nothing is left of what was cancelled; a clean-up is several operations, perhaps in threads."""
    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0)


def stored(store: Any) -> set[str]:
    return {getattr(store, "_prefix", "") + path for path in store.entries}


@pytest.mark.parametrize("make_store", STORES.values(), ids=STORES)
def test_a_run_that_is_cancelled_anywhere_has_written_what_its_conversation_refers_to(make_store: Any) -> None:
    states: list[State] = []
    stores: list[Any] = []

    def watch(state: State) -> None:
        states.append(state)

    async def operation() -> None:
        states.clear()
        stores.append(make_store())
        model = ScriptedModel(work(4))
        agent = agent_with(offloading(stores[-1]), model=model, after=[FunctionHook(function=watch)])
        await agent.run_async([ChatMessage.from_user("task")])

    interrupted = 0
    for by, step, reached in each_cancellation(operation, afterwards=settled):
        no_threads_left()
        where = f"{by} at suspension {step}"
        if states:
            messages = conversation(states[-1])
            assert set(pointers(messages)) == stored(stores[-1]), where
            assert len(pointers(messages)) + len(whole(messages)) == sum(bool(m.tool_call_results) for m in messages)
            interrupted += reached and bool(run_writes(states[-1]).was_opened)
        else:
            assert stored(stores[-1]) == set(), where
        assert reached or pointers(messages), where
    assert interrupted > 30


@pytest.mark.parametrize("make_store", STORES.values(), ids=STORES)
def test_so_has_one_whose_hook_is_cancelled_while_the_run_goes_on(make_store: Any) -> None:
    """Somebody gives hooks a timeout. A batch that was started by then goes on, and the run settles it later."""

    async def cancelled_after(turns: int, store: Any) -> list[ChatMessage]:
        calls: list[asyncio.Task[None]] = []

        async def cancel() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            scope.cancel()

        class Timed:
            def run(self, state: State) -> None:
                raise NotImplementedError

            async def run_async(self, state: State) -> None:
                if steps_done(state.data["messages"]) == 3:
                    calls.append(asyncio.create_task(cancel()))
                    with scope:
                        await hook.run_async(state)
                else:
                    await hook.run_async(state)

        hook, scope = offloading(store), anyio.CancelScope()
        messages = await run(agent_with(Timed(), model=ScriptedModel(work(5))))
        await asyncio.wait(calls)
        return messages

    for turns in range(25):
        store = make_store()
        messages = asyncio.run(cancelled_after(turns, store))
        assert set(pointers(messages)) == stored(store), turns
        assert len(pointers(messages)) + len(whole(messages)) == 5, turns
        no_threads_left()


def failing(store: Any, **settings: Any) -> Agent:
    """Return an agent whose model fails in the first call that has pointers in it, while they are being written."""

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages):
            if isinstance(store, FaultyStore):
                await store.hanging.wait_async()
            raise RuntimeError("no answer")

    return agent_with(offloading(store), model=Model(work(6), meanwhile), **settings)


def test_a_run_that_fails_leaves_nothing_in_a_loop_that_is_closed_at_once() -> None:
    store = FaultyStore(InMemoryToolResultStore(), writes={2: HANGS})
    with pytest.raises(RuntimeError, match="no answer"):
        asyncio.run(run(failing(store)))
    assert store.calls["write_async"] == 2
    assert entries(store) == {}
    assert store.in_flight == 0


@pytest.mark.parametrize("make_store", [MemoryStore, RemoteStore, PredictingRemoteStore])
def test_so_does_one_with_a_store_of_any_kind(make_store: Any) -> None:
    """The loop's worker threads are used until the very end."""
    for _ in range(5):
        store = make_store()
        with pytest.raises(RuntimeError, match="no answer"):
            asyncio.run(run(failing(store)))
        no_threads_left()
        assert stored(store) == set() or len(stored(store)) == 2  # it was done before the model failed


def test_so_does_one_with_files(tmp_path: Any) -> None:
    store = FaultyStore(FileSystemToolResultStore(tmp_path), writes={2: HANGS})
    with pytest.raises(RuntimeError, match="no answer"):
        asyncio.run(run(failing(store)))
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


@anyio_test
@pytest.mark.parametrize("how", ["error", "scope", "cancelled"])
async def test_a_run_that_ends_early_in_a_task_that_goes_on_is_undone_at_once(how: str) -> None:
    """A worker that serves one run after another. Nothing waits for the garbage collector."""
    store = FaultyStore(InMemoryToolResultStore(), writes={2: HANGS})
    gone: list[weakref.ref[State]] = []

    def watch(state: State) -> None:
        gone.append(weakref.ref(state))

    with anyio.CancelScope() as scope:

        async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
            if pointers(messages):
                await store.hanging.wait_async()
                if how == "scope":
                    scope.cancel()
                    await anyio.sleep(10)
                raise asyncio.CancelledError if how == "cancelled" else RuntimeError("no answer")

        agent = agent_with(offloading(store), model=Model(work(6), meanwhile), after=[FunctionHook(function=watch)])
        gc.disable()
        try:
            await run(agent)
        except (RuntimeError, asyncio.CancelledError):
            if how == "scope":
                raise
        finally:
            gc.enable()
    assert gone
    await until(lambda: all(state() is None for state in gone) and not tasks_left())
    assert entries(store) == {}
    assert len(store.store._unwritten) == 0  # type: ignore[attr-defined]


@anyio_test
async def test_whoever_still_has_the_conversation_of_a_failed_run_has_all_of_it() -> None:
    store = FaultyStore(InMemoryToolResultStore(), writes={2: HANGS})
    states: list[State] = []

    def watch(state: State) -> None:
        states.append(state)

    task = asyncio.create_task(run(failing(store, after=[FunctionHook(function=watch)])))
    await asyncio.wait([task])
    assert task.exception() is not None
    await asyncio.sleep(0)
    assert whole(conversation(states[-1])) == [1, 2, 3]
    await until(lambda: not tasks_left())
    assert entries(store) == {}


@anyio_test
async def test_a_run_that_goes_on_although_its_last_hook_was_cancelled_returns_everything() -> None:
    """Somebody gives hooks a timeout."""
    store = FaultyStore(InMemoryToolResultStore(), writes={2: HANGS})
    behind = WriteBehindHook()

    class Timed:
        def run(self, state: State) -> None:
            raise NotImplementedError

        async def run_async(self, state: State) -> None:
            with anyio.move_on_after(0.05):
                await behind.run_async(state)

    agent = agent_with(offloading(store), model=ScriptedModel(work(3)))
    agent.hooks["after_run"] = [Timed()]  # type: ignore[list-item]
    messages = await run(agent)
    assert whole(messages) == [1, 2, 3]
    await until(lambda: not tasks_left())
    assert entries(store) == {}


@anyio_test
async def test_a_run_that_is_cancelled_on_its_way_out_is_undone_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """It has a reason to end, but has returned nothing: somebody's hook stands before haybaler's."""
    store = FaultyStore(InMemoryToolResultStore(), writes={2: HANGS})

    class Hanging:
        def run(self, state: State) -> None:
            raise NotImplementedError

        async def run_async(self, state: State) -> None:
            await store.hanging.wait_async()
            task.cancel()
            await asyncio.sleep(3600)

    agent = agent_with(offloading(store), model=ScriptedModel(work(3)))
    agent.hooks["after_run"].insert(0, Hanging())  # type: ignore[arg-type]
    task = asyncio.create_task(run(agent))
    with caplog.at_level(logging.WARNING):
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: not tasks_left())
    assert task.cancelled()
    assert entries(store) == {}
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@anyio_test
async def test_a_failed_write_of_a_failed_run_is_put_back_as_well(caplog: pytest.LogCaptureFixture) -> None:
    """It had failed before the run did, and was waiting for the next hook."""
    store = FaultyStore(InMemoryToolResultStore(), every_write=DOWN)
    states: list[State] = []

    def watch(state: State) -> None:
        states.append(state)

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages):
            await until(lambda: not tasks_left())
            raise RuntimeError("no answer")

    agent = agent_with(offloading(store), model=Model(work(6), meanwhile), after=[FunctionHook(function=watch)])
    with caplog.at_level(logging.WARNING):
        await asyncio.gather(asyncio.create_task(run(agent)), return_exceptions=True)
    assert whole(conversation(states[-1])) == [1, 2, 3]
    assert ["before their run ended" in record.message for record in caplog.records if record.levelno > 20] == [True]


@pytest.mark.usefixtures("brief")
def test_a_clean_up_that_is_cancelled_again_and_again_is_done_all_the_same() -> None:
    class Slow(InMemoryToolResultStore):
        async def _remove_many_async(self, paths: Any) -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await super()._remove_many_async(paths)

    store = FaultyStore(Slow(), writes={2: HANGS})

    async def main() -> None:
        await asyncio.gather(asyncio.create_task(run(failing(store))), return_exceptions=True)
        assert len(entries(store)) == 1
        for _ in range(10):
            for task in asyncio.all_tasks():
                if "write-behind" in task.get_name():
                    task.cancel()
            await asyncio.sleep(0)

    asyncio.run(main())
    assert entries(store) == {}


@pytest.mark.usefixtures("brief")
def test_a_clean_up_that_hangs_is_given_up() -> None:
    class Hanging(InMemoryToolResultStore):
        async def _remove_many_async(self, paths: Any) -> None:
            await asyncio.sleep(3600)

    store = FaultyStore(Hanging(), writes={2: HANGS})
    with pytest.raises(RuntimeError, match="no answer"):
        asyncio.run(run(failing(store)))
    assert len(entries(store)) == 1


# Agents that are not set up as they should be.


def half_registered(store: Any, model: Any) -> Agent:
    return Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(SIZE))],
        hooks={"before_run": [WriteBehindHook()], "before_llm": [offloading(store)]},
    )


@pytest.mark.parametrize("closing", ["at once", "later"])
def test_a_run_that_forgets_its_writes_gets_them_done_and_a_warning(
    closing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """There is no hook under `after_run`, and the loop is closed as soon as the run has returned."""
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.05))

    async def main() -> list[ChatMessage]:
        messages = await run(half_registered(store, ScriptedModel(work(3))))
        assert entries(store) == {}
        await asyncio.sleep(0.2 if closing == "later" else 0)
        return messages

    with caplog.at_level(logging.WARNING):
        messages = asyncio.run(main())
    assert set(pointers(messages)) == set(entries(store)) != set()
    assert any("after_run" in record.message for record in caplog.records)


def test_what_is_lost_then_is_at_least_said(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.01, error=OSError("disk full")))
    with caplog.at_level(logging.WARNING):
        asyncio.run(run(half_registered(store, ScriptedModel(work(3)))))
    assert any("lost" in record.message and vars(record)["tools"] == ["fetch"] for record in caplog.records)


@anyio_test
async def test_a_hook_at_the_end_only_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore(InMemoryToolResultStore())
    agent = half_registered(store, ScriptedModel(work(4)))
    agent.hooks = {"before_llm": agent.hooks["before_llm"], "after_run": agent.hooks["before_run"]}
    with caplog.at_level(logging.WARNING):
        messages = await run(agent)
    assert set(pointers(messages)) == set(entries(store))
    assert [record for record in caplog.records if "no effect" in record.message]
    assert tasks_left() == []


# Closing, and many at once.


@anyio_test
async def test_closing_waits_for_what_is_being_written() -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.03))
    order: list[int] = []
    hook = offloading(store)

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages) and not order:
            await until(lambda: store.in_flight > 0)
            await hook.close_async()
            order.append(store.in_flight)
            assert store.calls["close_async"] == 1

    messages = await run(agent_with(hook, model=Model(work(4), meanwhile)))
    assert order == [0]
    assert steps_whole(messages, store) == [1, 2, 3, 4]
    assert len(hook.compactor._ongoing) == 0  # type: ignore[attr-defined]


@anyio_test
@pytest.mark.usefixtures("brief")
async def test_closing_gives_up_what_hangs_and_the_run_gets_it_back() -> None:
    store = FaultyStore(InMemoryToolResultStore(), writes={2: HANGS})
    hook = offloading(store)
    closed: list[int] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages) and not closed:
            await store.hanging.wait_async()
            await hook.close_async()
            closed.append(len(entries(store)))

    messages = await run(agent_with(hook, model=Model(work(4), meanwhile)))
    assert closed == [0]
    assert steps_whole(messages, store) == [1, 2, 3, 4]
    assert set(pointers(messages)) == set(entries(store))


@anyio_test
async def test_closing_in_another_loop_leaves_this_loops_writes_alone() -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=HANGS)
    hook = offloading(store)
    writing: list[int] = []

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages) and not writing:
            await store.hanging.wait_async()
            await run_in_worker(lambda: asyncio.run(hook.close_async()))
            writing.append(store.in_flight)
            store.release()

    messages = await run(agent_with(hook, model=Model(work(4), meanwhile)))
    assert writing == [2]
    assert steps_whole(messages, store) == [1, 2, 3, 4]
    assert set(pointers(messages)) == set(entries(store))


def test_a_thousand_runs_share_one_compactor_and_nothing_else() -> None:
    """The hooks are called as an Agent calls them; a thousand Agents would take longer than all that is looked at."""
    shared = InMemoryToolResultStore()
    hook, behind = offloading(shared), WriteBehindHook()
    stores = [FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.05)) for _ in range(1_000)]
    schema = Agent(chat_generator=ScriptedModel(work(0))).resolved_state_schema
    states: list[weakref.ref[State]] = []
    most: list[int] = []

    async def one(store: Any) -> list[ChatMessage]:
        data = {"messages": history(3), "hook_context": {RESULT_STORE_CONTEXT_KEY: store}, "step_count": 0}
        state = State(schema=schema, data=data)
        states.append(weakref.ref(state))
        await behind.run_async(state)
        await hook.run_async(state)
        most.append(len(hook.compactor._ongoing))  # type: ignore[attr-defined]
        await behind.run_async(state)
        return conversation(state)

    async def everyone() -> list[list[ChatMessage]]:
        conversations = await asyncio.gather(*map(one, stores))
        assert tasks_left() == []
        return conversations

    for store, messages in zip(stores, asyncio.run(everyone()), strict=True):
        assert set(pointers(messages)) == set(entries(store)) != set()
        assert steps_whole(messages, store) == [1, 2, 3]
        assert len(store.store._unwritten) == 0  # type: ignore[attr-defined]
    assert max(most) > 10
    assert entries(shared) == {}
    assert len(states) == 1_000
    until_freed(states)
    assert len(hook.compactor._ongoing) == 0  # type: ignore[attr-defined]


def test_two_loops_in_two_threads_share_one_hook_and_one_store() -> None:
    memory = InMemoryToolResultStore()
    store = FaultyStore(memory, every_write=Fault(before=0.01))
    hook = offloading(store)
    agent = agent_with(hook, model=ScriptedModel(work(4)))
    conversations: list[list[ChatMessage]] = []

    async def main() -> None:
        for _ in range(3):
            conversations.append(await run(agent))
            await hook.close_async()

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(conversations) == 6
    assert {reference for messages in conversations for reference in pointers(messages)} == set(entries(store))
    assert all(steps_whole(messages, store) == [1, 2, 3, 4] for messages in conversations)
    assert len(memory._unwritten) == 0


@anyio_test
@pytest.mark.parametrize("ended", ["well", "failed"])
async def test_nothing_is_pinned_after_the_run(ended: str) -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=DOWN if ended == "failed" else Fault(before=0.01))
    hook = offloading(store)
    pinned: list[weakref.ref[Any]] = []

    def watch(state: State) -> None:
        pinned.append(weakref.ref(state))
        pinned.append(weakref.ref(run_writes(state)))
        pinned.extend(weakref.ref(write) for write in run_writes(state)._unsettled)

    started = history(5)
    model = ScriptedModel(work(6))
    agent = agent_with(hook, model=model, after=[FunctionHook(function=watch)])
    await agent.run_async(started)
    model.prompts.clear()
    pinned.extend(weakref.ref(message) for message in started)
    del started
    assert len(pinned) > 10
    await until(lambda: are_freed(pinned))


@anyio_test
async def test_what_is_confirmed_is_released_before_the_model_has_replied() -> None:
    """A reply may take minutes, and a tool hours."""
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.01))
    states: list[State] = []
    held: list[tuple[int, int, int]] = []

    def watch(state: State) -> None:
        states.append(state)

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages):
            for wait in (False, True):
                await until(lambda: not (wait and tasks_left()))  # noqa: B023 - it is awaited here
                held.append((len(run_writes(states[-1])._held), len(store.store._unwritten), len(entries(store))))  # type: ignore[attr-defined]

    agent = agent_with(offloading(store), model=Model(work(4), meanwhile), after=[FunctionHook(function=watch)])
    await run(agent)
    assert held[:2] == [(2, 2, 0), (0, 0, 2)]


@anyio_test
async def test_a_failed_run_whose_state_refers_to_itself_is_freed_all_the_same() -> None:
    """Somebody keeps the State in the run's context."""
    store = FaultyStore(InMemoryToolResultStore(), every_write=DOWN)
    states: list[weakref.ref[State]] = []

    def watch(state: State) -> None:
        state.data["hook_context"]["state"] = state
        states.append(weakref.ref(state))

    async def meanwhile(_: int, messages: list[ChatMessage]) -> None:
        if pointers(messages):
            await until(lambda: not tasks_left())
            raise RuntimeError("no answer")

    agent = agent_with(offloading(store), model=Model(work(6), meanwhile), after=[FunctionHook(function=watch)])
    with pytest.raises(RuntimeError, match="no answer"):
        await run(agent, hook_context={"kept": True})
    assert states
    await until(lambda: are_freed(states))


@anyio_test
async def test_a_copied_state_has_nothing_in_flight() -> None:
    store = FaultyStore(InMemoryToolResultStore(), every_write=Fault(before=0.01))
    copies: list[State] = []

    def watch(state: State) -> None:
        copies.append(copy.deepcopy(state))

    agent = agent_with(offloading(store), model=ScriptedModel(work(4)), after=[FunctionHook(function=watch)])
    await run(agent, hook_context={})
    assert pointers(conversation(copies[-1]))
    assert all(run_writes(state).was_opened is False for state in copies)
