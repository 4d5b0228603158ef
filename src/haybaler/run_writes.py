"""The batches that one run does not wait for: they belong to it, from its first hook to its last."""

import asyncio
import logging
from asyncio import AbstractEventLoop, Task
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from weakref import finalize, ref

from haystack.dataclasses import ChatMessage

from haybaler.in_flight import WriteInFlight
from haybaler.prepared import Batch
from haybaler.stores.driver import Content
from haybaler.stores.unwritten import Unwritten
from haybaler.swaps import Swap, standing

logger = logging.getLogger(__name__)


class RunWrites:
    """
    What a run has in flight, and whether it may have anything in flight at all.

    A batch has to belong to somebody who waits for it. So a run only writes behind its own back between `open`, which
    is called when it begins, and `close`, which is called before it returns. Where it ends in between, because it
    failed or was cancelled, that shows in its task, which is done, or in its `State`, which is gone: then its batches
    are given up, and the conversation, if anybody still has it, gets its results back.
    """

    def __init__(self) -> None:
        self.was_opened = False
        self._is_open = False
        self._is_closing = False
        self._is_trusted = True
        self._is_reminded = False
        self._held = Unwritten()
        self._prepared: list[Batch] = []
        self._unsettled: list[WriteInFlight] = []
        self._detach: Callable[[], object] = _nothing

    def open(self, run: object, undo: Callable[[Sequence[Swap]], None]) -> None:
        """
        Begin. Called in the run's own task.

        :param run: What lives as long as the run does; it is not kept alive.
        :param undo: Puts results back into the run's conversation, if it is still there. Must not keep `run` alive.
        """
        self.was_opened = self._is_open = True
        task = asyncio.current_task()
        if task is None:
            self._is_open = False
            return
        own = ref(task)  # a task that has failed refers to everything that was in its way
        gone = finalize(run, _call_in, asyncio.get_running_loop(), lambda: self.end(undo, returns=True))
        gone.atexit = False

        def task_is_done(task: "Task[Any]") -> None:
            self.end(undo, returns=not task.cancelled())

        def detach() -> None:
            gone.detach()
            if (known := own()) is not None:
                known.remove_done_callback(task_is_done)

        task.add_done_callback(task_is_done)
        self._detach = detach

    def close(self) -> None:
        """Take no further batches: the run is about to return, and waits for those in flight."""
        self._is_open = False
        self._is_closing = True

    def end(self, undo: Callable[[Sequence[Swap]], None], *, returns: bool = False) -> None:
        """
        End. If anything is still in flight, the run was cancelled or has failed, or nobody has closed it.

        :param undo: Puts results back into the run's conversation, if it is still there.
        :param returns: Whether somebody may get the conversation as it is now.
        """
        self._is_open = False
        self._detach()
        self._detach = _nothing
        unsettled, self._unsettled = self._unsettled, []
        left = [write for write in unsettled if returns and write.is_wanted]
        given_up = [write for write in unsettled if write not in left]
        undo([swap for write in given_up for swap in write.unconfirmed])
        for write in given_up:
            write.give_up()
        for write in left:
            write.leave()
        if left:
            logger.warning(
                "A run has ended without waiting for its tool results to be written. Is the WriteBehindHook registered "
                "under `after_run` as well?"
            )

    def accepts(self) -> bool:
        """
        Tell whether a batch may be written behind the run's back; where it never may, one warning says why.

        :returns: False before `open` and after `close`, and from the first write that failed on.
        """
        if not self.was_opened and not self._is_reminded:
            self._is_reminded = True
            logger.warning(
                "`write_behind` has no effect in this run: its Agent has no WriteBehindHook under `before_run` and "
                "`after_run`. Tool results are written at once."
            )
        return self._is_open and self._is_trusted

    def prepare(self, batch: Batch) -> None:
        """
        Take a batch whose pointers are about to be put into the run's conversation. Nothing is written yet.

        :param batch: The batch.
        """
        self._prepared.append(batch)

    def discard(self) -> None:
        """Forget what was prepared and not started."""
        self._prepared.clear()

    def start(self, messages: Sequence[ChatMessage], step: object, has_returned: Callable[[], bool]) -> None:
        """
        Begin to write what was prepared and is part of the run's conversation now. Does not wait for anything.

        :param messages: The conversation.
        :param step: The run's step.
        :param has_returned: Whether the run has returned.
        """
        prepared, self._prepared = self._prepared, []
        for batch in prepared:
            if swaps := standing(batch.swaps, messages):
                write = WriteInFlight(
                    batch.only(swaps),
                    step=step,
                    held=self._held,
                    has_returned=lambda: has_returned() and not self._is_closing,
                )
                self._unsettled.append(write)

    def due(self, step: object) -> list[WriteInFlight]:
        """
        Return the batches whose outcomes have to be known now.

        :param step: The run's step; unless the run is closing, what began in it may still be written.
        :returns: The batches of earlier steps, and those that are done.
        """
        return [write for write in self._unsettled if self._is_closing or write.step != step or write.task.done()]

    def settle(self, write: WriteInFlight) -> None:
        """
        Take a batch that is done off the list. If something of it has failed, the run writes at once from now on.

        :param write: The batch. Its failures have been undone.
        """
        self._unsettled.remove(write)
        self._is_trusted = self._is_trusted and not write.failures
        write.settled()

    def held(self, reference: object) -> Content | None:
        """
        Return what an entry holds that is not confirmed to be in the store.

        :param reference: What a model gave as its reference.
        :returns: The content, also of a write that has failed; None for anything else.
        """
        return self._held.get(reference)

    def __reduce__(self) -> tuple[type["RunWrites"], tuple[()]]:
        """A copy of a run's `State` is another run, with nothing in flight."""
        return RunWrites, ()


def _call_in(loop: AbstractEventLoop, function: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop is closed; it has stopped all its tasks before
        loop.call_soon_threadsafe(function)


def _nothing() -> None:
    return None
