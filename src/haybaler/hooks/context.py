"""What a run brings along in the Agent's `hook_context`, and how it is read without copying it."""

from asyncio import current_task
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from threading import get_ident
from typing import Any
from weakref import ref

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

_WRITES_ATTRIBUTE = "_haybaler_writes"


def hook_context(state: State) -> Mapping[str, Any]:
    """
    Return the run's context itself. `State.get` would deep-copy it, with every client and lock in it.

    :param state: The Agent's live `State`.
    :returns: The context; empty if the run has none.
    """
    return state.data.get("hook_context") or {}


def run_store(state: State) -> Any | None:
    """
    Return the store that the run brought along, or that the run brought whose tool it is.

    :param state: The Agent's live `State`.
    :returns: The store, or None.
    """
    own = hook_context(state).get(RESULT_STORE_CONTEXT_KEY)
    return own if own is not None else _store_of_outer_run(state)


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


@dataclass(frozen=True, slots=True)
class _Running:
    state: "ref[State]"
    place: int  # the task, or the thread outside of event loops, in which the run's hooks are called
    store: Any  # for the runs inside its tools
    inherited: Any  # from the run whose tool it is itself


# Haystack gives a sub-agent no `hook_context`. What it does inherit is the context of the tool call it runs in.
_running: ContextVar[_Running | None] = ContextVar("haybaler_running", default=None)


def announce_run(state: State) -> None:
    """
    Let the runs inside a run's tools find its store. Called by each hook.

    :param state: The Agent's live `State`.
    """
    _running.set(_Running(ref(state), _place(), run_store(state), _store_of_outer_run(state)))


def _store_of_outer_run(state: State) -> Any | None:
    """
    Return the store of the run whose tool this run is.

    An earlier run in the same task or thread left its name as well. It is told by this: its tools are not being
    called any more, or this is the very place where it ran itself, which a tool call never is.
    """
    running = _running.get()
    outer = running.state() if running else None
    if running is not None and outer is state:
        return running.inherited  # found when the run's first hook announced it
    if running is None or outer is None or running.place == _place():
        return None
    messages = outer.data.get("messages") or []
    return running.store if messages and messages[-1].tool_calls else None


def _place() -> int:
    try:
        return id(current_task())
    except RuntimeError:
        return get_ident()
