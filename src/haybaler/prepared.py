"""A batch that a run does not wait for: what is written, and what became of it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from haybaler.errors import StoreError
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import StoreEntry
from haybaler.stores.unwritten import Contents
from haybaler.stores.writing import CLEAN_UP_SECONDS, delete_quietly, write_entries
from haybaler.swaps import Slot, Swap, fates


class Ongoing:
    """
    The tasks that write for one compactor, in all its runs, so that closing can wait for them.

    A copy of the compactor for one run shares the object; a deep copy is another compactor and has none.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: "asyncio.Task[None]") -> None:
        """
        Remember a task as long as it runs.

        :param task: The task. Cancelled, it takes back what it has written.
        """
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ended(self) -> None:
        """Wait until what the running event loop writes is written; after `CLEAN_UP_SECONDS`, it is given up."""
        loop = asyncio.get_running_loop()
        own = [task for task in list(self._tasks) if task.get_loop() is loop]
        if own:
            _, late = await asyncio.wait(own, timeout=CLEAN_UP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.wait(own, timeout=2 * CLEAN_UP_SECONDS)

    def __reduce__(self) -> tuple[type["Ongoing"], tuple[()]]:
        return Ongoing, ()


class Batch:
    """
    What is to be written behind a run's back. Making one of many swaps takes its time.

    :param swaps: The swaps that the run's conversation has, or is about to get.
    :param store: Where their parts go; it tells references before.
    :param timeout: Seconds for the write; None for as long as the store takes.
    :param ongoing: Where the batch is listed while it is written.
    """

    def __init__(self, swaps: Sequence[Swap], store: Any, *, timeout: float | None, ongoing: Ongoing) -> None:
        self.swaps = swaps
        self.store = store
        self.ongoing = ongoing
        self._timeout = timeout
        entries = [StoreEntry(part.key, part.content) for swap in swaps for part in swap.slot.parts]
        self.references = [reference for swap in swaps for reference in swap.references]
        self.contents: Contents = {
            reference: entry.content for reference, entry in zip(self.references, entries, strict=True)
        }
        self.write = write_entries(store, entries, timeout=timeout).run_async

    def only(self, swaps: Sequence[Swap]) -> "Batch":
        """
        Return a batch of some of the swaps.

        :param swaps: The swaps, in the same order.
        :returns: The batch itself, if these are all.
        """
        if len(swaps) == len(self.swaps):
            return self
        return Batch(swaps, self.store, timeout=self._timeout, ongoing=self.ongoing)

    async def remove(self, references: Sequence[str]) -> None:
        """
        Remove entries from the store, as well as it can.

        :param references: Their references.
        """
        await delete_quietly(self.store, references).run_async()


@dataclass(slots=True)
class Judged:
    """
    What became of a batch.

    :param confirmed: The references of the swaps that are in the store.
    :param failures: The other swaps, each with the reason.
    :param orphans: What may be in the store in vain.
    """

    confirmed: list[str] = field(default_factory=list)
    failures: list[tuple[Swap, StoreError]] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, swaps: Sequence[Swap], outcomes: Sequence[Outcome]) -> "Judged":
        """
        Judge the outcomes of a batch.

        :param swaps: Its swaps.
        :param outcomes: Outcome i belongs to part i.
        :returns: What became of it.
        """
        judged = cls()
        for fate in fates(swaps, outcomes):
            failure = fate.failure
            if failure is None and fate.written != fate.swap.references:
                failure = StoreError("The store gave another reference than it had told before.")
            if failure is None:
                judged.confirmed += fate.written
            else:
                judged.failures.append((fate.swap, failure))
                judged.orphans += fate.orphans or fate.written
        return judged


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
