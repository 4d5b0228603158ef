"""The clients of a store: one for each event loop, one for synchronous callers, opened on first use."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from threading import Lock
from typing import Any, TypeVar
from weakref import ref

from aiobotocore.client import AioBaseClient
from aiobotocore.session import AioSession
from botocore.client import BaseClient

from haybaler.deadlines import WaitedTooLong, run_within
from haybaler.effects import Effect
from haybaler.errors import AsyncOnlyStoreError, ConfigurationError, StoreConfigurationError
from haybaler.per_loop import PerLoop
from haybaler.workers import run_in_worker
from haybaler_s3.abandoned import abandon
from haybaler_s3.failures import asks_to_slow_down, was_repeated
from haybaler_s3.links import LoopLink, ThreadLink
from haybaler_s3.pacing import Room
from haybaler_s3.sessions import Sessions, core_of, open_sync_client
from haybaler_s3.settings import Settings

R = TypeVar("R")


class Clients:
    """
    All clients of a store and of the stores scoped from it.

    :param settings: How to reach the server.
    :param session: A ready session of aioboto3 or aiobotocore; None to make one.
    :param client: A ready asynchronous client, which is never closed.
    :param sync_client: A ready boto3 client, which is never closed. Without one of the others, it serves asynchronous
        callers too, in worker threads.
    :raises ConfigurationError: If one of them is of the other kind, or there are too many.
    """

    def __init__(self, settings: Settings, *, session: Any, client: Any, sync_client: Any) -> None:
        _check(session, client, sync_client)
        self._settings = settings
        self._given = client
        self._given_sync = sync_client
        self._async_only = sync_client is None and (client is not None or session is not None)
        self._sync_only = sync_client is not None and client is None and session is None
        self._sessions = Sessions(session, find_credentials=settings.access_key_id is None)
        self._loops: PerLoop[LoopLink] = PerLoop(self._loop_link)
        self._threads: ThreadLink | None = None
        self._process = os.getpid()
        self._home: ref[asyncio.AbstractEventLoop] | None = None  # the loop of a ready client
        self._lock = Lock()

    @property
    def serializable(self) -> bool:
        """Whether the settings alone can make the clients again."""
        return not self._async_only and self._given_sync is None

    @property
    def room(self) -> Room:
        """The running loop's room for entries that are being written."""
        return self._loops.get().room

    def request(self, run: Callable[[Any], R], run_async: Callable[[Any], Awaitable[R]]) -> Effect[R]:
        """
        Have a client carry out a request.

        :param run: Makes it with a boto3 client.
        :param run_async: Makes it with an asynchronous client.
        :returns: The effect; it raises whatever the client raises.
        """
        return Effect(lambda: self._run(run), lambda: self._run_async(run, run_async))

    def _run(self, run: Callable[[Any], R]) -> R:
        with self._thread_link().lent() as client:
            return run(client)

    async def _run_async(self, run: Callable[[Any], R], run_async: Callable[[Any], Awaitable[R]]) -> R:
        link = self._loops.get()
        async with link.lent() as client:
            try:
                result = await (run_in_worker(self._run, run) if self._sync_only else run_async(client))
            except Exception as error:
                link.turns.heard(slow_down=asks_to_slow_down(error))
                raise
            link.turns.heard(slow_down=was_repeated(result))
            return result

    def within(self, seconds: float, function: Callable[[], R], undo: Callable[[R], object] | None = None) -> R:
        """
        Call what a synchronous caller waits for no longer than so long.

        :param seconds: How long to wait.
        :param function: Makes a request with the synchronous client.
        :param undo: Takes what comes too late.
        :returns: What it returned.
        :raises TimeoutError: If it has not returned in time.
        """
        try:
            return run_within(function, seconds, room=self._thread_link().calls, undo=undo)
        except WaitedTooLong:
            raise TimeoutError from None

    def open(self) -> Effect[None]:
        """Open the client, so that the first request need not."""

        async def nothing_async(_: Any) -> None:
            return None

        return self.request(lambda _: None, nothing_async)

    def close(self) -> None:
        """Close the client of synchronous callers, unless it was given."""
        with self._lock:
            link, self._threads = self._threads, None
        if link is not None:
            link.close()

    async def close_async(self) -> None:
        """Close the running loop's client, unless it was given."""
        link = self._loops.pop()
        if link is not None:
            await link.close()

    def _loop_link(self) -> LoopLink:
        if self._given is None and not self._sync_only:
            return LoopLink(self._opening, limit=self._settings.max_concurrency, abandon=abandon)
        ready = self._given_sync if self._given is None else self._given
        loop = asyncio.get_running_loop()
        home = loop if self._home is None else self._home()
        if home is not loop and isinstance(ready, AioBaseClient):
            raise StoreConfigurationError("The client that was given belongs to another event loop.")
        self._home = ref(loop)
        return LoopLink(_ready(ready), limit=self._settings.max_concurrency, abandon=lambda _: None)

    async def _opening(self, opened: AsyncExitStack) -> Any:
        return await self._sessions.open_client(opened, self._settings.client_arguments())

    def _thread_link(self) -> ThreadLink:
        if self._async_only:
            raise AsyncOnlyStoreError("The store was given an asynchronous client only; give `sync_client` as well.")
        with self._lock:
            if self._process != os.getpid():  # forked: the connections are the other process's
                self._process, self._threads = os.getpid(), None
            if self._threads is None:
                self._threads = self._open_thread_link()
            return self._threads

    def _open_thread_link(self) -> ThreadLink:
        if self._given_sync is not None:
            return ThreadLink(self._given_sync, lambda: None, limit=self._settings.max_concurrency)
        client = open_sync_client(self._settings.client_arguments())
        return ThreadLink(client, client.close, limit=self._settings.max_concurrency)


def _ready(client: Any) -> Callable[[AsyncExitStack], Awaitable[Any]]:
    async def opening(_: AsyncExitStack) -> Any:
        return client

    return opening


def _check(session: Any, client: Any, sync_client: Any) -> None:
    if session is not None and client is not None:
        raise ConfigurationError("Give either `session` or `client`.")
    if session is not None and not isinstance(core_of(session), AioSession):
        raise ConfigurationError("`session` must be a session of aioboto3 or aiobotocore.")
    if isinstance(client, BaseClient) and not isinstance(client, AioBaseClient):
        raise ConfigurationError("`client` must be asynchronous; a client of boto3 belongs into `sync_client`.")
    if isinstance(sync_client, AioBaseClient):
        raise ConfigurationError("`sync_client` must be a client of boto3; an asynchronous one belongs into `client`.")
