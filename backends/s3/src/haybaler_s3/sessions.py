"""The sessions that make asynchronous clients, with everything read from disk before an event loop needs it."""

from contextlib import AsyncExitStack
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any

import botocore.session
from aiobotocore.credentials import AioCredentials
from aiobotocore.session import get_session
from botocore.exceptions import NoCredentialsError
from botocore.loaders import create_loader
from botocore.utils import determine_content_length

from haybaler.workers import run_in_worker

# What a session reads from disk when it makes its first client, which takes a third of a second.
_MODELS = ("service-2", "endpoint-rule-set-1")
_DATA = ("endpoints", "partitions", "sdk-default-configuration", "_retry")
# Up to this size, a body is sent together with its header, without asking first whether the server wants it.
_AT_ONCE = 64 * 1024


class Sessions:
    """
    Makes sessions, each for one event loop at a time: credentials that are renewed belong to a loop.

    Its own are sessions of aiobotocore, and are used again where their credentials stay the same.

    :param given: A ready session of aioboto3 or aiobotocore, which serves all loops instead.
    :param find_credentials: Whether the client will need credentials from the usual chain.
    """

    def __init__(self, given: Any, *, find_credentials: bool) -> None:
        self._given = given
        self._find_credentials = find_credentials
        self._lock = Lock()
        self._idle: list[Any] = []

    async def open_client(self, opened: AsyncExitStack, arguments: dict[str, Any]) -> Any:
        """
        Open a client for the running loop.

        :param opened: Closes the client in the end.
        :param arguments: The client's arguments.
        :returns: The client.
        """
        idle = self._take()
        session, reusable = (idle, True) if idle is not None else await run_in_worker(self.make)
        make = session.create_client if hasattr(session, "create_client") else session.client
        if reusable:
            opened.callback(self._idle.append, session)
        return await opened.enter_async_context(make("s3", **arguments))

    def _take(self) -> Any:
        try:
            return self._idle.pop()  # atomic
        except IndexError:
            return None

    def make(self) -> tuple[Any, bool]:
        """
        Make a session, or prepare the one that was given. It reads from disk.

        :returns: The session, which reads no more from disk in order to make a client, and whether another loop may use
            it later.
        """
        with self._lock:
            if self._given is not None:
                _load(core_of(self._given))
                if core_of(self._given) is not self._given:
                    import_module("aioboto3.s3.inject")  # its sessions would do that while they make a client
                return self._given, False
        session = _prepared(get_session())
        return session, not self._find_credentials or _found_credentials(session)


def open_sync_client(arguments: dict[str, Any]) -> Any:
    """
    Open a client for synchronous callers.

    :param arguments: The client's arguments.
    :returns: A client as boto3 makes them.
    """
    return _prepared(botocore.session.get_session()).create_client("s3", **arguments)


def core_of(session: Any) -> Any:
    """Return the session of aiobotocore that is inside one of aioboto3, or is the given one."""
    return getattr(session, "_session", session)


def _prepared(session: Any) -> Any:
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    _load(session)
    # Asking before each upload whether the server wants the body costs a round trip.
    session.get_component("event_emitter").register_last("before-call.s3", _without_expectation)
    return session


@cache
def _loader(data_path: str | None) -> Any:
    """Return what keeps the data that it has read, some MB: the same for all sessions, as the data never changes."""
    return create_loader(data_path)


def _without_expectation(params: dict[str, Any], **_: Any) -> None:
    length = determine_content_length(params.get("body"))
    if length is not None and length <= _AT_ONCE:
        params["headers"].pop("Expect", None)


def _load(session: Any) -> None:
    loader = session.get_component("data_loader")
    for name in _MODELS:
        loader.load_service_model("s3", name, api_version=None)
    for name in _DATA:
        loader.load_data(name)
    _ = session.full_config


def _found_credentials(session: Any) -> bool:
    """
    Have a session look for credentials in files and the like; what takes an event loop is left to the client.

    :param session: The session.
    :returns: Whether it found some that stay the same.
    :raises NoCredentialsError: If there are none.
    """
    looking = session.get_credentials()
    try:
        looking.send(None)
    except StopIteration as found:
        if found.value is None:
            raise NoCredentialsError from None
        return type(found.value) is AioCredentials
    except Exception:  # noqa: BLE001 - the client looks again, and reports it
        return False
    finally:
        looking.close()
    return False
