"""What is kept for one run, by all hooks of the Agent together, and gone with it."""

from collections.abc import Sequence
from typing import Any

from haystack.components.agents.state.state import State
from haystack.dataclasses import ChatMessage

from haybaler.calibration import Anchor
from haybaler.conversation import run_task
from haybaler.counters.run import RunTokenCounter
from haybaler.economy import Pause

_ATTRIBUTE = "_haybaler_run"


class RunRecord:
    """
    The memory of one run: sizes of messages, the task, and what each hook remembers.

    One hook serves thousands of runs at once, and several hooks serve one run, so none of this can live in a hook. It
    lives on the run's `State` object, which Haystack makes anew for every run; a copy of the `State` starts afresh.

    :param task: The messages that the run was started with as its task; None as long as that is not known.
    """

    def __init__(self, task: tuple[ChatMessage, ...] | None = None) -> None:
        self._task = task
        self._anchors: dict[int, Anchor] = {}
        self._left: dict[int, list[ChatMessage]] = {}
        self._counters: dict[int, tuple[Any, RunTokenCounter]] = {}
        self._pauses: dict[int, tuple[object, Pause]] = {}

    @classmethod
    def of(cls, state: State) -> "RunRecord":
        """
        Return the record of a run.

        :param state: The Agent's live `State`.
        :returns: The record, made when a hook first asks for it.
        """
        record = vars(state).get(_ATTRIBUTE)
        if not isinstance(record, cls):
            record = cls()
            setattr(state, _ATTRIBUTE, record)
        return record

    @property
    def task(self) -> tuple[ChatMessage, ...]:
        """The messages that the run was started with as its task; empty if there are none, or before `find_task`."""
        return self._task or ()

    def find_task(self, messages: Sequence[ChatMessage]) -> None:
        """
        Find the task of the run, unless that has been done.

        :param messages: The conversation as the first hook sees it that is concerned with the task.
        """
        if self._task is None:
            self._task = tuple(messages[index] for index in run_task(messages))

    def counter(self, counter: Any) -> RunTokenCounter:
        """
        Return what has been counted with a counter in this run.

        :param counter: A hook's counter.
        :returns: The run's own counter around it, the same for all hooks that share the counter.
        """
        if id(counter) not in self._counters:
            # The counter is kept beside its wrapper, so that its id is not given to another one meanwhile.
            self._counters[id(counter)] = (counter, RunTokenCounter(counter))
        return self._counters[id(counter)][1]

    def anchor(self, counter: Any) -> Anchor | None:
        """
        Return what was last known of the conversation's beginning, in a counter's scale.

        :param counter: A hook's counter.
        :returns: The anchor, or None at the beginning of the run.
        """
        return self._anchors.get(id(counter))

    def set_anchor(self, counter: Any, anchor: Anchor) -> None:
        """
        Remember what is known of the conversation's beginning.

        :param counter: A hook's counter.
        :param anchor: The anchor.
        """
        self._anchors[id(counter)] = anchor

    def left(self, counter: Any) -> list[ChatMessage]:
        """
        Return what the last hook with a counter left for the model.

        :param counter: A hook's counter.
        :returns: The conversation; empty at the beginning of the run.
        """
        return self._left.get(id(counter), [])

    def set_left(self, counter: Any, messages: list[ChatMessage]) -> None:
        """
        Remember what a hook left for the model.

        :param counter: The hook's counter.
        :param messages: The conversation.
        """
        self._left[id(counter)] = list(messages)

    def pause(self, hook: object) -> Pause:
        """
        Return what a hook remembers of its attempts in this run.

        :param hook: The hook.
        :returns: Its own memory.
        """
        return self._pauses.setdefault(id(hook), (hook, Pause()))[1]

    def __reduce__(self) -> tuple[type["RunRecord"], tuple[tuple[ChatMessage, ...] | None]]:
        """A copy knows the task and nothing else: the copied messages are other objects."""
        return RunRecord, (self._task,)
