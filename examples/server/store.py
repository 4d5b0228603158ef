"""Which store the server uses, decided when it starts, and whether that store can be used at the moment."""

import logging
from urllib.parse import quote
from uuid import uuid4

import anyio

from examples.server.settings import Settings
from haybaler import BaseToolResultStore, StoreError, store_from_url
from haybaler_filesystem import FileSystemToolResultStore

# The server's own logger: what is decided here is to be seen, whichever command has started the server.
logger = logging.getLogger("uvicorn.error")

# Entries live for an hour after they were last read: what a run cannot remove itself goes by itself.
LOCAL_REDIS = "redis://127.0.0.1:6379/0?ttl=3600"
FILES = "tool_results"
PROBE_SECONDS = 2.0


def choose_store(settings: Settings) -> BaseToolResultStore:
    """
    Return the store for all runs. May wait for a server, so it is called in a worker thread.

    :param settings: With `store_url`, that store, even if it is away at the moment: another one, on this machine only,
        would be wrong for a server that runs on several. Without, Redis if one answers here, otherwise files.
    :returns: The store; nothing of it is open.
    :raises ConfigurationError: If the URL is not usable.
    """
    if settings.store_url is not None:
        store = store_from_url(settings.store_url.get_secret_value())
        if not isinstance(store, BaseToolResultStore):
            raise TypeError(f"{type(store).__name__} cannot remove scopes.")
        logger.info("Tool results go to the store of HAYBALER_STORE_URL, a %s.", type(store).__name__)
        return store
    try:
        with (local := store_from_url(LOCAL_REDIS)):
            pass
    except StoreError as error:
        files = FileSystemToolResultStore(FILES, references="relative")
        reason = type(error).__name__
        logger.info("Tool results go to files in %s: no Redis can be used on this machine (%s).", files.root, reason)
        return files
    assert isinstance(local, BaseToolResultStore)
    logger.info("Tool results go to the Redis on this machine.")
    return local


def run_scope(store: BaseToolResultStore, user: str, run: str) -> BaseToolResultStore:
    """
    Return the part of the store that belongs to one run.

    `scoped("a/b")` is `scoped("a").scoped("b")`, so a user who may choose the name "grace/run-1" would be inside the
    scopes of the user "grace". A quoted name has no `/`, and two different names stay different.

    :param store: The store for all runs.
    :param user: Who the run is for: any string, also one from outside.
    :param run: The run's id, made by the server.
    :returns: The store for that run.
    """
    return store.scoped(quote(user, safe="", errors="surrogatepass")).scoped(run)


async def problem_of(store: BaseToolResultStore) -> str | None:
    """
    Try to write, read and remove an entry.

    :param store: The store for all runs.
    :returns: The name of the error that came of it, or None if the store can be used.
    """
    try:
        with anyio.fail_after(PROBE_SECONDS):
            reference = await store.write_async(key=f"health-{uuid4().hex}", content="")
            await store.read_async(reference)
            await store.delete_async([reference])
    except (StoreError, TimeoutError) as error:
        return type(error).__name__
    return None
