"""How a store speaks to its servers: limits and times, checked, and passed to every kind of client explicitly."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Self

from haybaler.errors import ConfigurationError
from haybaler_redis.endpoints import Endpoint, revealed

_LONGEST_TTL = 100 * 365 * 24 * 3600.0  # seconds; the server's own limit is further away
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
# Seconds that a connection may lie idle before it is asked whether it is still alive.
HEALTH_CHECK_SECONDS = 30
# Otherwise redis-py looks up its own version, on the disk, for each connection, to tell it to the server.
_NO_INTRODUCTION: dict[str, Any] = (
    {"driver_info": None} if find_spec("redis.driver_info") else {"lib_name": None, "lib_version": None}
)


@dataclass(frozen=True, slots=True)
class Settings:
    """
    The settings of one store, without what concerns single entries.

    :param endpoint: Where the servers are.
    :param username: The user, or None for the server's default one; left out of the `repr`.
    :param password: Left out of the `repr`.
    :param sentinel_password: Left out of the `repr`.
    :param db: The number of the database.
    :param cluster: Whether the servers are a Redis Cluster.
    :param sentinel: The name of the service that sentinels watch, or None.
    :param max_connections: The most connections of one event loop, or of all threads without one.
    :param connect_timeout: Seconds for connecting.
    :param timeout: Seconds for one request.
    :param tls: The files of `rediss`: `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, as far as they are given.
    """

    endpoint: Endpoint
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)
    sentinel_password: str | None = field(repr=False)
    db: int
    cluster: bool
    sentinel: str | None
    max_connections: int
    connect_timeout: float
    timeout: float
    tls: dict[str, str]

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """
        Return the settings that a constructor's parameters describe.

        :param parameters: The parameters by name; secrets are resolved.
        :returns: The settings.
        :raises ConfigurationError: If they are not usable, or contradict each other.
        """
        for name in ("connect_timeout", "timeout"):
            number(name, parameters[name], lowest=0.001)
        for name in ("username", "sentinel", *TLS_FILES):
            if not isinstance(parameters[name], str | None):
                raise ConfigurationError(f"`{name}` must be text, not {type(parameters[name]).__name__}.")
        url = parameters["url"]
        endpoint = Endpoint.parse(url if isinstance(url, str) else revealed(url, "url") or "")
        given = {name: revealed(parameters[name], name) for name in ("password", "sentinel_password")}
        for name in ("username", "password"):
            if getattr(endpoint, name) and (given.get(name) or parameters[name]):
                raise ConfigurationError(f"Give `{name}` in the URL or apart from it, not both.")
        if endpoint.db is not None and parameters["db"] is not None:
            raise ConfigurationError("Give the database in the URL or as `db`, not both.")
        db = endpoint.db if endpoint.db is not None else parameters["db"] or 0
        number("db", db, whole=True)
        return cls(
            endpoint,
            username=parameters["username"] or endpoint.username,
            password=given["password"] or endpoint.password,
            sentinel_password=given["sentinel_password"],
            db=db,
            cluster=parameters["cluster"],
            sentinel=parameters["sentinel"],
            max_connections=parameters["max_connections"],
            connect_timeout=parameters["connect_timeout"],
            timeout=parameters["timeout"],
            tls={name: parameters[name] for name in TLS_FILES if parameters[name] is not None},
        )

    def __post_init__(self) -> None:
        if self.endpoint.scheme == "unix" and (self.cluster or self.sentinel):
            raise ConfigurationError("Neither a cluster nor sentinels are reached through `unix://`.")
        if self.cluster and self.sentinel:
            raise ConfigurationError("Give `cluster` or `sentinel`, not both.")
        if self.cluster and self.db:
            raise ConfigurationError("A Redis Cluster has database 0 only.")
        if not (self.cluster or self.sentinel) and len(self.endpoint.hosts) > 1:
            raise ConfigurationError(
                "Several hosts are those of a cluster or of sentinels; set `cluster` or `sentinel`."
            )
        if self.tls and self.endpoint.scheme != "rediss":
            raise ConfigurationError("Certificates are for `rediss://`.")

    @property
    def connection(self) -> dict[str, Any]:
        """The arguments of every connection, whichever constructor passes them on."""
        return {
            "socket_timeout": self.timeout,
            "socket_connect_timeout": self.connect_timeout,
            "health_check_interval": HEALTH_CHECK_SECONDS,
            **_NO_INTRODUCTION,
            "protocol": 2,  # the newer one brings announcements that need an answer, and nothing for a store
            **({} if self.endpoint.scheme == "unix" else {"socket_keepalive": True}),
        }

    @property
    def login(self) -> dict[str, Any]:
        """Who the store is to the server."""
        return {"username": self.username, "password": self.password}

    @property
    def encryption(self) -> dict[str, Any]:
        """The arguments of `rediss`; certificates are always verified."""
        if self.endpoint.scheme != "rediss":
            return {}
        return {"ssl_cert_reqs": "required", "ssl_check_hostname": True, **self.tls}


def number(name: str, value: object, *, lowest: float = 0, highest: float = 1e9, whole: bool = False) -> None:
    """
    Check a number.

    :param name: The name of the parameter.
    :param value: Its value.
    :param lowest: The lowest value that is allowed.
    :param highest: The highest value that is allowed.
    :param whole: Whether only whole numbers are.
    :raises ConfigurationError: If the value is not such a number.
    """
    kinds = (int,) if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not lowest <= value <= highest:
        raise ConfigurationError(
            f"`{name}` must be a {'whole ' if whole else ''}number from {lowest:g} to {highest:g}, not {value!r}."
        )


def milliseconds(ttl: float | None) -> int | None:
    """
    Convert a time to live.

    :param ttl: Seconds, or None for ever.
    :returns: Milliseconds, rounded up.
    :raises ConfigurationError: If it is not a number, not positive, or longer than the server can count.
    """
    if ttl is None:
        return None
    number("ttl", ttl, lowest=0.001, highest=_LONGEST_TTL)
    return math.ceil(ttl * 1000)
