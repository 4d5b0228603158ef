"""The toolset as an object of Haystack: its tools, its copies for runs, its lifecycle and its serialized form."""

import copy
import json
from typing import Any

import anyio
import pytest
from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.core.errors import DeserializationError
from haystack.core.serialization import allow_deserialization_module
from haystack.dataclasses import ChatMessage
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from tests.hooks.agents import Colour, ScriptedModel, both_colours
from tests.tools.calling import READ, SEARCH
from tests.tools.stores import LifecycleStore, SettingsStore, SyncStore

from haybaler.errors import ConfigurationError, NotSerializableError, StoreUnavailableError
from haybaler.references import READ_BACK_TOOL_NAMES
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.tools import ResultTool, ToolResultToolset


@pytest.fixture(autouse=True)
def allowed() -> None:
    for module in ("haybaler*", "tests*"):
        allow_deserialization_module(module)


def test_the_tools_have_the_names_that_are_never_stored_again() -> None:
    assert {tool.name for tool in ToolResultToolset()} == READ_BACK_TOOL_NAMES == {READ, SEARCH}


def test_the_schemas_name_the_arguments_and_their_limits() -> None:
    read, search = ToolResultToolset(page_chars=500, max_matches=3)
    for tool in (read, search):
        json.dumps(tool.tool_spec)
    assert list(read.parameters["properties"]) == ["reference", "offset", "limit"]
    assert read.parameters["required"] == ["reference"]
    assert read.parameters["properties"]["limit"]["maximum"] == 500
    assert search.parameters["required"] == ["reference", "pattern"]
    assert search.parameters["properties"]["max_matches"]["maximum"] == 3


def test_the_toolset_is_made_without_a_file_a_network_or_a_loop() -> None:
    copy.deepcopy(ToolResultToolset(InMemoryToolResultStore()))


def test_further_tools_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="'other'"):
        ToolResultToolset().add(Tool("other", "Does nothing.", {"type": "object"}, lambda: None))


@pytest.mark.parametrize("names", [None, {READ}, {SEARCH}, {READ, SEARCH}, set[str]()])
def test_a_copy_for_a_run_has_the_selected_tools_and_shares_none(names: set[str] | None) -> None:
    toolset = ToolResultToolset(InMemoryToolResultStore(), page_chars=10)
    spawned = toolset.spawn(names)
    assert spawned is not toolset
    assert {tool.name for tool in spawned} == ({READ, SEARCH} if names is None else names)
    assert not {id(tool) for tool in spawned} & {id(tool) for tool in toolset}
    assert spawned.store is toolset.store
    assert spawned.limits == toolset.limits


def test_a_copy_for_a_run_is_not_validated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    toolset = ToolResultToolset(SyncStore(ref="mine"))
    monkeypatch.delattr(Tool, "__post_init__")
    assert [tool.tool_spec for tool in toolset.spawn()] == [tool.tool_spec for tool in toolset]


def test_a_copy_of_a_bound_copy_is_not_bound() -> None:
    bound = ToolResultToolset(SyncStore(ref="mine")).spawn()
    assert isinstance(bound.tools[0], ResultTool)
    bound.tools[0].bind(SyncStore(ref="theirs"))
    assert bound.tools[0].invoke(reference="ref").endswith("theirs")
    assert bound.spawn().tools[0].invoke(reference="ref").endswith("mine")


def test_a_tool_that_runs_share_is_never_bound() -> None:
    [tool, _] = ToolResultToolset(SyncStore(ref="mine"))
    assert isinstance(tool, ResultTool)
    tool.bind(SyncStore(ref="theirs"))
    assert tool.invoke(reference="ref").endswith("mine")


def test_the_store_is_warmed_up_and_closed_in_both_colours() -> None:
    store = LifecycleStore()
    agent = Agent(chat_generator=MockChatGenerator("Done."), tools=[ToolResultToolset(store)])
    agent.warm_up()
    agent.close()
    anyio.run(agent.warm_up_async)
    anyio.run(agent.close_async)
    assert store.calls == ["warm_up", "close", "warm_up_async", "close"]


@pytest.mark.parametrize("store", [None, SyncStore()])
def test_a_store_without_a_lifecycle_needs_none(store: Any) -> None:
    toolset = ToolResultToolset(store)
    toolset.warm_up()
    toolset.close()
    anyio.run(toolset.warm_up_async)
    anyio.run(toolset.close_async)


def test_a_toolset_comes_back_from_its_serialized_form() -> None:
    toolset = ToolResultToolset(SettingsStore("here"), page_chars=7, max_matches=8, max_file_bytes=9)
    data = json.loads(json.dumps(toolset.to_dict()))
    kept = copy.deepcopy(data)
    again = ToolResultToolset.from_dict(data)
    assert data == kept
    assert isinstance(again.store, SettingsStore)
    assert (again.store.name, again.limits) == ("here", toolset.limits)
    assert again.to_dict() == toolset.to_dict()


@pytest.mark.parametrize("store", [None, InMemoryToolResultStore().scoped("a"), SettingsStore("x")])
@pytest.mark.parametrize("flat", [False, True])
def test_an_agent_comes_back_with_its_toolset(store: Any, flat: bool) -> None:
    toolset = ToolResultToolset(store, page_chars=99)
    own = [*toolset] if flat else [toolset]
    agent = Agent(chat_generator=MockChatGenerator("Done."), tools=own)
    again = Agent.from_dict(json.loads(json.dumps(agent.to_dict())))
    assert again.to_dict() == agent.to_dict()
    [first, *_] = again.tools
    assert isinstance(first, ResultTool if flat else ToolResultToolset)
    assert type(first.store) is type(store)
    assert first.limits.page_chars == 99


def test_an_agent_with_nothing_but_the_toolset_comes_back() -> None:
    agent = Agent(chat_generator=MockChatGenerator("Done."), tools=ToolResultToolset())
    assert Agent.from_dict(agent.to_dict()).to_dict() == agent.to_dict()


def test_a_toolset_of_haystack_can_hold_the_tools() -> None:
    toolset = Toolset([*ToolResultToolset(SettingsStore("x"))])
    assert Toolset.from_dict(toolset.to_dict()).to_dict() == toolset.to_dict()


def test_a_store_that_cannot_be_serialized_is_named() -> None:
    toolset = ToolResultToolset(SyncStore())
    with pytest.raises(NotSerializableError, match="SyncStore"):
        toolset.to_dict()
    with pytest.raises(NotSerializableError, match="SyncStore"):
        toolset.tools[0].to_dict()


def test_a_store_of_a_module_that_is_not_allowed_is_refused() -> None:
    data = ToolResultToolset(SettingsStore("x")).to_dict()
    data["data"]["store"]["type"] = "subprocess.Popen"
    with pytest.raises(DeserializationError):
        ToolResultToolset.from_dict(data)


@both_colours
def test_a_store_that_is_away_when_a_run_begins_does_not_end_it(
    colour: Colour, caplog: pytest.LogCaptureFixture
) -> None:
    class Away(InMemoryToolResultStore):
        def warm_up(self) -> None:
            raise StoreUnavailableError("away: content")

        async def warm_up_async(self) -> None:
            self.warm_up()

    toolset = ToolResultToolset(Away())
    model = ScriptedModel(lambda messages: ChatMessage.from_assistant("Done."))
    result = colour.run(Agent(chat_generator=model, tools=toolset), "Go on.")
    assert result["messages"][-1].text == "Done."
    assert [record.__dict__["part"] for record in caplog.records] == ["Away"]
    assert "content" not in caplog.text
