"""What a run brings along in the Agent's `hook_context`, and how it is read without copying it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

from haystack.components.agents.state.state import State

from haybaler.run_writes import RunWrites

# The run's own store, for hooks, compactors and the toolset: `agent.run(..., hook_context={KEY: store})`.
RESULT_STORE_CONTEXT_KEY = "tool_result_store"

# What `CompactionHook` adds for compactors: the messages that the run was started with as its task, a tuple.
RUN_TASK_CONTEXT_KEY = "haybaler_run_task"

# And: which part of the prompt that it changes a rewrite has to save if it does not reach the target, a number from 0
# to 1. `CompactionHook` discards rewrites that save less; a compactor that stores something decides before it does.
MINIMUM_GAIN_CONTEXT_KEY = "haybaler_minimum_gain"

# And: what the run has in flight, a `RunWrites`, for compactors that write behind its back.
RUN_WRITES_CONTEXT_KEY = "haybaler_run_writes"

# Haystack gives a sub-agent no `hook_context`. What it does inherit is the context of the tool call that it runs in.
_store_of_tool_call: ContextVar[Any | None] = ContextVar("haybaler_store_of_tool_call", default=None)

_WRITES_ATTRIBUTE = "_haybaler_writes"


def hook_context(state: State) -> Mapping[str, Any]:
    """
    Return the run's context itself. `State.get` would deep-copy it, with every client and lock in it.

    :param state: The Agent's live `State`.
    :returns: The context; empty if the run has none.
    """
    return state.data.get("hook_context") or {}


def own_store(state: State) -> Any | None:
    """
    Return the store that the run itself brought along.

    :param state: The Agent's live `State`.
    :returns: The store, or None.
    """
    return hook_context(state).get(RESULT_STORE_CONTEXT_KEY)


def run_writes(state: State) -> RunWrites:
    """
    Return what a run has in flight.

    :param state: The Agent's live `State`.
    :returns: The run's own object, made when it is first asked for.
    """
    writes = vars(state).get(_WRITES_ATTRIBUTE)
    if not isinstance(writes, RunWrites):
        writes = RunWrites()
        setattr(state, _WRITES_ATTRIBUTE, writes)
    return writes


def run_store(state: State) -> Any | None:
    """
    Return the store that the run brought along, or that the run brought inside whose tool it runs.

    :param state: The Agent's live `State`.
    :returns: The store, or None.
    """
    own = own_store(state)
    return own if own is not None else _store_of_tool_call.get()


@contextmanager
def inside_tool_call(store: Any) -> Iterator[None]:
    """
    Let every run that begins in the block, or in what the block starts, find a store.

    Nothing of it is left behind afterwards, however the block ends; only what was started inside keeps it.

    :param store: The store of the run whose tool is being called.
    """
    token = _store_of_tool_call.set(store)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is closed with its event loop is closed in another context
            _store_of_tool_call.reset(token)
