"""haybaler's parts in Haystack's hooks, Haystack's in haybaler's, and both kinds of hooks on one Agent."""

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import haystack.hooks.compaction as stock
import haystack.hooks.tool_result_offloading as stock_offloading
import haystack.token_counters as stock_counters
import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.utils.experimental import ExperimentalWarning
from tests.hooks.agents import Colour, ScriptedModel, both_colours, pages, tool, unpaired, work
from tests.hooks.parts import AsyncStore, CountingCounter, DropOldest, SyncStore, size_of

from haybaler import (
    AlwaysOffload,
    ApproximateTokenCounter,
    CompactionHook,
    InMemoryToolResultStore,
    NeverOffload,
    OffloadOverChars,
    OffloadOverTokens,
    SlidingWindowCompactor,
    TiktokenCounter,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultPruningCompactor,
)
from haybaler.references import compaction_mark, is_offloaded, offloaded_references

pytestmark = pytest.mark.filterwarnings("ignore::haystack.utils.experimental.ExperimentalWarning")

WINDOW = 8_000
PAGE = 2_400  # characters, a twelfth of the window


def agent(model: ScriptedModel, hooks: dict[Any, list[Any]], **settings: Any) -> Agent:
    return Agent(chat_generator=model, tools=[tool("fetch", pages(PAGE), **settings)], hooks=hooks)


def total(messages: list[ChatMessage]) -> int:
    return sum(map(size_of, messages))


def check(model: ScriptedModel, result: dict[str, Any], steps: int = 30) -> None:
    assert result["last_message"].text == "The answer."
    assert len(model.prompts) == steps + 1
    assert max(map(total, model.prompts)) < 0.9 * WINDOW
    assert all(prompt[0].text == "task" for prompt in model.prompts)
    assert all(unpaired(prompt) == [] for prompt in model.prompts)


def quiet(make: Callable[..., Any]) -> Callable[..., Any]:
    """Make something experimental while parameters are collected, where no filter of a test applies."""

    def made(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return make(*args, **kwargs)

    return made


def own_store(tmp_path: Path) -> Any:
    return InMemoryToolResultStore()


def stock_store(tmp_path: Path) -> Any:
    return stock_offloading.FileSystemToolResultStore(root=str(tmp_path))


def sync_store(tmp_path: Path) -> Any:
    return SyncStore()


def stock_offload_compactor(store: Any) -> Any:
    return stock.ToolResultOffloadCompactor(store=store)


STORES = [own_store, stock_store, sync_store]
COMPACTORS: dict[str, Callable[[Any], Any]] = {
    "stock sliding window": lambda store: stock.SlidingWindowCompactor(),
    "stock pruning": lambda store: stock.ToolResultPruningCompactor(),
    "stock offloading": stock_offload_compactor,
    "sliding window": lambda store: SlidingWindowCompactor(),
    "pruning": lambda store: ToolResultPruningCompactor(),
    "offloading": ToolResultOffloadCompactor,
}
COUNTERS: dict[str, Callable[[], Any]] = {
    "stock approximate": quiet(stock_counters.ApproximateTokenCounter),
    "stock tiktoken": quiet(lambda: stock_counters.TiktokenCounter(encoding="cl100k_base")),
    "approximate": ApproximateTokenCounter,
    "tiktoken": lambda: TiktokenCounter("cl100k_base"),
}
HOOKS: dict[str, type[Any]] = {"haybaler": CompactionHook, "stock": stock.CompactionHook}
OFFLOAD_HOOKS: dict[str, type[Any]] = {
    "haybaler": ToolResultOffloadHook,
    "stock": stock_offloading.ToolResultOffloadHook,
}


def figures(messages: list[ChatMessage], reply: ChatMessage) -> dict[str, int]:
    return {"prompt_tokens": total(messages) + 50, "completion_tokens": size_of(reply)}


@both_colours
@pytest.mark.parametrize("usage", [None, figures], ids=["no figures", "figures"])
@pytest.mark.parametrize("compactor", COMPACTORS.values(), ids=COMPACTORS)
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_every_compactor_works_in_both_hooks(
    colour: Colour, hook: Any, compactor: Any, usage: Any, tmp_path: Path, loop_guard: Any
) -> None:
    if hook is stock.CompactionHook:
        loop_guard.deactivate()  # Haystack's own hook calls what is synchronous on the loop
    store = stock_store(tmp_path)
    model = ScriptedModel(work(30), usage=usage)
    compacting = hook(compactor(store), context_window=WINDOW)
    result = colour.run(agent(model, {"before_llm": [compacting]}), "task")
    check(model, result)
    for message in result["messages"]:
        for reference in offloaded_references(message):
            assert store.read(reference) == pages(PAGE)(step=message.tool_call_results[0].origin.arguments["step"])


@both_colours
@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS)
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_every_counter_works_in_both_hooks(colour: Colour, hook: Any, counter: Any, loop_guard: Any) -> None:
    if hook is stock.CompactionHook:
        loop_guard.deactivate()
    model = ScriptedModel(work(30), usage=figures)
    compacting = hook(SlidingWindowCompactor(), context_window=WINDOW, token_counter=counter())
    check(model, colour.run(agent(model, {"before_llm": [compacting]}), "task"))


