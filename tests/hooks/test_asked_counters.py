"""A counter that has to be asked: rarely, for whole conversations only, and without ending a run."""

import logging
from collections.abc import Iterator

import pytest
from haystack.components.agents import Agent
from haystack.utils import Secret
from tests.hooks.agents import Colour, ScriptedModel, both_colours, tool, work
from tests.services.openai_endpoint import Endpoint, endpoint

from haybaler import CompactionHook, OpenAITokenCounter, SlidingWindowCompactor

WINDOW = 20_000
STEPS = 30

pytestmark = both_colours


@pytest.fixture
def server() -> Iterator[Endpoint]:
    with endpoint() as running:
        yield running


def run_agent(server: Endpoint, colour: Colour) -> ScriptedModel:
    counter = OpenAITokenCounter(
        "a-model", api_key=Secret.from_token("key"), api_base_url=server.url, timeout=5.0, max_retries=0
    )
    hook = CompactionHook(SlidingWindowCompactor(), context_window=WINDOW, token_counter=counter)
    model = ScriptedModel(work(STEPS))
    agent = Agent(
        chat_generator=model,
        tools=[tool("fetch", lambda **_: "政府今天宣布了新的经济政策" * 60)],
        hooks={"before_llm": [hook]},
        max_agent_steps=STEPS + 5,
    )
    colour.run(agent, "Look at everything.")
    colour.call(hook, "close")
    return model


def test_it_is_asked_at_most_once_a_step_and_only_near_the_trigger(server: Endpoint, colour: Colour) -> None:
    model = run_agent(server, colour)
    assert 1 <= len(server.requests) <= STEPS
    assert all(server.tokens(request["input"]) >= 0.5 * WINDOW for request in server.requests)
    assert min(len(after) - len(before) for before, after in zip(model.prompts, model.prompts[1:], strict=False)) < 0


def test_what_it_answers_decides(server: Endpoint, colour: Colour) -> None:
    """The endpoint sees several tokens in each character; an estimate by length sees a quarter of one."""
    model = run_agent(server, colour)
    true = [server.tokens(request["input"]) for request in server.requests]
    assert max(true) < WINDOW
    assert max(map(len, model.prompts)) < 2 * STEPS


@pytest.mark.parametrize("status", [400, 429, 503])
def test_if_it_fails_the_run_goes_on_with_estimates_and_one_warning(
    server: Endpoint, colour: Colour, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = status
    with caplog.at_level(logging.WARNING, logger="haybaler"):
        model = run_agent(server, colour)
    assert len(model.prompts) == STEPS + 1
    assert len(server.requests) == 1
    assert [record.getMessage() for record in caplog.records if "token counter failed" in record.getMessage()] != []
    assert len(caplog.records) == 1
