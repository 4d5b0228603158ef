"""Which results `ToolResultOffloadHook` moves, and what stays."""

import base64
import logging
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall
from tests.freed import until_freed
from tests.hooks.agents import Colour, agent_state, answered, both_colours, call, calling, conversation
from tests.hooks.parts import CountingCounter, SyncStore

from haybaler import (
    AlwaysOffload,
    InMemoryToolResultStore,
    NeverOffload,
    OffloadOverChars,
    OffloadOverTokens,
    ToolResultOffloadHook,
)
from haybaler.errors import ConfigurationError, StoreUnavailableError
from haybaler.references import is_offloaded, offloaded_references

pytestmark = both_colours

LONG = "a long result " * 100


class Named:
    """A policy that remembers for which tools it was asked, and says no."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log = log
        self.name = name

    def should_offload(self, tool_name: str, result: str, state: State) -> bool:
        self.log.append(self.name)
        return False

    def to_dict(self) -> dict[str, Any]:
        return {}


def step(*results: tuple[str, Any], error: bool = False) -> list[ChatMessage]:
    """Return a task and a step whose calls have these tools and results."""
    calls = [call(tool, number) for number, (tool, _) in enumerate(results, start=1)]
    answers = [answered(made, result, error=error) for made, (_, result) in zip(calls, results, strict=True)]
    return [ChatMessage.from_user("task"), calling(*calls), *answers]


def offload(
    colour: Colour,
    messages: list[ChatMessage],
    store: Any,
    strategies: Mapping[str | tuple[str, ...], Any] | None = None,
    **settings: Any,
) -> list[ChatMessage]:
    """Run a hook once over a conversation and return what it has become."""
    state = agent_state(messages)
    hook = ToolResultOffloadHook(store, strategies or {"*": AlwaysOffload()}, **settings)
    colour.call(hook, "run", state)
    return conversation(state)


@pytest.mark.parametrize(
    ("tool", "chosen"),
    [
        ("github__search", "exact"),
        ("github__list", "tuple"),
        ("github__get_issue", "longer pattern"),
        ("github__get", "pattern"),
        ("github__x", "pattern"),
        ("web", "second tuple"),
        ("GitHub__x", "wildcard"),
        ("sql_1", "pattern in a tuple"),
        ("x[1]", "exact with a bracket"),
        ("", "wildcard"),
    ],
)
@pytest.mark.parametrize("turned", [False, True], ids=["in order", "turned"])
def test_the_most_specific_key_decides(colour: Colour, tool: str, chosen: str, turned: bool) -> None:
    log: list[str] = []
    keys: dict[str | tuple[str, ...], str] = {
        "*": "wildcard",
        "github__*": "pattern",
        "github__get_*": "longer pattern",
        ("github__search", "github__list", "web"): "tuple",
        ("news", "sql_?"): "pattern in a tuple",
        ("web2", "web"): "second tuple",
        "github__search": "exact",
        "x[1]": "exact with a bracket",
    }
    if chosen == "second tuple":
        del keys[("github__search", "github__list", "web")]
    names = list(keys.items())
    strategies = {key: Named(log, name) for key, name in (reversed(names) if turned else names)}
    offload(colour, step((tool, LONG)), SyncStore(), strategies)
    assert log == [chosen]


def test_of_two_tuples_with_a_name_the_first_decides(colour: Colour) -> None:
    log: list[str] = []
    strategies: dict[str | tuple[str, ...], Any] = {
        ("web", "news"): Named(log, "first"),
        ("web2", "web"): Named(log, "second"),
    }
    offload(colour, step(("web", LONG)), SyncStore(), strategies)
    assert log == ["first"]


@pytest.mark.parametrize("patterns", [("?*", "*"), ("*", "?*"), ("*", "**"), ("???", "*"), ("*", "???")])
def test_of_two_patterns_with_equally_many_literals_the_first_decides(
    colour: Colour, patterns: tuple[str, str]
) -> None:
    log: list[str] = []
    offload(colour, step(("web", LONG)), SyncStore(), {pattern: Named(log, pattern) for pattern in patterns})
    assert log == [patterns[0]]


def test_no_policy_is_asked_about_an_empty_result(colour: Colour) -> None:
    log: list[str] = []
    offload(colour, step(("web", ""), ("web", LONG)), SyncStore(), {"*": Named(log, "asked")})
    assert log == ["asked"]


def test_strategies_may_be_changed_between_steps(colour: Colour) -> None:
    log: list[str] = []
    strategies: dict[str | tuple[str, ...], Any] = {"web": Named(log, "before")}
    hook: Any = ToolResultOffloadHook(SyncStore(), strategies)
    colour.call(hook, "run", agent_state(step(("web", LONG))))
    hook.offload_strategies["web"] = Named(log, "changed")
    colour.call(hook, "run", agent_state(step(("web", LONG))))
    hook.offload_strategies = {"*": Named(log, "replaced")}
    colour.call(hook, "run", agent_state(step(("web", LONG))))
    assert log == ["before", "changed", "replaced"]


@pytest.mark.parametrize("told", [StoreUnavailableError("down"), OSError("down"), None, 7], ids=repr)
def test_a_store_that_cannot_tell_a_reference_keeps_its_results_and_ends_no_run(
    colour: Colour, told: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Untold(InMemoryToolResultStore):
        def reference(self, key: str) -> str:
            if isinstance(told, Exception):
                raise told
            return told  # type: ignore[no-any-return]

    store = Untold()
    messages = step(("fetch", LONG), ("other", LONG))
    with caplog.at_level(logging.WARNING):
        after = offload(colour, messages, store)
    assert after == messages
    assert len(store) == 0
    assert [vars(record)["results"] for record in caplog.records] == [2]


def test_a_tool_without_a_key_stays(colour: Colour) -> None:
    store = InMemoryToolResultStore()
    messages = step(("other", LONG), ("fetch", LONG))
    after = offload(colour, messages, store, {"fetch": AlwaysOffload(), "f?": AlwaysOffload()})
    assert after[:3] == messages[:3]
    assert is_offloaded(after[3])
    assert len(store) == 1


def test_never_takes_a_tool_out_of_a_wildcard(colour: Colour) -> None:
    after = offload(
        colour,
        step(("time", LONG), ("fetch", LONG)),
        InMemoryToolResultStore(),
        {"*": AlwaysOffload(), "time": NeverOffload()},
    )
    assert [is_offloaded(message) for message in after] == [False, False, False, True]


def test_what_was_moved_can_be_read_and_keeps_its_origin(colour: Colour) -> None:
    store = InMemoryToolResultStore()
    messages = step(("fetch", LONG))
    messages[-1].meta["own"] = 1
    after = offload(colour, messages, store, preview_chars=6)
    result = after[-1].tool_call_results[0]
    (reference,) = offloaded_references(after[-1])
    assert store.read(reference) == LONG
    assert reference in str(result.result)
    assert "a long..." in str(result.result)
    assert result.origin == messages[-1].tool_call_results[0].origin
    assert not result.error
    assert after[-1].meta["own"] == 1
    assert messages[-1].tool_call_results[0].result == LONG  # the original is not touched


def test_results_of_this_step_are_found_behind_what_another_hook_has_added(colour: Colour) -> None:
    messages = [*step(("fetch", LONG), ("fetch", LONG)), ChatMessage.from_user("Note: be brief.")]
    after = offload(colour, messages, InMemoryToolResultStore())
    assert [is_offloaded(message) for message in after] == [False, False, True, True, False]


def test_results_of_this_step_are_found_around_what_another_hook_has_put_between(colour: Colour) -> None:
    messages = step(("fetch", LONG), ("fetch", LONG))
    messages.insert(3, ChatMessage.from_system("a note"))
    messages.append(ChatMessage.from_assistant("a remark of another hook"))
    after = offload(colour, messages, InMemoryToolResultStore())
    assert [is_offloaded(message) for message in after] == [False, False, True, False, True, False]


def test_results_of_earlier_steps_stay(colour: Colour) -> None:
    earlier, fresh = call("fetch", 1), call("fetch", 2)
    messages = [
        ChatMessage.from_user("task"),
        calling(earlier),
        answered(earlier, LONG),
        calling(fresh),
        answered(fresh, LONG),
    ]
    store = InMemoryToolResultStore()
    after = offload(colour, messages, store)
    assert [is_offloaded(message) for message in after] == [False, False, False, False, True]
    assert len(store) == 1


@pytest.mark.parametrize("call_id", [None, "same"])
def test_missing_and_equal_ids_are_told_apart_by_position(colour: Colour, call_id: str | None) -> None:
    store = InMemoryToolResultStore()
    calls = [call("fetch", number, call_id=call_id) for number in (1, 2)]
    messages = [calling(*calls), answered(calls[0], LONG + "one"), answered(calls[1], LONG + "two")]
    after = offload(colour, messages, store)
    assert [store.read(offloaded_references(message)[0]) for message in after[1:]] == [LONG + "one", LONG + "two"]


def test_equal_ids_in_two_runs_never_meet_in_one_store(colour: Colour) -> None:
    for store in (InMemoryToolResultStore(), SyncStore()):
        references = []
        for user in ("Alice", "Bob"):
            made = call("fetch", 1, call_id=None)
            after = offload(colour, [calling(made), answered(made, f"secret of {user} " * 100)], store)
            references += offloaded_references(after[-1])
        assert len(set(references)) == len(store) == 2
        assert "Alice" in str(store.read(references[0]))
        assert "Bob" in str(store.read(references[1]))


HOSTILE = [
    "x" * 300,
    "a\0b",
    "../../../../etc/passwd",
    "a/b",
    "/abs/x",
    "..\\..\\win",
    "con",
    "c:d",
    "tab\tline\nbreak",
    "mcp.server/tool name?*",
    "工具",
    "\ud800",
    "",
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize("call_id", ["id", "i" * 1_400, "../\0\n", None])
def test_hostile_names_and_ids_are_no_obstacle(colour: Colour, name: str, call_id: str | None) -> None:
    keys: list[str] = []

    class Keys(SyncStore):
        def write(self, *, key: str, content: str | bytes) -> str:
            keys.append(key)
            return super().write(key=key, content=content)

    made = ToolCall(tool_name=name, arguments={}, id=call_id)
    messages = [calling(made), answered(made, LONG)]
    store = InMemoryToolResultStore()
    for own in (store, Keys()):
        after = offload(colour, messages, own)
        assert own.read(offloaded_references(after[-1])[0]) == LONG
        assert "\n" not in str(after[-1].tool_call_results[0].result)
    (key,) = keys
    assert len(key) < 100
    assert key.isascii()
    assert not set(key) & set('/\\:*?"<>|\0\n\t ')
    assert not key.startswith(".")


def test_a_result_that_was_moved_is_not_held_on_to(colour: Colour) -> None:
    messages = step(("fetch", LONG))
    moved = weakref.ref(messages[-1])
    state = agent_state(messages)
    del messages
    colour.call(ToolResultOffloadHook(InMemoryToolResultStore(), {"*": AlwaysOffload()}), "run", state)
    assert is_offloaded(conversation(state)[-1])
    until_freed([moved])


def test_each_result_is_moved_once(colour: Colour) -> None:
    store = InMemoryToolResultStore()
    once = offload(colour, step(("fetch", LONG)), store, preview_chars=1_000)
    twice = offload(colour, once, store, preview_chars=0)
    assert twice == once
    assert len(store) == 1


def test_errors_stay_unless_told_otherwise(colour: Colour) -> None:
    store = InMemoryToolResultStore()
    messages = step(("fetch", LONG), error=True)
    assert offload(colour, messages, store) == messages
    after = offload(colour, messages, store, offload_errors=True)
    assert after[-1].tool_call_results[0].error
    assert is_offloaded(after[-1])
    assert len(store) == 1


@pytest.mark.parametrize("result", ["", [], [TextContent("")], [TextContent(""), TextContent("")]], ids=repr)
def test_empty_results_stay(colour: Colour, result: Any) -> None:
    store = InMemoryToolResultStore()
    messages = step(("fetch", result))
    assert offload(colour, messages, store) == messages
    assert len(store) == 0


def test_a_result_that_is_shorter_than_its_pointer_stays_and_is_never_written(colour: Colour) -> None:
    store = InMemoryToolResultStore()
    messages = step(("fetch", "42"), ("fetch", "x" * 120))
    assert offload(colour, messages, store) == messages
    assert len(store) == 0


def test_without_any_call_nothing_happens(colour: Colour) -> None:
    for messages in ([], [ChatMessage.from_user("task")], [ChatMessage.from_assistant("done")]):
        assert offload(colour, messages, InMemoryToolResultStore()) == messages


class Raising:
    def should_offload(self, tool_name: str, result: str, state: State) -> bool:
        raise ValueError(result)

    def to_dict(self) -> dict[str, Any]:
        return {}


def test_a_policy_that_raises_keeps_its_result_only(colour: Colour, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        after = offload(
            colour, step(("fetch", LONG), ("list", LONG)), SyncStore(), {"fetch": Raising(), "*": AlwaysOffload()}
        )
    assert [is_offloaded(message) for message in after[2:]] == [False, True]
    assert len(caplog.records) == 1
    assert "a long result" not in str(caplog.records[0].__dict__)
    assert vars(caplog.records[0])["tool"] == "fetch"


@pytest.mark.parametrize(("characters", "moved"), [(1_000, False), (1_001, True)])
def test_over_a_number_of_characters_means_over(colour: Colour, characters: int, moved: bool) -> None:
    messages = step(("fetch", "x" * characters))
    after = offload(colour, messages, SyncStore(), {"*": OffloadOverChars(1_000)})
    assert is_offloaded(after[-1]) is moved


@pytest.mark.parametrize(("tokens", "moved"), [(500, False), (501, True)])
def test_over_a_number_of_tokens_means_as_the_hooks_counter_sees_it(colour: Colour, tokens: int, moved: bool) -> None:
    messages = step(("fetch", "x" * 4 * tokens))
    after = offload(colour, messages, SyncStore(), {"*": OffloadOverTokens(500)}, token_counter=CountingCounter())
    assert is_offloaded(after[-1]) is moved


PICTURE = ImageContent(base64_image=base64.b64encode(bytes(6_000)).decode(), mime_type="image/png", validation=False)


def test_an_image_counts_by_its_price_in_tokens_not_by_its_base64_length(colour: Colour) -> None:
    """8 kB of base64 that cost 85 tokens."""
    messages = step(("look", [PICTURE]))
    store = InMemoryToolResultStore()
    assert offload(colour, messages, store, {"*": OffloadOverTokens(100)}) == messages
    assert is_offloaded(offload(colour, messages, store, {"*": OffloadOverTokens(80)})[-1])
    many = step(("look", [PICTURE] * 20))
    after = offload(colour, many, store, {"*": OffloadOverTokens(1_000)}, preview_chars=0)
    assert [store.read(reference) for reference in offloaded_references(after[-1])] == [bytes(6_000)] * 20


def test_every_part_goes_to_an_entry_of_its_own_in_type_and_order(colour: Colour) -> None:
    data = base64.b64encode(b"%PDF-1.7").decode()
    parts = [
        TextContent(LONG),
        PICTURE,
        FileContent(base64_data=data, mime_type="application/pdf", filename="a'b\n.pdf", validation=False),
    ]
    store = InMemoryToolResultStore()
    after = offload(colour, step(("fetch", parts)), store)
    assert [store.read(reference) for reference in offloaded_references(after[-1])] == [LONG, bytes(6_000), b"%PDF-1.7"]
    pointer = str(after[-1].tool_call_results[0].result)
    assert len(pointer.splitlines()) == 4


class TextOnly(SyncStore):
    supports_binary_content = False

    def write(self, *, key: str, content: str | bytes) -> str:
        assert isinstance(content, str)
        return super().write(key=key, content=content)


def test_a_text_only_store_gets_text_only(colour: Colour, caplog: pytest.LogCaptureFixture) -> None:
    store = TextOnly()
    messages = step(("look", [TextContent(LONG), PICTURE]), ("fetch", LONG), ("fetch", [TextContent(LONG)]))
    with caplog.at_level(logging.WARNING):
        after = offload(colour, messages, store)
    assert [is_offloaded(message) for message in after[2:]] == [False, True, True]
    assert len(store) == 2
    assert len(caplog.records) == 1


def test_content_that_cannot_be_decoded_stays(colour: Colour, caplog: pytest.LogCaptureFixture) -> None:
    broken = ImageContent(base64_image="not base64!" * 1_000, mime_type="image/png", validation=False)
    messages = step(("look", [TextContent(LONG), broken]))
    with caplog.at_level(logging.WARNING):
        assert offload(colour, messages, InMemoryToolResultStore()) == messages
    assert len(caplog.records) == 1


def test_a_message_with_two_results_keeps_the_one_that_is_not_chosen(colour: Colour) -> None:
    calls = [call("fetch", 1), call("time", 2)]
    results = [answered(made, LONG).tool_call_results[0] for made in calls]
    both = replace(answered(calls[0], ""), _content=results)
    store = InMemoryToolResultStore()
    after = offload(colour, [calling(*calls), both], store, {"fetch": AlwaysOffload()})
    first, second = after[-1].tool_call_results
    assert "offloaded" in str(first.result)
    assert second.result == LONG
    assert len(store) == 1


def test_the_runs_own_store_is_used_even_while_it_is_empty(colour: Colour) -> None:
    """An empty store with a length is falsy."""
    shared, own = SyncStore(), SyncStore()
    state = agent_state(step(("fetch", LONG)), hook_context={"tool_result_store": own})
    colour.call(ToolResultOffloadHook(shared, {"*": AlwaysOffload()}), "run", state)
    assert (len(shared), len(own)) == (0, 1)


def test_results_that_were_read_back_stay_under_any_policy(colour: Colour) -> None:
    messages = step(("read_tool_result", LONG), ("search_tool_result", LONG), ("fetch", LONG))
    strategies: dict[str | tuple[str, ...], Any] = {
        "*": AlwaysOffload(),
        "read_tool_result": AlwaysOffload(),
        ("search_tool_result", "x"): OffloadOverChars(0),
    }
    after = offload(colour, messages, SyncStore(), strategies)
    assert [is_offloaded(message) for message in after[2:]] == [False, False, True]


@pytest.mark.parametrize("turned", [False, True])
def test_what_stands_in_one_message_with_a_result_that_was_read_back_stays_with_it(
    colour: Colour, turned: bool
) -> None:
    task, made, *answers = step(("read_tool_result", LONG), ("fetch", LONG))
    results = [message.tool_call_results[0] for message in (reversed(answers) if turned else answers)]
    messages = [task, made, replace(answers[0], _content=results)]
    store = InMemoryToolResultStore()
    assert offload(colour, messages, store) == messages
    assert len(store) == 0


def test_a_negative_preview_is_refused(colour: Colour) -> None:
    with pytest.raises(ConfigurationError, match="preview_chars"):
        ToolResultOffloadHook(SyncStore(), {}, preview_chars=-1)
    for policy in (OffloadOverChars, OffloadOverTokens):
        with pytest.raises(ConfigurationError, match="threshold"):
            policy(-1)


class Unwilling(Named):
    """A policy that cannot even be asked how it wants to be asked."""

    @property
    def should_offload_tokens(self) -> Any:
        raise OSError


def test_a_policy_that_fails_to_say_what_it_is_ends_nothing(colour: Colour) -> None:
    log: list[str] = []
    offload(colour, step(("web", LONG)), SyncStore(), {"*": Unwilling(log, "asked")})
    assert log == ["asked"]


class Asynchronous:
    async def should_offload(self, tool_name: str, result: str, state: State) -> bool:
        return True

    def to_dict(self) -> dict[str, Any]:
        return {}


def test_a_policy_that_would_have_to_be_awaited_counts_as_failed(
    colour: Colour, caplog: pytest.LogCaptureFixture
) -> None:
    """A coroutine object is true."""
    messages = step(("fetch", LONG))
    with caplog.at_level(logging.WARNING):
        assert offload(colour, messages, SyncStore(), {"*": Asynchronous()}) == messages
    assert len(caplog.records) == 1