POLICIES: dict[str, tuple[Any, bool]] = {
    "stock always": (stock_offloading.AlwaysOffload(), True),
    "stock never": (stock_offloading.NeverOffload(), False),
    "stock over": (stock_offloading.OffloadOverChars(100), True),
    "stock not over": (stock_offloading.OffloadOverChars(PAGE), False),
    "always": (AlwaysOffload(), True),
    "never": (NeverOffload(), False),
    "over": (OffloadOverChars(100), True),
    "not over": (OffloadOverChars(PAGE), False),
    "over tokens": (OffloadOverTokens(PAGE // 4 - 1), True),
    "not over tokens": (OffloadOverTokens(PAGE // 2), False),
}


@both_colours
@pytest.mark.parametrize(("policy", "moves"), POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("hook", OFFLOAD_HOOKS.values(), ids=OFFLOAD_HOOKS)
def test_every_policy_and_store_works_in_both_hooks(
    colour: Colour, hook: Any, store: Any, policy: Any, moves: bool, tmp_path: Path, loop_guard: Any
) -> None:
    made = store(tmp_path)
    model = ScriptedModel(work(3))
    result = colour.run(agent(model, {"after_tool": [hook(made, {"*": policy})]}), "task")
    results = [message for message in result["messages"] if message.tool_call_results]
    assert [is_offloaded(message) for message in results] == [moves] * 3
    for step, message in enumerate(results, start=1):
        for reference in offloaded_references(message):
            assert made.read(reference) == pages(PAGE)(step=step)


@both_colours
@pytest.mark.parametrize("first", OFFLOAD_HOOKS, ids=lambda name: f"{name} first")
def test_two_offload_hooks_move_nothing_twice(colour: Colour, first: str) -> None:
    store = SyncStore()
    hooks = [hook(store, {"*": AlwaysOffload()}, preview_chars=0) for hook in OFFLOAD_HOOKS.values()]
    model = ScriptedModel(work(5, calls=2))
    result = colour.run(agent(model, {"after_tool": hooks if first == "haybaler" else hooks[::-1]}), "task")
    assert len(store) == 10
    assert sum(map(is_offloaded, result["messages"])) == 10


@both_colours
@pytest.mark.parametrize("usage", [None, figures], ids=["no figures", "figures"])
@pytest.mark.parametrize("compactor", ["sliding window", "pruning", "offloading"])
@pytest.mark.parametrize("first", HOOKS, ids=lambda name: f"{name} first")
def test_both_kinds_of_compaction_hooks_chained_do_not_disturb_each_other(
    colour: Colour, first: str, compactor: str, usage: Any, loop_guard: Any
) -> None:
    loop_guard.deactivate()
    store = SyncStore()
    hooks = [
        CompactionHook(COMPACTORS[compactor](store), context_window=WINDOW),
        stock.CompactionHook(COMPACTORS[f"stock {compactor}"](store), context_window=WINDOW),
    ]
    model = ScriptedModel(work(30), usage=usage)
    chained = hooks if first == "haybaler" else hooks[::-1]
    result = colour.run(agent(model, {"before_llm": chained}), "task")
    check(model, result)
    marked = [message for message in result["messages"] if compaction_mark(message) is not None]
    assert marked
    contents = [str(content) for content in store.entries.values()]
    assert len(contents) == len(set(contents))
    assert not [content for content in contents if content.startswith("Tool result offloaded")]
    assert not [m for m in marked for r in m.tool_call_results if str(r.result).count("offloaded to") > 1]
    if compactor == "sliding window":
        assert len([m for m in marked if "were removed" in (m.text or "")]) <= 2


@both_colours
@pytest.mark.parametrize("offload_hook", OFFLOAD_HOOKS.values(), ids=OFFLOAD_HOOKS)
@pytest.mark.parametrize("compactor", COMPACTORS.values(), ids=COMPACTORS)
@pytest.mark.parametrize("hook", HOOKS.values(), ids=HOOKS)
def test_pointers_of_either_offload_hook_are_never_pruned_or_moved_again(
    colour: Colour, hook: Any, compactor: Any, offload_hook: Any, loop_guard: Any
) -> None:
    loop_guard.deactivate()
    store = SyncStore()
    model = ScriptedModel(work(30))
    hooks: dict[Any, list[Any]] = {
        "before_llm": [hook(compactor(store), context_window=1_500)],
        "after_tool": [offload_hook(store, {"*": AlwaysOffload()})],
    }
    result = colour.run(agent(model, hooks), "task")
    assert len(store) == 30
    for message in result["messages"]:
        if message.tool_call_results:
            (reference,) = offloaded_references(message)
            assert reference in str(message.tool_call_results[0].result)


class SyncOnlyNative(SyncStore):
    """Says so where anything of it is called on the thread of the loop."""

    def write(self, *, key: str, content: str | bytes) -> str:
        off_the_loop()
        return super().write(key=key, content=content)


class SyncOnlyCounter(CountingCounter):
    counts_inline = False

    def count(self, messages: list[ChatMessage], tools: Any = None) -> int:
        off_the_loop()
        return super().count(messages, tools)


class SyncOnlyCompactor(DropOldest):
    def compact(self, messages: list[ChatMessage], target_tokens: int, token_counter: Any) -> list[ChatMessage] | None:
        off_the_loop()
        return super().compact(messages, target_tokens, token_counter)


class SyncOnlyPolicy(stock_offloading.AlwaysOffload):
    def should_offload(self, tool_name: str, result: str, state: Any) -> bool:
        off_the_loop()
        return True


def off_the_loop() -> None:
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        raise AssertionError("called on the event loop")


@pytest.mark.anyio
@pytest.mark.parametrize("store", [SyncOnlyNative, AsyncStore])
async def test_synchronous_parts_need_neither_the_loop_nor_its_default_executor(store: Any) -> None:
    """All threads of the default executor wait for this test's end."""
    made = store()
    model = ScriptedModel(work(30))
    end = threading.Event()
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(2)
    loop.set_default_executor(executor)
    for _ in range(4):
        loop.run_in_executor(None, end.wait)
    hooks: dict[Any, list[Any]] = {
        "before_llm": [
            CompactionHook(SyncOnlyCompactor(10), context_window=3_000, token_counter=SyncOnlyCounter()),
            CompactionHook(ToolResultOffloadCompactor(made), context_window=2_000, token_counter=SyncOnlyCounter()),
        ],
        "after_tool": [ToolResultOffloadHook(made, {"*": SyncOnlyPolicy()}, token_counter=SyncOnlyCounter())],
    }
    try:
        async with asyncio.timeout(60):
            result = await agent(model, hooks).run_async([ChatMessage.from_user("task")])
    finally:
        end.set()
    assert result["last_message"].text == "The answer."
    assert len(made.entries) == 30


@pytest.mark.parametrize("store", [SyncStore, AsyncStore, InMemoryToolResultStore])
@pytest.mark.parametrize("where", ["hook", "compactor"])
def test_a_store_with_one_colour_only_works_where_that_colour_is(store: Any, where: str) -> None:
    for colour in Colour:
        made = store()
        if where == "hook":
            hooks: dict[Any, list[Any]] = {"after_tool": [ToolResultOffloadHook(made, {"*": AlwaysOffload()})]}
        else:
            hooks = {"before_llm": [CompactionHook(ToolResultOffloadCompactor(made), context_window=WINDOW)]}
        model = ScriptedModel(work(20))
        result = colour.run(agent(model, hooks), "task")
        possible = not (store is AsyncStore and colour is Colour.SYNC)
        assert any(map(is_offloaded, result["messages"])) is possible
        assert result["last_message"].text == "The answer."
