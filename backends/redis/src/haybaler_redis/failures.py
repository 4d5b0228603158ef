"""The one place where what the client or the server reports becomes an error of haybaler's tree."""

import ssl
from collections.abc import Iterator

from redis import exceptions as redis_errors

from haybaler.errors import (
    CorruptEntryError,
    EntryTooLargeError,
    StoreConfigurationError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    store_error,
)

# The first row that fits, most specific first: the client's class, the code that begins the server's reply or a phrase
# in it, the error of the tree, and what its text says. The server's own words are left out: some repeat the command.
_ROWS: tuple[tuple[tuple[type[Exception] | str, ...], type[StoreError], str], ...] = (
    ((redis_errors.OutOfMemoryError, "OOM"), StoreFullError, "the server is at its memory limit"),
    (
        (
            redis_errors.AuthenticationError,
            redis_errors.AuthenticationWrongNumberOfArgsError,
            "NOAUTH",
            "WRONGPASS",
        ),
        StoreConfigurationError,
        "the server refuses the credentials",
    ),
    (
        (redis_errors.AuthorizationError, redis_errors.NoPermissionError, "NOPERM"),
        StoreConfigurationError,
        "the server's user has no permission for it",
    ),
    (("DENIED",), StoreConfigurationError, "the server is in protected mode"),
    ((ssl.SSLCertVerificationError,), StoreConfigurationError, "the server's certificate cannot be verified"),
    (
        (redis_errors.InvalidResponse,),
        StoreConfigurationError,
        "what answers does not speak the Redis protocol",
    ),
    (
        (redis_errors.MovedError, redis_errors.ClusterCrossSlotError, "MOVED", "CROSSSLOT"),
        StoreConfigurationError,
        "the server belongs to a cluster; set `cluster=True`",
    ),
    (("NOPROTO", "unknown command"), StoreConfigurationError, "the server does not know the command"),
    (("WRONGTYPE",), CorruptEntryError, "something else stands under the key"),
    (
        ("string exceeds maximum allowed size", "invalid bulk length"),
        EntryTooLargeError,
        "it is larger than the server's `proto-max-bulk-len` allows",
    ),
    (
        (redis_errors.MaxConnectionsError, "No connection available"),
        StoreUnavailableError,
        "all connections are in use",
    ),
    ((redis_errors.BusyLoadingError, "LOADING"), StoreUnavailableError, "the server is still loading its data"),
    ((redis_errors.ReadOnlyError, "READONLY"), StoreUnavailableError, "the server is a read-only replica"),
    (
        (
            redis_errors.ClusterError,
            redis_errors.SlotNotCoveredError,
            redis_errors.TryAgainError,
            "CLUSTERDOWN",
            "MASTERDOWN",
            "TRYAGAIN",
        ),
        StoreUnavailableError,
        "the cluster does not serve the key at the moment",
    ),
    ((redis_errors.AskError, "ASK"), StoreUnavailableError, "the cluster is moving the key"),
    (("MISCONF",), StoreUnavailableError, "the server refuses writes, because it cannot save its data"),
    (("NOREPLICAS",), StoreUnavailableError, "the server has too few replicas"),
    (("BUSY", "UNKILLABLE"), StoreUnavailableError, "the server is busy with a script"),
    ((redis_errors.TimeoutError, TimeoutError), StoreTimeoutError, "the server did not answer in time"),
    (
        (redis_errors.ConnectionError, redis_errors.RedisClusterException),
        StoreUnavailableError,
        "the server cannot be reached",
    ),
    (
        ("different loop", "different event loop", "Event loop is closed", "no running event loop"),
        StoreConfigurationError,
        "the client that was given belongs to another event loop; give a URL instead",
    ),
)
_WITH_TEXT = (redis_errors.ResponseError, redis_errors.ConnectionError, RuntimeError)
_LOST = (
    redis_errors.ConnectionError,
    redis_errors.TimeoutError,
    redis_errors.ClusterError,  # sent to and fro, or down
    redis_errors.SlotNotCoveredError,
)
_QUOTES_ARGUMENTS = "with args beginning with"


def mapped(error: Exception, *, action: str) -> StoreError:
    """
    Return the member of the tree for what the client raised or returned, with its cause chained.

    :param error: The client's error.
    :param action: What was being done, as a phrase that completes "Could not ...".
    :returns: The error to raise; `error` itself if it is one of the tree.
    """
    kinds = list(_chain(error))
    for link in kinds:  # the client wraps what the store's own connections raise
        if isinstance(link, StoreError):
            return link
    shown = _last_of_the_nodes(error)
    for signs, kind, reason in _ROWS:
        if any(_shows(shown, kinds, sign) for sign in signs):
            outcome = kind(f"Could not {action}: {reason}.")
            break
    else:
        outcome = store_error(error, action=action, missing_means_absent=False)
    outcome.__cause__ = presentable(error)
    return outcome


def presentable(error: Exception) -> Exception | None:
    """
    Return the cause that an error of the tree may show.

    :param error: The client's error.
    :returns: `error`; None if its text repeats arguments of a command, which may be the content of an entry.
    """
    return None if _QUOTES_ARGUMENTS in str(error) else error


def is_passing(error: Exception) -> bool:
    """
    Whether the same command may well succeed a moment later.

    :param error: The client's error.
    :returns: True for outages, failovers and restarts; False for what only a person or more memory can mend.
    """
    kind = type(mapped(error, action="use the server"))
    return issubclass(kind, StoreUnavailableError) and not issubclass(kind, StoreFullError)


def is_timeout(error: Exception) -> bool:
    """Whether the server did not answer in time, so that waiting once more costs as much again."""
    return isinstance(mapped(error, action="use the server"), StoreTimeoutError)


def is_lost(reply: object) -> bool:
    """
    Whether a node of a cluster is not there, or no longer in charge, so that it is time to look who is.

    One without a free connection counts: old versions of redis-py lose those that could not send, and have new ones
    for each node after a look.

    :param reply: What came of a command.
    """
    other = (redis_errors.AuthenticationError, redis_errors.BusyLoadingError)
    return isinstance(reply, _LOST) and not isinstance(reply, other)


def is_whole_cluster(error: Exception) -> bool:
    """Whether all nodes of a cluster have been asked, one after another, and none could be reached."""
    return isinstance(error, redis_errors.RedisClusterException) and not is_lost(error)


def _last_of_the_nodes(error: Exception) -> Exception:
    # A cluster that cannot be reached says of the last node only in its cause why.
    cause = error.__cause__
    if isinstance(error, redis_errors.RedisClusterException) and isinstance(cause, redis_errors.TimeoutError):
        return cause
    return error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    # The client raises a ConnectionError of its own while it handles the real one.
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _shows(error: Exception, chain: list[BaseException], sign: type[Exception] | str) -> bool:
    if isinstance(sign, str):
        text = str(error) if isinstance(error, _WITH_TEXT) else ""
        return text.partition(" ")[0] == sign if sign.isupper() else sign in text
    if issubclass(sign, ssl.SSLError):
        return any(isinstance(link, sign) for link in chain)
    return isinstance(error, sign)
