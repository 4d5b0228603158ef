"""The clients of a store: one for each event loop, one for synchronous callers, opened on first use."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from threading import Lock
from typing import Any

import aioboto3
import anyio
import boto3
from aiobotocore.session import get_session

from haybaler.errors import AsyncOnlyStoreError
from haybaler.workers import PerLoop, run_in_worker
from haybaler_s3.settings import Settings

# The data that a session reads from disk when it makes its first client, which takes a third of a second.
_MODELS = ("service-2", "endpoint-rule-set-1")
_DATA = ("endpoints", "partitions", "sdk-default-configuration", "_retry")


class LoopClient:
    """
    The client of one event loop.

    :param open_client: Makes an asynchronous context manager whose value is the client; called in a worker thread.
    """

    def __init__(self, open_client: Callable[[], Any]) -> None:
        self._open_client = open_client
        self._lock = anyio.Lock()
        self._opened: AsyncExitStack | None = None
        self._client: Any = None

    async def get(self) -> Any:
        """Return the client, opened now if need be; once, however many ask at the same time."""
        if self._client is None:
            async with self._lock:
                if self._client is None:
                    context = await run_in_worker(self._open_client)
                    opened = AsyncExitStack()
                    self._client = await opened.enter_async_context(context)
                    self._opened = opened
        return self._client

    async def close(self) -> None:
        """Close the client."""
        opened, self._opened, self._client = self._opened, None, None
        if opened is not None:
            await opened.aclose()


class Clients:
    """
    All clients of a store and of the stores scoped from it.

    :param settings: How to reach the server.
    :param session: A ready session of aioboto3 or aiobotocore; None to make one.
    :param client: A ready asynchronous client, which is used by all loops and never closed.
    :param sync_client: A ready boto3 client, which is never closed.
    """

    def __init__(self, settings: Settings, *, session: Any, client: Any, sync_client: Any) -> None:
        self._settings = settings
        self._session = session
        self._given = client
        self._given_sync = sync_client
        self._own_session: Any = None
        self._own_sync: Any = None
        self._lock = Lock()
        self._loops = PerLoop(lambda: LoopClient(self._open_client))

    @property
    def serializable(self) -> bool:
        """Whether the settings alone can make the clients again."""
        return self._session is None and self._given is None and self._given_sync is None

    async def asynchronous(self) -> Any:
        """Return the running loop's client."""
        return self._given if self._given is not None else await self._loops.get().get()

    def synchronous(self) -> Any:
        """
        Return the client for synchronous callers.

        :raises AsyncOnlyStoreError: If the store was made with an asynchronous client or session only.
        """
        if self._given_sync is not None:
            return self._given_sync
        if self._given is not None or self._session is not None:
            raise AsyncOnlyStoreError("The store was given an asynchronous client only; give `sync_client` as well.")
        with self._lock:
            if self._own_sync is None:
                self._own_sync = boto3.session.Session().client("s3", **self._settings.client_arguments())
            return self._own_sync

    def _open_client(self) -> Any:
        arguments = self._settings.client_arguments()
        with self._lock:
            if self._session is None and self._own_session is None:
                self._own_session = _prepared_session()
        session = self._session or self._own_session
        make = session.client if hasattr(session, "client") else session.create_client
        return make("s3", **arguments)

    def close(self) -> None:
        """Close the synchronous client, unless it was given."""
        with self._lock:
            own, self._own_sync = self._own_sync, None
        if own is not None:
            own.close()

    async def close_async(self) -> None:
        """Close the running loop's client, unless it was given."""
        loop_client = self._loops.pop()
        if loop_client is not None:
            await loop_client.close()


def _prepared_session() -> Any:
    """Make a session that has read everything it needs from disk, so that no client reads it on an event loop."""
    session = get_session()
    loader = session.get_component("data_loader")
    for name in _MODELS:
        loader.load_service_model("s3", name, api_version=None)
    for name in _DATA:
        loader.load_data(name)
    _ = session.full_config
    return aioboto3.Session(botocore_session=session)
