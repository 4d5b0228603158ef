"""How the store reaches the server: checked settings, and what the client libraries make of them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from botocore.config import Config
from haystack.utils import Secret

from haybaler.errors import ConfigurationError, StoreConfigurationError

# A prefix becomes a part of keys, which some servers treat as paths: only characters that mean nothing anywhere.
# None begins with "@", as the parts of a scope do.
_PREFIX_PART = re.compile(r"[A-Za-z0-9_~=-][A-Za-z0-9._~@=-]*\Z")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_SMALLEST_PART = 5 * 1024 * 1024  # S3's limit for all parts of an upload but the last
_MOST_PARTS = 10_000  # likewise
_LONGEST = 1e9  # seconds; no timeout is longer

SECRETS = ("access_key_id", "secret_access_key", "session_token")


@dataclass(frozen=True, slots=True)
class Settings:
    """
    The settings of a store, as its constructor takes them.

    :param bucket: The bucket's name.
    :param prefix: What keys begin with, without the last `/`.
    :param endpoint_url: The server, or None for Amazon's.
    :param region_name: The region, or None for the environment's.
    :param path_style: Whether the bucket stands in the path of a URL rather than in the host's name.
    :param access_key_id: The first half of explicit credentials.
    :param secret_access_key: The second half.
    :param session_token: The token of temporary credentials.
    :param checksums: When requests carry a CRC: "when_supported" or "when_required".
    :param max_concurrency: Requests in flight, and connections, of one event loop.
    :param multipart_bytes: Above this size, an entry is uploaded in parts.
    :param part_bytes: The size of a part.
    :param max_bytes: The largest entry that is accepted.
    :param max_scope_bytes: The most bytes of one scope, or None.
    :param ttl: Seconds that an entry lives at least from its last write or read on, or None.
    :param connect_timeout: Seconds for making a connection.
    :param read_timeout: Seconds without a byte of the answer.
    :param min_bytes_per_second: What a transfer of content has to reach, or it is given up.
    :param attempts: How often a request that may succeed the next time is tried in all.
    """

    bucket: str
    prefix: str
    endpoint_url: str | None
    region_name: str | None
    path_style: bool
    access_key_id: Secret | None = field(repr=False)
    secret_access_key: Secret | None = field(repr=False)
    session_token: Secret | None = field(repr=False)
    checksums: str
    max_concurrency: int
    multipart_bytes: int
    part_bytes: int
    max_bytes: int
    max_scope_bytes: int | None
    ttl: float | None
    connect_timeout: float
    read_timeout: float
    min_bytes_per_second: int
    attempts: int

    def __post_init__(self) -> None:
        if not _BUCKET.match(self.bucket):
            raise ConfigurationError("`bucket` must be the name of a bucket.")
        if self.prefix and not all(map(_PREFIX_PART.match, self.prefix.split("/"))):
            raise ConfigurationError("`prefix` consists of letters, digits and `._~@=-`, in parts separated by `/`.")
        if self.endpoint_url is not None:
            _check_endpoint(self.endpoint_url)
        check_secrets({name: getattr(self, name) for name in SECRETS})
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ConfigurationError("`access_key_id` and `secret_access_key` belong together.")
        if self.checksums not in {"when_supported", "when_required"}:
            raise ConfigurationError('`checksums` must be "when_supported" or "when_required".')
        if not _SMALLEST_PART <= self.part_bytes <= self.multipart_bytes:
            raise ConfigurationError(f"`part_bytes` must be from {_SMALLEST_PART} to `multipart_bytes`.")
        if not 0 < self.max_bytes <= _MOST_PARTS * self.part_bytes:
            raise ConfigurationError(f"`max_bytes` must be from 1 to {_MOST_PARTS} times `part_bytes`.")
        timeouts = (self.connect_timeout, self.read_timeout)
        numbers = (self.max_concurrency, self.attempts, self.min_bytes_per_second)
        if min(numbers) < 1 or not all(0 < seconds <= _LONGEST for seconds in timeouts):
            raise ConfigurationError(
                "`max_concurrency`, `attempts`, `min_bytes_per_second` and the timeouts must be positive and finite."
            )

    def client_arguments(self) -> dict[str, Any]:
        """
        Return the arguments with which any of the libraries makes a client.

        :returns: Keyword arguments; credentials only where they were given explicitly.
        :raises StoreConfigurationError: If the environment variable of one of them is not set.
        """
        config = Config(
            max_pool_connections=self.max_concurrency,
            connect_timeout=self.connect_timeout,
            read_timeout=self.read_timeout,
            retries={"mode": "standard", "total_max_attempts": self.attempts},
            request_checksum_calculation=self.checksums,
            response_checksum_validation="when_required",  # ranged reads fail otherwise on some servers
            s3={"addressing_style": "path" if self.path_style else "auto"},
            signature_version="s3v4",
        )
        try:
            credentials = {
                f"aws_{name}": secret.resolve_value() for name in SECRETS if (secret := getattr(self, name)) is not None
            }
        except ValueError as error:
            raise StoreConfigurationError("The environment variable of a credential is not set.") from error
        given = {
            "region_name": self.region_name,
            "endpoint_url": self.endpoint_url,
            # Without TLS there is nothing to verify, and reading the authorities takes a client some 25 ms.
            "verify": False if (self.endpoint_url or "").startswith("http://") else None,
            **credentials,
        }
        return {"config": config, **{name: value for name, value in given.items() if value is not None}}

    def init_parameters(self) -> dict[str, Any]:
        """
        Return the constructor's arguments for serialization.

        :returns: Plain values; secrets in Haystack's form, which holds no value.
        :raises ValueError: If a secret was given as a plain token.
        """
        names = [name for name in self.__slots__ if name not in SECRETS]
        secrets = {name: secret.to_dict() for name in SECRETS if (secret := getattr(self, name)) is not None}
        return {**{name: getattr(self, name) for name in names}, **secrets}


def check_secrets(given: Mapping[str, Any], kind: type = Secret) -> None:
    """
    Refuse credentials that are not in the form that keeps them out of texts and serialized stores.

    :param given: Parameters by name, these among them.
    :param kind: What they have to be, unless they are None.
    :raises ConfigurationError: If one of them is something else; its text does not repeat it.
    """
    for name in SECRETS:
        if given.get(name) is not None and not isinstance(given[name], kind):
            raise ConfigurationError(
                f"`{name}` must be a `Secret` of haystack.utils, made by `from_env_var` or `from_token`."
            )


def _check_endpoint(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and url.isprintable()
    except ValueError:  # its text may repeat credentials
        raise ConfigurationError("The host or the port of `endpoint_url` is malformed.") from None
    if "@" in parts.netloc:
        raise ConfigurationError("Credentials do not belong into `endpoint_url`.")
    if not is_usable:
        raise ConfigurationError("`endpoint_url` begins with `http://` or `https://` and the name of a host.")
