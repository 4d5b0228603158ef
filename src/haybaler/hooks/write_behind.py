"""The hook that a run's writes in flight belong to, and what all hooks do with them."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self
from weakref import ref

from haystack.components.agents.state.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.core.serialization import default_from_dict, default_to_dict

from haybaler.effects import Effect, Steps, await_effect, is_asynchronous, perform, perform_async
from haybaler.hooks.context import run_writes
from haybaler.offloading import log_failures
from haybaler.swaps import Swap, undone


class WriteBehindHook:
    """
    Lets the runs of an Agent write tool results while the model is already being called.

    A `ToolResultOffloadCompactor` with `write_behind=True` only does so in Agents that have this hook, at the beginning
    and at the end of their runs:

    ```python
    behind = WriteBehindHook()
    compaction = CompactionHook(ToolResultOffloadCompactor(store, write_behind=True), context_window=400_000)
    hooks = {"before_run": [behind], "before_llm": [compaction], "after_run": [behind]}  # for the Agent
    ```

    At the end it waits for what is still being written. What could not be stored is put back into the conversation
    before the run returns it. Synchronous runs write at once; there it does nothing.
    """

    allowed_hook_points: ClassVar[tuple[str, ...]] = ("before_run", "after_run")

    def run(self, state: State) -> None:
        """
        Do nothing: a synchronous run has nothing in flight.

        :param state: The Agent's live `State`.
        """
        perform(self._steps(state))

    async def run_async(self, state: State) -> None:
        """
        Open the run for writes in flight, or, when it is called again, wait for them.

        :param state: The Agent's live `State`; `messages` is replaced if a result has to be put back.
        """
        await perform_async(self._steps(state))

    def _steps(self, state: State) -> Steps[None]:
        writes = run_writes(state)
        if writes.was_opened:
            writes.close()
            try:
                yield from settle(state)
            except GeneratorExit:
                raise  # abandoned together with its event loop: nothing can be stopped any more
            except BaseException:
                writes.end(_undo_later(state))  # whatever becomes of the run, it is told of nothing unconfirmed
                raise
            writes.end(_undo_later(state))
        elif (yield from is_asynchronous()):
            writes.open(state, _undo_later(state))

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the hook.

        :returns: A dictionary with `type` and `init_parameters`.
        """
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Build the hook again.

        :param data: What `to_dict` returned.
        :returns: The hook.
        """
        return default_from_dict(cls, data)


def settle(state: State) -> Steps[bool]:
    """
    Wait for the batches of earlier steps, at the end of a run for all, and put back what could not be written.

    :param state: The Agent's live `State`.
    :returns: Steps that end in whether anything was put back.
    """
    writes = run_writes(state)
    changed = False
    for write in writes.due(state.data.get("step_count")):
        yield from await_effect(Effect(_nothing, write.wait))
        if write.task.done():  # a synchronous caller cannot wait for it
            changed = _undo(state, write.unconfirmed) or changed
            writes.settle(write)
            log_failures(write.failures, write.batch.store)
    return changed


def start_writes(state: State) -> None:
    """
    Begin to write what the pointers lead to that have just been put into the conversation.

    :param state: The Agent's live `State`.
    """
    data = state.data
    begun = (data.get("exit_reason"), data.get("step_count"))

    def has_returned() -> bool:
        # A reason may be left from an exit that a hook has prevented.
        return data.get("exit_reason") is not None and begun != (data.get("exit_reason"), data.get("step_count"))

    run_writes(state).start(data["messages"], data.get("step_count"), has_returned)


def _undo(state: State, swaps: Sequence[Swap]) -> bool:
    messages = state.data.get("messages") or []
    restored = undone(swaps, messages) if swaps else messages
    if all(old is new for old, new in zip(messages, restored, strict=True)):
        return False
    state.set("messages", restored, handler_override=replace_values)
    return True


def _undo_later(state: State) -> Callable[[Sequence[Swap]], None]:
    known = ref(state)

    def undo(swaps: Sequence[Swap]) -> None:
        if (there := known()) is not None:
            _undo(there, swaps)

    return undo


def _nothing() -> None:
    return None
