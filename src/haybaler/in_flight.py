"""A batch that is written while its run goes on, by a task that ends with the write."""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Callable, Sequence

from haybaler.errors import StoreError, StoreTimeoutError
from haybaler.prepared import Batch, Judged, failure_fields
from haybaler.stores.outcomes import Outcome
from haybaler.stores.unwritten import Unwritten
from haybaler.stores.writing import CLEAN_UP_SECONDS, hold_contents, release_contents
from haybaler.swaps import Slot, Swap
from haybaler.workers import run_in_worker, see_through, uncancel

logger = logging.getLogger(__name__)

# So many outcomes are judged on the event loop, in well under a millisecond.
_INLINE_ITEMS = 100


class WriteInFlight:
    """
    The write of one batch. It ends by itself: with its entries there, or with swaps that have to be undone.

    Whoever stops its task, also an event loop that is being closed, makes it remove what it has written by then, as
    well as the store can within `CLEAN_UP_SECONDS`. Only if the run has returned its conversation with the pointers is
    the write seen through instead, within the same time.

    :param batch: What to write.
    :param step: The run's step in which it begins.
    :param held: Where the run looks for entries that are not confirmed.
    :param has_returned: Whether the run has returned its conversation without waiting.
    """

    def __init__(self, batch: Batch, *, step: object, held: Unwritten, has_returned: Callable[[], bool]) -> None:
        self.batch = batch
        self.step = step
        self._has_returned = has_returned
        # None as long as there are no outcomes; a task that is cancelled early enough never begins.
        self._failures: list[tuple[Swap, StoreError]] | None = None
        self._is_given_up = self._is_left = False
        # What has failed is held in the run's name to its end, in the store's until it is undone.
        self._of_run, self._of_store = batch.contents, dict(batch.contents)
        held.add(self._of_run)
        hold_contents(batch.store, self._of_store)
        self.task = asyncio.get_running_loop().create_task(self._run(), name="haybaler write-behind")
        self.task.add_done_callback(lambda _: self._ended())
        batch.ongoing.add(self.task)

    async def wait(self) -> None:
        """Wait for the end of the write. A cancellation of the caller leaves the write alone."""
        if not self.task.done():
            await asyncio.wait([self.task])

    @property
    def unconfirmed(self) -> list[Swap]:
        """The swaps that have failed, or may still fail."""
        return list(self.batch.swaps) if self._failures is None else [swap for swap, _ in self._failures]

    @property
    def failures(self) -> list[tuple[Slot, StoreError]]:
        """What could not be written, once the task is done, and why."""
        if self._failures is None:
            return [(swap.slot, StoreError("The write was cancelled.")) for swap in self.batch.swaps]
        return [(swap.slot, error) for swap, error in self._failures]

    @property
    def is_wanted(self) -> bool:
        """Whether the run has returned without waiting, so that nobody can undo the swaps any more."""
        return not self._is_given_up and (self._is_left or self._has_returned())

    def stop(self) -> None:
        """Stop the write, if it is not done; nothing of it remains in the store then, and all its swaps have failed."""
        if self._failures is None and not self.task.done():
            self.task.cancel()

    def settled(self) -> None:
        """Let the store read its backend again. The failures have been undone."""
        release_contents(self.batch.store, self._of_store)

    def give_up(self) -> None:
        """Stop the write, since its run is over and nobody has got its conversation."""
        self._is_given_up = True
        if self._failures:
            logger.warning(
                "Tool results could not be written to the store before their run ended.",
                extra=failure_fields(self.failures, self.batch.store),
            )
        self.stop()
        if self.task.done():
            self._ended()

    def leave(self) -> None:
        """Let the write go on to its end, although its run is over: somebody may have got its conversation."""
        self._is_left = True

    async def _run(self) -> None:
        outcomes: Sequence[Outcome]
        try:
            outcomes = await self.batch.write()
        except CancelledError:
            uncancel()
            outcomes = await see_through(self._finish, seconds=CLEAN_UP_SECONDS) or self._failed(
                StoreTimeoutError("The store did not answer in time.")
            )
        judged = await self._judged(outcomes)
        self._failures = judged.failures
        for reference in judged.confirmed:
            self._of_run.pop(reference, None)
            self._of_store.pop(reference, None)
        if judged.orphans:
            await see_through(lambda: self.batch.remove(judged.orphans), seconds=CLEAN_UP_SECONDS)

    async def _finish(self) -> Sequence[Outcome]:
        if self.is_wanted:
            return await self.batch.write()
        await self.batch.remove(self.batch.references)
        return self._failed(StoreError("The write was cancelled."))

    def _failed(self, error: StoreError) -> Sequence[Outcome]:
        return [error] * len(self.batch.references)

    async def _judged(self, outcomes: Sequence[Outcome]) -> Judged:
        async def in_worker() -> Judged:
            return await run_in_worker(Judged.of, self.batch.swaps, outcomes)

        many = len(outcomes) > _INLINE_ITEMS
        judged = await see_through(in_worker, seconds=CLEAN_UP_SECONDS) if many else None
        return judged or Judged.of(self.batch.swaps, outcomes)

    def _ended(self) -> None:
        self._has_returned = _no  # it keeps alive what the run has in its state
        if self._is_given_up or self._is_left:
            self.settled()
        if self._is_left and self.failures:
            logger.warning(
                "Tool results could not be written to the store after their run had ended; they are lost if somebody "
                "has its conversation.",
                extra=failure_fields(self.failures, self.batch.store),
            )


def _no() -> bool:
    return False
