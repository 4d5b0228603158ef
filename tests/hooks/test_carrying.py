"""The stand-ins for tools that hand a run's store on: the tools themselves in all but what is set during a call."""

import copy
from collections.abc import Generator
from contextlib import suppress
from contextvars import Context
from threading import Lock
from types import coroutine
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.components.generators.chat import MockChatGenerator
from haystack.tools import AgentTool
from haystack.tools.errors import ToolInvocationError
from haystack.tools.tool import Tool

from haybaler import InMemoryToolResultStore as Store
from haybaler.hooks.carrying import carrying, is_carrying
from haybaler.hooks.context import run_store


class Releasing(Tool):
    """Closes its connection when it is collected, as tools of servers do."""

    released = 0

    def __del__(self) -> None:
        type(self).released += 1


class Overriding(Tool):
    def invoke(self, **kwargs: Any) -> Any:
        return f"overridden {kwargs}"

    def __copy__(self) -> "Overriding":
        raise AssertionError("copied")


def test_a_stand_in_is_the_tool_in_all_but_its_calls() -> None:
    original = AgentTool(Agent(chat_generator=MockChatGenerator("Done.")), name="a", description="b")
    stand_in = carrying(original, Store())
    assert type(stand_in) is AgentTool
    assert (is_carrying(stand_in), is_carrying(original)) == (True, False)
    assert stand_in == original
    assert stand_in.to_dict() == original.to_dict()
    store = Store()
    again = carrying(stand_in, store)
    assert carrying(again, store) is again
    assert vars(again)["_haybaler_carrier"].tool is original
    assert carrying(Overriding("a", "b", {}, print), Store()).invoke(tool=1, store=2, arguments=3) == (
        "overridden {'tool': 1, 'store': 2, 'arguments': 3}"
    )


def test_a_stand_in_can_be_copied_where_its_store_cannot() -> None:
    """`State.get("tools")` does so."""
    store = Lock()  # as good as a store that holds one
    found: list[Any] = []

    def research(step: int) -> None:
        found.append((step, run_store(State({}))))

    copied = copy.deepcopy([carrying(Tool("a", "b", {}, research), store)])[0]
    assert is_carrying(copied)
    copied.invoke(step=1)
    assert found == [(1, store)]


@pytest.mark.anyio
@pytest.mark.parametrize("is_failing", [False, True])
async def test_nothing_is_left_where_a_stand_in_was_called(is_failing: bool) -> None:
    """A hook may call a tool itself, in the context of the run."""
    own, found = Store(), []

    def call(**_: Any) -> None:
        found.append(run_store(State({})))
        if is_failing:
            raise ValueError("broken")

    async def call_async(**_: Any) -> None:
        call()

    stand_in = carrying(Tool("a", "b", {}, call, async_function=call_async), own)
    with suppress(ToolInvocationError):
        stand_in.invoke()
    assert run_store(State({})) is None
    with suppress(ToolInvocationError):
        await stand_in.invoke_async()
    assert run_store(State({})) is None
    assert found == [own, own]


def test_a_stand_in_that_is_closed_in_another_context_warns_of_nothing() -> None:
    """So ends a coroutine whose event loop was closed before it."""

    @coroutine
    def suspended() -> Generator[None, None, None]:
        yield

    async def wait(**_: Any) -> None:
        await suspended()

    calling_it = carrying(Tool("a", "b", {}, async_function=wait), Store()).invoke_async()
    Context().run(calling_it.send, None)
    calling_it.close()
    assert run_store(State({})) is None


def test_a_tool_that_releases_something_when_it_is_collected_is_left_alone() -> None:
    original = Releasing("a", "b", {}, print)
    assert carrying(original, Store()) is original
    assert Releasing.released == 0
    del original
    assert Releasing.released == 1
