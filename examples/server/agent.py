"""The Agent: built once, for all runs. What belongs to a run comes with the run."""

from typing import Annotated, Any

from anyio import to_thread
from haystack.components.agents import Agent
from haystack.tools import tool

from examples.research import source_tools
from examples.server.settings import Settings
from haybaler import (
    CompactionHook,
    InMemoryToolResultStore,
    OffloadOverTokens,
    SlidingWindowCompactor,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultToolset,
)

# A larger result goes to the store before the model sees it, in tokens.
LARGE_RESULT = 2_000
# How long a run waits for a store that does not answer; the result then stays in the conversation. In seconds.
WRITE_SECONDS = 3.0
MAX_STEPS = 50


@tool
async def read_module(name: Annotated[str, "The name of a module of Python's standard library"]) -> str:
    """Return the whole source of a module of Python's standard library."""
    # Haystack would leave the thread of a synchronous tool to itself when the run is cancelled; this one is waited for.
    return str(await to_thread.run_sync(lambda: source_tools.read_module.invoke(name=name)))


def build_agent(settings: Settings, model: Any) -> Agent:
    """
    Build the Agent.

    :param settings: For the context window.
    :param model: The chat generator.
    :returns: The Agent. Each of its runs needs a store in its `hook_context`.
    """
    # The hooks ask for one. It stays empty and closed, for each run brings its own. The real store is not given here,
    # because an Agent warms up its hooks at the beginning of each run: while a store is away, every run would wait.
    unused = InMemoryToolResultStore()
    window = settings.context_window
    return Agent(
        chat_generator=model,
        tools=[read_module, ToolResultToolset()],
        system_prompt="You are a careful researcher. You answer only what the sources say.",
        hooks={
            "after_tool": [
                ToolResultOffloadHook(unused, {"*": OffloadOverTokens(LARGE_RESULT)}, write_timeout=WRITE_SECONDS)
            ],
            "before_llm": [
                CompactionHook(ToolResultOffloadCompactor(unused, write_timeout=WRITE_SECONDS), context_window=window),
                CompactionHook(SlidingWindowCompactor(), context_window=window, compact_at=0.9),
            ],
        },
        max_agent_steps=MAX_STEPS,
    )
