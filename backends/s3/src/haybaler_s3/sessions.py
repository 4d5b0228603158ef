"""The sessions that make asynchronous clients, with everything read from disk before an event loop needs it."""

from threading import Lock
from typing import Any

from aiobotocore.session import get_session
from botocore.exceptions import NoCredentialsError
from botocore.utils import determine_content_length

# What a session reads from disk when it makes its first client, which takes a third of a second.
_MODELS = ("service-2", "endpoint-rule-set-1")
_DATA = ("endpoints", "partitions", "sdk-default-configuration", "_retry")
# Up to this size, a body is sent together with its header, without asking first whether the server wants it.
_AT_ONCE = 64 * 1024


class Sessions:
    """
    Makes a session for each event loop: what a session keeps, such as credentials that are renewed, belongs to a loop.

    Its own are sessions of aiobotocore, which share what they have read from disk.

    :param given: A ready session of aioboto3 or aiobotocore, which serves all loops instead.
    :param find_credentials: Whether the client will need credentials from the usual chain.
    """

    def __init__(self, given: Any, *, find_credentials: bool) -> None:
        self._given = given
        self._find_credentials = find_credentials
        self._lock = Lock()
        self._loader: Any = None

    def make(self) -> Any:
        """
        Return a session. It reads from disk, so asynchronous callers call it in a worker thread.

        :returns: The session, which reads no more from disk in order to make a client.
        """
        with self._lock:
            if self._given is not None:
                _load(core_of(self._given))
                return self._given
            session = get_session()
            if self._loader is not None:
                session.register_component("data_loader", self._loader)
            _load(session)
            send_small_bodies_at_once(session.get_component("event_emitter"))
            self._loader = session.get_component("data_loader")
        if self._find_credentials:
            _find_credentials(session)
        return session


def core_of(session: Any) -> Any:
    """Return the session of aiobotocore that is inside one of aioboto3, or is the given one."""
    return getattr(session, "_session", session)


def client_of(session: Any, arguments: dict[str, Any]) -> Any:
    """
    Return a client that is still to be opened.

    :param session: A session of aioboto3 or aiobotocore.
    :param arguments: The client's arguments.
    :returns: An asynchronous context manager.
    """
    make = session.create_client if hasattr(session, "create_client") else session.client
    return make("s3", **arguments)


def send_small_bodies_at_once(emitter: Any) -> None:
    """
    Keep clients from asking before each upload whether the server wants the body: for small ones it costs a round trip.

    :param emitter: The events of a session of botocore or aiobotocore.
    """
    emitter.register_last("before-call.s3", _without_expectation)


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


def _find_credentials(session: Any) -> None:
    """Have a session look for credentials in files and the like; what takes an event loop is left to the client."""
    looking = session.get_credentials()
    try:
        looking.send(None)
    except StopIteration as found:
        if found.value is None:
            raise NoCredentialsError from None
    except Exception:  # noqa: BLE001, S110 - the client looks again, and reports it
        pass
    finally:
        looking.close()
