"""The one place where what the client or the server reports becomes an error of haybaler's tree."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore import exceptions as client_errors

from haybaler.errors import (
    ConfigurationError,
    EntryTooLargeError,
    HaybalerError,
    ReferenceNotFoundError,
    StoreConfigurationError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    store_error,
)
from haybaler_s3.redaction import PLAIN, of_unsendable_header, redact

# What the server calls an error, what it is in the tree, and what its text says. Servers of other makers than Amazon
# use the same codes. The server's own words are left out: some repeat the request.
_CODES: dict[str, tuple[type[StoreError], str]] = {
    "NoSuchKey": (ReferenceNotFoundError, "nothing is stored under the reference"),
    "404": (ReferenceNotFoundError, "nothing is stored under the reference"),
    "NoSuchBucket": (StoreConfigurationError, "the bucket does not exist"),
    "InvalidBucketName": (StoreConfigurationError, "the bucket's name is not allowed"),
    "AccessDenied": (StoreConfigurationError, "the credentials have no permission for it"),
    "AccessDeniedException": (StoreConfigurationError, "the credentials have no permission for it"),
    "AllAccessDisabled": (StoreConfigurationError, "the credentials have no permission for it"),
    "403": (StoreConfigurationError, "the credentials have no permission for it"),
    "InvalidAccessKeyId": (StoreConfigurationError, "the server refuses the credentials"),
    "SignatureDoesNotMatch": (StoreConfigurationError, "the server refuses the credentials"),
    "InvalidToken": (StoreConfigurationError, "the server refuses the credentials"),
    "InvalidTokenId": (StoreConfigurationError, "the server refuses the credentials"),
    "InvalidSecurity": (StoreConfigurationError, "the server refuses the credentials"),
    "InvalidClientTokenId": (StoreConfigurationError, "the server refuses the credentials"),
    "UnrecognizedClientException": (StoreConfigurationError, "the server refuses the credentials"),
    "CredentialsNotSupported": (StoreConfigurationError, "the server refuses the credentials"),
    "NotSignedUp": (StoreConfigurationError, "the server refuses the credentials"),
    "ExpiredToken": (StoreConfigurationError, "the credentials have expired"),
    "ExpiredTokenException": (StoreConfigurationError, "the credentials have expired"),
    "TokenRefreshRequired": (StoreConfigurationError, "the credentials have expired"),
    "AuthorizationHeaderMalformed": (StoreConfigurationError, "the bucket is in another region"),
    "PermanentRedirect": (StoreConfigurationError, "the bucket is in another region"),
    "301": (StoreConfigurationError, "the bucket is in another region"),
    "RequestTimeTooSkewed": (StoreConfigurationError, "this machine's clock differs from the server's"),
    "NotImplemented": (StoreConfigurationError, "the server does not know the operation"),
    "MethodNotAllowed": (StoreConfigurationError, "the server does not know the operation"),
    "BucketAlreadyExists": (StoreConfigurationError, "the server does not know the operation"),  # takes it for another
    "501": (StoreConfigurationError, "the server does not know the operation"),
    "BadDigest": (StoreUnavailableError, "it arrived damaged"),
    "XAmzContentSHA256Mismatch": (StoreUnavailableError, "it arrived damaged"),
    "IncompleteBody": (StoreUnavailableError, "it arrived damaged"),
    "EntityTooLarge": (EntryTooLargeError, "it is larger than the server takes"),
    "QuotaExceeded": (StoreFullError, "the server has no room left"),
    "InsufficientStorage": (StoreFullError, "the server has no room left"),
    "507": (StoreFullError, "the server has no room left"),
    "RequestTimeout": (StoreTimeoutError, "the server did not answer in time"),
}
_KINDS: tuple[tuple[tuple[type[Exception], ...], type[StoreError], str], ...] = (
    (
        (client_errors.NoCredentialsError, client_errors.PartialCredentialsError),
        StoreConfigurationError,
        "there are no credentials",
    ),
    (
        # Some servers send with a part the checksum of the whole; a store's own clients do not look at it.
        (client_errors.FlexibleChecksumError,),
        StoreConfigurationError,
        'the checksum is not that of the answer; make the client with `response_checksum_validation="when_required"`',
    ),
    ((client_errors.SSLError,), StoreConfigurationError, "the server's certificate cannot be verified"),
    (
        (client_errors.ConnectTimeoutError, client_errors.ReadTimeoutError, TimeoutError),
        StoreTimeoutError,
        "the server did not answer in time",
    ),
    (
        (
            client_errors.ConnectionError,
            client_errors.HTTPClientError,
            client_errors.IncompleteReadError,
            client_errors.ResponseStreamingError,
        ),
        StoreUnavailableError,
        "the server cannot be reached, or broke off",
    ),
)


_TOO_MUCH = frozenset({"SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "TooManyRequests"})
_PASSING = _TOO_MUCH | {"InternalError", "OperationAborted", "ConditionalRequestConflict"}
# What a server means by a status, whatever it calls the error.
_REFUSED = {401: "the server refuses the credentials", 403: "the credentials have no permission for it"}
# A ready client in another loop than its own.
_OTHER_LOOP = ("Event loop is closed", "different loop", "different event loop", "Session is closed")


def mapped(error: Exception, *, action: str) -> StoreError:
    """
    Return the member of the tree for what the client raised, with its cause chained.

    :param error: The client's error.
    :param action: What was being done, as a phrase that completes "Could not ...".
    :returns: The error to raise; `error` itself if it is one of the tree.
    """
    unsendable = of_unsendable_header(error)
    redact(error)
    if isinstance(error, HaybalerError):
        return error if isinstance(error, StoreError) else store_error(error, action=action)
    kind, reason = _of_reply(error.response) if isinstance(error, client_errors.ClientError) else _of_client(error)
    if unsendable:
        kind, reason = StoreConfigurationError, "a credential or a setting holds characters that cannot be sent"
    if kind is None:
        outcome = store_error(error, action=action, missing_means_absent=False)
    else:
        outcome = kind(f"Could not {action}: {reason}.")
    outcome.__cause__ = error
    return outcome


@contextmanager
def mapping(action: str) -> Iterator[None]:
    """
    Map what is raised inside to the tree.

    :param action: What is being done, as for `mapped`.
    :raises StoreError: In place of any other error.
    """
    try:
        yield
    except ConfigurationError:
        raise
    except Exception as error:  # noqa: BLE001 - it is raised, mapped
        failure = mapped(error, action=action)
        raise failure from failure.__cause__


def passing(error: Exception) -> bool:
    """Whether the same request may well succeed a moment later."""
    return isinstance(mapped(error, action="use the server"), StoreUnavailableError)


def asks_to_slow_down(error: Exception) -> bool:
    """Whether an error is a server's that has too much to do."""
    return isinstance(error, client_errors.ClientError) and (
        str(error.response.get("Error", {}).get("Code")) in _TOO_MUCH
        or error.response.get("ResponseMetadata", {}).get("HTTPStatusCode") in {429, 503}
    )


