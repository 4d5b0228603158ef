"""Whatever is said in the middle of a run, the model sees the run's own task to the end."""

from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage
from haystack.hooks import FunctionHook
from haystack.hooks.human_in_the_loop import (
    AlwaysAskPolicy,
    BlockingConfirmationStrategy,
    ConfirmationHook,
    ConfirmationUIResult,
)
from tests.hooks.agents import Colour, ScriptedModel, both_colours, pages, steps_done, tool, unpaired, work

from haybaler import CompactionHook, SlidingWindowCompactor, ToolResultPruningCompactor

TASK = "Find out why the bridge fell."


def hooks(**others: list[Any]) -> dict[Any, list[Any]]:
    window = CompactionHook(SlidingWindowCompactor(), context_window=1_500)
    return {**others, "before_llm": [*others.get("before_llm", []), window]}


def check(model: ScriptedModel, steps: int) -> None:
    assert len(model.prompts) > steps
    assert any(len(later) < len(earlier) for earlier, later in zip(model.prompts, model.prompts[1:], strict=False))
    for prompt in model.prompts:
        assert [message.text for message in prompt].count(TASK) == 1
        assert unpaired(prompt) == []
        assert len([m for m in prompt if "were removed" in (m.text or "")]) <= 1


def remark(state: State) -> None:
    state.set("messages", [ChatMessage.from_user("A remark.")])


@both_colours
def test_when_a_hook_nudges_the_model_to_go_on(colour: Colour) -> None:
    """As in the Agent's own docstring."""

    def require_more(state: State) -> None:
        if steps_done(state.data["messages"]) < 20:
            state.set("messages", [ChatMessage.from_user("Call `fetch` before finishing.")])
            state.set("continue_run", True)

    def script(messages: list[ChatMessage]) -> ChatMessage:
        return work(20)(messages) if messages[-1].is_from("user") else ChatMessage.from_assistant("Enough?")

    model = ScriptedModel(script)
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(1_000))],
        hooks=hooks(on_exit=[FunctionHook(function=require_more)]),
        system_prompt="Be thorough.",
    )
    result = colour.run(agent, TASK)
    assert steps_done(result["messages"]) == 20
    check(model, 20)


class Editor:
    """A person who edits every call."""

    def get_user_confirmation(
        self, tool_name: str, tool_description: str, tool_params: dict[str, Any]
    ) -> ConfirmationUIResult:
        return ConfirmationUIResult(
            action="modify", feedback="Better so.", new_tool_params={**tool_params, "edited": True}
        )

    def to_dict(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Editor":
        return cls()


@both_colours
@pytest.mark.parametrize("usage", [None, 1], ids=["no figures", "figures"])
def test_when_a_person_edits_the_calls(colour: Colour, usage: int | None) -> None:
    """The feedback is a message of the user's role."""

    def figures(messages: list[ChatMessage], reply: ChatMessage) -> dict[str, int]:
        return {"prompt_tokens": sum(len(str(message.to_dict())) for message in messages) // 5}

    strategy = BlockingConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=Editor())
    model = ScriptedModel(work(15), usage=figures if usage else None)
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(1_000))],
        hooks=hooks(before_tool=[ConfirmationHook({"fetch": strategy})]),
    )
    result = colour.run(agent, TASK)
    assert any("Better so." in (message.text or "") for message in result["messages"])
    check(model, 15)


@both_colours
def test_when_hooks_append_remarks_of_the_users_role(colour: Colour) -> None:
    def numbered(state: State) -> None:
        state.set("messages", [ChatMessage.from_user(f"Remark {state.data['step_count']}: go on.")])

    model = ScriptedModel(work(15))
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(1_000))],
        hooks=hooks(after_tool=[FunctionHook(function=numbered)]),
    )
    colour.run(agent, TASK)
    check(model, 15)
    for step, prompt in enumerate(model.prompts[1:]):
        assert f"Remark {step}: go on." in [message.text for message in prompt]


@both_colours
def test_when_a_hook_copies_every_message(colour: Colour) -> None:
    def copy(state: State) -> None:
        state.data["messages"] = [ChatMessage.from_dict(m.to_dict()) for m in state.data["messages"]]

    model = ScriptedModel(work(15))
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(1_000))],
        hooks=hooks(
            before_llm=[FunctionHook(function=copy)],
            after_tool=[FunctionHook(function=remark)],
        ),
    )
    colour.run(agent, TASK)
    check(model, 15)


@both_colours
def test_when_the_conversation_began_long_before(colour: Colour) -> None:
    history = [
        message
        for turn in range(8)
        for message in (ChatMessage.from_user(f"Question {turn} " * 40), ChatMessage.from_assistant("Answer " * 40))
    ]
    model = ScriptedModel(work(15))
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(1_000))],
        hooks=hooks(after_tool=[FunctionHook(function=remark)]),
        system_prompt="Be thorough.",
    )
    colour.run(agent, [*history, ChatMessage.from_user("Read this:"), ChatMessage.from_user(TASK)])
    check(model, 15)
    for prompt in model.prompts:
        texts = [message.text for message in prompt]
        assert texts[0] == "Be thorough."
        assert texts[texts.index(TASK) - 1] == "Read this:"


@both_colours
def test_when_another_compactor_comes_first(colour: Colour) -> None:
    model = ScriptedModel(work(25))
    pruning = CompactionHook(ToolResultPruningCompactor(), context_window=1_500)
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", pages(1_000))],
        hooks=hooks(before_llm=[pruning], after_tool=[FunctionHook(function=remark)]),
    )
    colour.run(agent, TASK)
    check(model, 25)
