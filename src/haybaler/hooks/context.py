"""What a run brings along in the Agent's `hook_context`, and how it is read without copying it."""

from collections.abc import Mapping
from typing import Any

from haystack.components.agents.state.state import State

# The run's own store, for hooks, compactors and the toolset: `agent.run(..., hook_context={KEY: store})`.
RESULT_STORE_CONTEXT_KEY = "tool_result_store"

# What `CompactionHook` adds for compactors: the messages that the run was started with as its task, a tuple.
RUN_TASK_CONTEXT_KEY = "haybaler_run_task"


def hook_context(state: State) -> Mapping[str, Any]:
    """
    Return the run's context itself. `State.get` would deep-copy it, with every client and lock in it.

    :param state: The Agent's live `State`.
    :returns: The context; empty if the run has none.
    """
    return state.data.get("hook_context") or {}


def run_store(state: State) -> Any | None:
    """
    Return the store that the run brought along.

    :param state: The Agent's live `State`.
    :returns: The store, or None.
    """
    return hook_context(state).get(RESULT_STORE_CONTEXT_KEY)