def was_repeated(result: object) -> bool:
    """Whether the client library has got an answer only after further attempts; it does not tell why."""
    answer = result[0] if isinstance(result, tuple) else result
    return isinstance(answer, dict) and bool(answer.get("ResponseMetadata", {}).get("RetryAttempts"))


def of_transport(error: Exception) -> bool:
    """
    Whether an error is the HTTP library's own, which the client has neither mapped nor tried again.

    That happens where a body breaks off. They are told by their module, without an import.
    """
    return type(error).__module__.partition(".")[0] in {"aiohttp", "urllib3"}


def _of_reply(response: dict[str, Any]) -> tuple[type[StoreError], str]:
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    if code in _CODES:
        return _CODES[code]
    if status >= 500 or status == 429 or code in _PASSING:
        return StoreUnavailableError, "the server is overloaded or failing"
    if status in _REFUSED:
        return StoreConfigurationError, _REFUSED[status]
    return StoreError, f"the server answers {code if PLAIN.match(code) else status}"


def _of_client(error: Exception) -> tuple[type[StoreError] | None, str]:
    text = str(error)
    if any(sign in text for sign in _OTHER_LOOP):
        return StoreConfigurationError, "the client that was given belongs to another event loop, or is closed"
    for kinds, kind, reason in _KINDS:
        if isinstance(error, kinds):
            return kind, reason
    if of_transport(error):
        if "Timeout" in type(error).__name__:
            return StoreTimeoutError, "the server did not answer in time"
        return StoreUnavailableError, "the server cannot be reached, or broke off"
    return None, ""
