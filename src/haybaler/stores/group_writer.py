"""
Group commit: a caller who finds a place for a group writes what all of them have waiting, and hands out the outcomes.

There is no task in the background. What can go at once is written by its caller, as without groups. What had to wait is
written in a task that belongs to all callers with items in it, and ends before the last of them returns: so the
cancellation of one concerns no other.
"""

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context, copy_context
from functools import partial

from anyio import CancelScope

from haybaler.errors import (
    StoreConfigurationError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
    detached,
    is_outage,
)
from haybaler.stores.driver import write_failure
from haybaler.stores.group_commit import GroupCommit
from haybaler.stores.grouping import Queue
from haybaler.stores.shares import Call, Group, Item, Outcome, ServersOf, Share

Write = Callable[[Sequence[Item]], Awaitable[Sequence[Outcome]]]

# Seconds for which a cancelled caller waits for the end of what is being written with items of its own: what has been
# sent cannot be taken back, and should not arrive after the removal with which the caller cleans up.
GRACE = 1.0


class GroupWriter:
    """
    Writes for the callers of the running event loop.

    :param bounds: The bounds.
    """

    def __init__(self, bounds: GroupCommit) -> None:
        self._wait = bounds.wait
        self._queue = Queue(bounds)
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[Group, asyncio.Task[None]] = {}
        self._begun: dict[int, list[asyncio.Future[None]]] = {}  # for each call those who wait for its end

    async def write(self, write: Write, items: Sequence[Item], *, servers_of: ServersOf) -> Sequence[Outcome]:
        """
        Write a batch, in groups with what others write at the same time.

        :param write: Writes a group, and gives outcome i for item i. The same for all callers.
        :param items: Paths, all different, and contents.
        :param servers_of: Tells what stands for the servers that keep paths.
        :returns: Outcome i belongs to item i.
        """
        waiters: list[asyncio.Future[None]] = []
        self._begun[id(waiters)] = waiters
        try:
            lane = self._queue.pass_by(items, servers_of)
            if lane is None:
                return await self._write_in_turn(write, self._queue.admit(items, servers_of))
            try:
                return await write(items)
            finally:
                self._queue.passed(lane, items)
        finally:
            del self._begun[id(waiters)]
            for waiter in waiters:
                _ring(waiter)

    async def drained(self) -> None:
        """Wait for the end of what has begun by now."""
        for waiters in list(self._begun.values()):
            if id(waiters) in self._begun:
                waiters.append(self._loop.create_future())
                await waiters[-1]

    async def _write_in_turn(self, write: Write, call: Call) -> Sequence[Outcome]:
        try:
            while call.unsettled:
                group = self._queue.take(call)
                if group is None:
                    await self._sleep(call)
                else:
                    self._begin(write, group, by=call)
        except CancelledError:
            await self._end(call)
            raise
        finally:
            self._queue.withdraw(call, _interrupted())
            self._abandon(call)
            self._queue.dismiss(call)
        return call.outcomes

    async def _sleep(self, call: Call) -> None:
        """Wait until everything is settled, or there is a place for a group."""
        waiter = self._loop.create_future()
        waiting = call.waiting

        def expire() -> None:
            if call.alarm is not None and waiting == call.waiting == call.unsettled:
                self._queue.withdraw(call, StoreTimeoutError("The store was busy with other batches for too long."))
            call.rouse()

        call.alarm = partial(_ring, waiter)
        timer = self._loop.call_later(self._wait, expire)
        try:
            await waiter
        finally:
            timer.cancel()
            call.alarm = None

    def _begin(self, write: Write, group: Group, *, by: Call) -> None:
        # The context variables of one caller, such as its trace, are no business of another's.
        context = copy_context() if group.members == {by} else Context()
        task = context.run(self._loop.create_task, self._write(write, group))
        if not task.done():  # where tasks start eagerly, it may be
            self._tasks[group] = task

    async def _write(self, write: Write, group: Group) -> None:
        rest = dict(group.parts)
        try:
            result = await _written(write, rest)
            if isinstance(result, StoreError) and len(rest) > 1 and not _concerns_all(result):
                # One item may have spoilt it for the others. Alone, each caller gets what it deserves.
                for share, part in group.parts.items():
                    alone = {share: part}
                    result = await _written(write, alone) if share.call in group.members else _interrupted()
                    self._settle(group, alone, result)
                    del rest[share]
            else:
                self._settle(group, rest, result)
                rest.clear()
        finally:
            for share, part in rest.items():
                self._queue.settle(share, part, [_interrupted()] * _count(part))
            self._queue.release(group)
            self._tasks.pop(group, None)

    def _settle(self, group: Group, parts: Mapping[Share, slice], result: Sequence[Outcome] | StoreError) -> None:
        outcomes = [result] * sum(map(_count, parts.values())) if isinstance(result, StoreError) else result
        is_down = all(map(is_outage, outcomes))
        start = 0
        for share, part in parts.items():
            own = outcomes[start : start + _count(part)]
            start += _count(part)
            if len(group.parts) > 1:
                own = _detached(own)
            if is_down and own[0] is not None:
                # They had their chance; what the caller still has for the server does not wait as long once more.
                self._queue.withdraw(share.call, own[0], server=share.lane.key[0])
            self._queue.settle(share, part, own)

    async def _end(self, call: Call) -> None:
        """Let what is being written end after a cancellation: at once, unless others wait for it as well."""
        self._queue.withdraw(call, _interrupted())
        tasks = {group: self._tasks[group] for group in call.groups}
        self._abandon(call)
        if tasks:
            with CancelScope(shield=True):
                await asyncio.wait(tasks.values(), timeout=GRACE)
                # Meanwhile, the others may have been cancelled, too.
                ending = [task for group, task in tasks.items() if not (group.members or task.done())]
                if ending:
                    await asyncio.wait(ending)

    def _abandon(self, call: Call) -> None:
        for group in call.groups:
            group.members.discard(call)
            if not (group.members or self._loop.is_closed()):
                self._tasks[group].cancel()


async def _written(write: Write, parts: Mapping[Share, slice]) -> Sequence[Outcome] | StoreError:
    """Return what came of each item, or of all of them together."""
    items = [share.call.items[index] for share, part in parts.items() for index in share.ready[part]]
    try:
        outcomes = await write(items)
        if len(outcomes) == len(items):
            return outcomes
        return StoreError(f"The store gave {len(outcomes)} outcomes for {len(items)} entries.")
    except Exception as error:  # noqa: BLE001 - it is the outcome
        return write_failure(error)


def _count(part: slice) -> int:
    count: int = part.stop - part.start
    return count


def _detached(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return errors for one caller alone, one for all its items that share one."""
    own = {id(outcome): detached(outcome) for outcome in outcomes if outcome is not None}
    return [own.get(id(outcome)) for outcome in outcomes]


def _interrupted() -> StoreUnavailableError:
    return StoreUnavailableError("The write was interrupted; whether it was done is not known.")


def _concerns_all(error: StoreError) -> bool:
    return is_outage(error) or isinstance(error, StoreConfigurationError)


def _ring(waiter: asyncio.Future[None]) -> None:
    if not (waiter.done() or waiter.get_loop().is_closed()):
        waiter.set_result(None)
