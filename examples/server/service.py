"""The Agent in service: how many runs at a time, each beside its stream and in a scope of its own."""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Self
from uuid import uuid4

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, StreamingChunk

from examples.server.cancellation import to_the_end
from examples.server.events import Event, events_of, run_ended_by, run_is_done
from examples.server.settings import Settings
from examples.server.store import run_scope
from haybaler import RESULT_STORE_CONTEXT_KEY, BaseToolResultStore, StoreError

logger = logging.getLogger(__name__)

# How far a run may be ahead of its client, in events. Then it waits: a slow client slows its own run and fills nothing.
AHEAD = 16
# How long the removal of a run's entries may take, in seconds: many runs may end at once.
CLEAN_UP_SECONDS = 30.0
INTERRUPTED = run_ended_by("interrupted")


class TooManyRunsError(Exception):
    """All places are taken."""


@dataclass
class Run:
    """
    One run, as its stream sees it.

    :param id: Made by the server, unique.
    :param events: What happens, until the run has ended.
    :param last: How it ended; valid once `events` is exhausted. It has no place in the queue of events, so it is never
        lost, and never waited for.
    """

    id: str
    events: MemoryObjectReceiveStream[Event]
    last: Event = INTERRUPTED


class AgentService:
    """
    One Agent and one store for all runs.

    :param agent: The Agent.
    :param store: The store.
    :param settings: How many runs at a time, and how long one may take.
    """

    def __init__(self, agent: Agent, store: BaseToolResultStore, settings: Settings) -> None:
        self.agent = agent
        self.store = store
        self._timeout = settings.run_timeout
        self._places = anyio.CapacityLimiter(settings.max_runs)

    @property
    def runs(self) -> int:
        """How many runs there are at the moment."""
        return self._places.borrowed_tokens

    @asynccontextmanager
    async def open_run(self, user: str, question: str) -> AsyncIterator[Run]:
        """
        Run the Agent beside the block. Whatever ends the block ends the run, and the run's entries are removed.

        :param user: Who asks; the run is in this user's scope.
        :param question: What.
        :returns: The run. It has ended, and nothing of it goes on, when the block has been left.
        :raises TooManyRunsError: If all places are taken.
        """
        run_id = uuid4().hex
        with self._place(run_id):
            sender, receiver = anyio.create_memory_object_stream[Event](AHEAD)
            run = Run(run_id, receiver)
            with sender, receiver:
                async with self._scope(user, run_id) as store, anyio.create_task_group() as group:
                    group.start_soon(self._carry_out, run, question, store, sender)
                    yield run
                    group.cancel_scope.cancel()

    async def _carry_out(
        self, run: Run, question: str, store: BaseToolResultStore, sender: MemoryObjectSendStream[Event]
    ) -> None:
        async def say(chunk: StreamingChunk) -> None:
            for event in events_of(chunk):
                await sender.send(event)

        with sender:
            try:
                with anyio.move_on_after(self._timeout) as deadline:
                    result = await self.agent.run_async(
                        [ChatMessage.from_user(question)],
                        streaming_callback=say,
                        hook_context={RESULT_STORE_CONTEXT_KEY: store},
                    )
                    run.last = run_is_done(result)
            except Exception:  # whatever it is, the client hears of it, and the others go on
                logger.exception("Run %s failed.", run.id)
                run.last = run_ended_by("failed")
            if deadline.cancelled_caught:
                run.last = run_ended_by("timeout")

    @contextmanager
    def _place(self, run: str) -> Iterator[None]:
        try:
            self._places.acquire_on_behalf_of_nowait(run)
        except anyio.WouldBlock:
            raise TooManyRunsError from None
        try:
            yield
        finally:
            self._places.release_on_behalf_of(run)

    @asynccontextmanager
    async def _scope(self, user: str, run: str) -> AsyncIterator[BaseToolResultStore]:
        store = run_scope(self.store, user, run)
        try:
            yield store
        finally:
            await to_the_end(_removed(store, run))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Open everything for the block. At its end no more runs begin; when all have ended, everything is closed."""
        async with AsyncExitStack() as at_the_end:
            at_the_end.push_async_callback(self.store.close_async)
            at_the_end.push_async_callback(self.agent.close_async)
            at_the_end.push_async_callback(self._all_ended)
            try:
                await self.store.warm_up_async()
            except StoreError as error:
                logger.warning("Tool results stay in the conversations until the store can be used: %s", error)
            await self.agent.warm_up_async()
            yield self

    async def _all_ended(self) -> None:
        with anyio.move_on_after(CLEAN_UP_SECONDS):
            for _ in range(int(self._places.total_tokens)):
                await self._places.acquire_on_behalf_of(object())


async def _removed(store: BaseToolResultStore, run: str) -> None:
    try:
        with anyio.fail_after(CLEAN_UP_SECONDS):
            await store.delete_scope_async()
    except (StoreError, TimeoutError) as error:
        logger.warning("What run %s has stored could not be removed: %r", run, error)
