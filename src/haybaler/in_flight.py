"""A batch that is written while its run goes on: one task, from which nobody has to hear."""

import asyncio
import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from haybaler.errors import StoreError, StoreTimeoutError
from haybaler.stores.unwritten import Unwritten
from haybaler.stores.writing import CLEAN_UP_SECONDS, delete_quietly, hold_items, release_items, write_items
from haybaler.swaps import Item, Slot, Swap, fates
from haybaler.workers import see_through, uncancel

logger = logging.getLogger(__name__)

Outcomes = Sequence[str | StoreError]


class Ongoing:
    """
    The batches that are being written for one compactor, in all its runs, so that closing can wait for them.

    A copy of the compactor for one run shares the object; a deep copy is another compactor and has none in flight.
    """

    def __init__(self) -> None:
        self._writes: set[WriteInFlight] = set()

    def __len__(self) -> int:
        return len(self._writes)

    def add(self, write: "WriteInFlight", task: "asyncio.Task[None]") -> None:
        """
        Remember a batch as long as its task runs.

        :param write: The batch.
        :param task: Its task.
        """
        self._writes.add(write)
        task.add_done_callback(lambda _: self._writes.discard(write))

    async def ended(self) -> None:
        """Wait until what the running event loop writes is written; after `CLEAN_UP_SECONDS`, it is given up."""
        loop = asyncio.get_running_loop()
        own = [write for write in list(self._writes) if write.loop is loop]
        if own:
            await asyncio.wait([write.task for write in own], timeout=CLEAN_UP_SECONDS)
            for write in own:
                write.stop()
            await asyncio.wait([write.task for write in own], timeout=2 * CLEAN_UP_SECONDS)

    def __reduce__(self) -> tuple[type["Ongoing"], tuple[()]]:
        return Ongoing, ()


@dataclass(frozen=True, slots=True)
class Batch:
    """
    What is to be written behind a run's back.

    :param swaps: The swaps that the run's conversation has already.
    :param store: Where their items go; it tells references before.
    :param timeout: Seconds for the write; None for as long as the store takes.
    :param ongoing: Where the batch is listed while it is written.
    """

    swaps: Sequence[Swap]
    store: Any
    timeout: float | None
    ongoing: Ongoing

    @property
    def items(self) -> list[Item]:
        """Keys and contents, in the order of the swaps."""
        return [item for swap in self.swaps for item in swap.slot.items]

    @property
    def references(self) -> list[str]:
        """Reference i belongs to item i."""
        return [reference for swap in self.swaps for reference in swap.references]


class WriteInFlight:
    """
    The write of one batch. It ends by itself: with its entries there, or with a list of swaps that have to be undone.

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
        # Until there are outcomes, all have failed: a task that is cancelled early enough never begins.
        self.failures: list[tuple[Swap, StoreError]] = [(swap, _cancelled()) for swap in batch.swaps]
        self._held = held
        self._has_returned = has_returned
        self._is_writing = True
        self._is_given_up = self._is_left = False
        items, references = batch.items, batch.references
        held.add({reference: content for reference, (_, content) in zip(references, items, strict=True)})
        hold_items(batch.store, items)
        self._write: Callable[[], Awaitable[Outcomes]] = write_items(
            batch.store, items, timeout=batch.timeout
        ).run_async
        self.loop = asyncio.get_running_loop()
        self.task = self.loop.create_task(self._run(), name="haybaler write-behind")
        self.task.add_done_callback(lambda _: self._ended())
        batch.ongoing.add(self, self.task)

    async def wait(self) -> None:
        """Wait for the end of the write. A cancellation of the caller leaves the write alone."""
        if not self.task.done():
            await asyncio.wait([self.task])

    def stop(self) -> None:
        """Stop the write, if it is not done; nothing of it remains in the store then, and all its swaps have failed."""
        if self._is_writing and not self.task.done():
            self.task.cancel()

    def give_up(self) -> None:
        """Stop the write, since its run is over and nobody has got its conversation."""
        self._is_given_up = True
        self.stop()
        if self.task.done():
            self._ended()

    def leave(self) -> None:
        """Let the write go on to its end, although its run is over: somebody has got its conversation."""
        self._is_left = True
        if self.task.done():
            self._ended()

    async def _run(self) -> None:
        try:
            outcomes = await self._write()
        except CancelledError:
            outcomes = await self._interrupted()
        self._is_writing = False
        orphans = self._take(outcomes)
        if orphans:
            await see_through(delete_quietly(self.batch.store, orphans).run_async, seconds=CLEAN_UP_SECONDS)

    async def _interrupted(self) -> Outcomes:
        uncancel()
        finished = await see_through(self._finish, seconds=CLEAN_UP_SECONDS)
        return finished or [StoreTimeoutError("The store did not answer in time.")] * len(self.batch.references)

    async def _finish(self) -> Outcomes:
        if self.is_wanted:
            return await self._write()
        await delete_quietly(self.batch.store, self.batch.references).run_async()
        return [_cancelled()] * len(self.batch.references)

    @property
    def is_wanted(self) -> bool:
        """Whether the run has returned without waiting, so that nobody can undo the swaps any more."""
        return not self._is_given_up and (self._is_left or self._has_returned())

    @property
    def unconfirmed(self) -> list[Swap]:
        """The swaps that have failed, or may still fail."""
        return [swap for swap, _ in self.failures]

    def _take(self, outcomes: Outcomes) -> list[str]:
        """Take the outcomes of the items and return what was written in vain."""
        self.failures = []
        orphans: list[str] = []
        for fate in fates(self.batch.swaps, outcomes):
            failure = fate.failure
            if failure is None and fate.written != fate.swap.references:
                failure = StoreError("The store gave another reference than it had told before.")
            if failure is None:
                self._release(fate.written)
            else:
                self.failures.append((fate.swap, failure))
                orphans.extend(fate.orphans or fate.written)
        return orphans

    def _release(self, references: Sequence[str]) -> None:
        self._held.discard(references)
        release_items(self.batch.store, references)

    def settle(self) -> None:
        """Let the store read its backend again; what has failed is not held in the store's name any longer."""
        release_items(self.batch.store, self.batch.references)

    def _ended(self) -> None:
        self._has_returned = _unknown  # it keeps alive what the run has in its state
        if self._is_given_up or self._is_left:
            self.settle()
        if self._is_left and self.failures:
            logger.warning(
                "Tool results could not be written to the store after their run had returned; they are lost.",
                extra=failure_fields([(swap.slot, error) for swap, error in self.failures], self.batch.store),
            )
            self.failures = []


def failure_fields(failures: Sequence[tuple[Slot, StoreError]], store: object) -> dict[str, object]:
    """
    Return the fields of a warning about writes that failed; nothing of a result is in them.

    :param failures: The results that were to be stored, and why they were not; at least one.
    :param store: The store.
    :returns: The fields.
    """
    return {
        "tools": sorted({name for slot, _ in failures for name in slot.tool_names}),
        "results": len(failures),
        "store": type(store).__name__,
        "error": str(failures[0][1]),
    }


def _unknown() -> bool:
    return False


def _cancelled() -> StoreError:
    return StoreError("The write was cancelled.")
