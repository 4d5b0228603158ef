"""The one place where what the client or the server reports becomes an error of haybaler's tree."""

from typing import Any

from botocore import exceptions as client_errors

from haybaler.errors import (
    EntryTooLargeError,
    ReferenceNotFoundError,
    StoreConfigurationError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    store_error,
)

# What the server calls an error, what it is in the tree, and what its text says. Servers of other makers than Amazon use
# the same codes. The server's own words are left out: some repeat the request.
_CODES: dict[str, tuple[type[StoreError], str]] = {
    "NoSuchKey": (ReferenceNotFoundError, "nothing is stored under the reference"),
    "404": (ReferenceNotFoundError, "nothing is stored under the reference"),
    "NoSuchBucket": (StoreConfigurationError, "the bucket does not exist"),
    "InvalidBucketName": (StoreConfigurationError, "the bucket's name is not allowed"),
    "AccessDenied": (StoreConfigurationError, "the credentials have no permission for it"),
    "AllAccessDisabled": (StoreConfigurationError, "the credentials have no permission for it"),
    "403": (StoreConfigurationError, "the credentials have no permission for it"),
    "InvalidAccessKeyId": (StoreConfigurationError, "the server refuses the credentials"),
    "SignatureDoesNotMatch": (StoreConfigurationError, "the server refuses the credentials"),
    "ExpiredToken": (StoreConfigurationError, "the credentials have expired"),
    "InvalidToken": (StoreConfigurationError, "the server refuses the credentials"),
    "AuthorizationHeaderMalformed": (StoreConfigurationError, "the bucket is in another region"),
    "PermanentRedirect": (StoreConfigurationError, "the bucket is in another region"),
    "301": (StoreConfigurationError, "the bucket is in another region"),
    "RequestTimeTooSkewed": (StoreConfigurationError, "this machine's clock differs from the server's"),
    "NotImplemented": (StoreConfigurationError, "the server does not know the operation"),
    "501": (StoreConfigurationError, "the server does not know the operation"),
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
    ((client_errors.SSLError,), StoreConfigurationError, "the server's certificate cannot be verified"),
    (
        (client_errors.ConnectTimeoutError, client_errors.ReadTimeoutError, TimeoutError),
        StoreTimeoutError,
        "the server did not answer in time",
    ),
    (
        (client_errors.HTTPClientError, client_errors.IncompleteReadError, client_errors.ResponseStreamingError),
        StoreUnavailableError,
        "the server cannot be reached, or broke off",
    ),
)


def mapped(error: Exception, *, action: str) -> StoreError:
    """
    Return the member of the tree for what the client raised, with its cause chained.

    :param error: The client's error.
    :param action: What was being done, as a phrase that completes "Could not ...".
    :returns: The error to raise; `error` itself if it is one of the tree.
    """
    if isinstance(error, StoreError):
        return error
    kind, reason = _of_reply(error.response) if isinstance(error, client_errors.ClientError) else _of_client(error)
    outcome = kind(f"Could not {action}: {reason}.") if kind else store_error(error, action=action, missing_means_absent=False)
    outcome.__cause__ = error
    return outcome


def _of_reply(response: dict[str, Any]) -> tuple[type[StoreError], str]:
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)
    if code in _CODES:
        return _CODES[code]
    if (
        status >= 500
        or status == 429
        or code in {"SlowDown", "InternalError", "ServiceUnavailable", "OperationAborted"}
    ):
        return StoreUnavailableError, "the server is overloaded or failing"
    return StoreError, f"the server answers {code or status}"


def _of_client(error: Exception) -> tuple[type[StoreError] | None, str]:
    for kinds, kind, reason in _KINDS:
        if isinstance(error, kinds):
            return kind, reason
    # aiohttp's own errors reach us while a body is read; they are told by their module, as aiohttp is not imported here.
    if type(error).__module__.partition(".")[0] in {"aiohttp", "urllib3"}:
        return StoreUnavailableError, "the server cannot be reached, or broke off"
    return None, ""
