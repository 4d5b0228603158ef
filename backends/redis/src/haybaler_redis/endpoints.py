"""Where the servers are, and how to prove who one is; taken from a URL. Pure: nothing is opened or looked up."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote

from haystack.utils import Secret

from haybaler.errors import ConfigurationError
from haybaler.stores.url import boolean, parse_store_url

SCHEMES = ("redis", "rediss", "unix")

_DEFAULT_PORTS = {"server": 6379, "sentinel": 26379}
_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\[\]:@/,\s]*))(?::(?P<port>[0-9]{1,5}))?\Z")

# What may follow `?` in the URL that `from_url` takes, besides the location itself.
OPTIONS: Mapping[str, Any] = {
    "db": int,
    "cluster": boolean,
    "sentinel": str,
    "prefix": str,
    "ttl": float,
    "max_bytes": int,
    "max_scope_bytes": int,
    "max_connections": int,
    "connect_timeout": float,
    "timeout": float,
    "pool_timeout": float,
    "retries": int,
    "group_commit": boolean,
    "ssl_ca_certs": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """
    Where to connect to.

    :param scheme: `redis`, `rediss` (TLS) or `unix`.
    :param hosts: Host names or addresses with ports, at least one; None for the default port. Empty for `unix`.
    :param path: The path of the socket; empty unless the scheme is `unix`.
    :param db: The number of the database.
    :param username: The user, or None for the server's default one; left out of the `repr`.
    :param password: Left out of the `repr`.
    """

    scheme: str
    hosts: tuple[tuple[str, int | None], ...]
    path: str
    db: int | None
    username: str | None = field(repr=False)
    password: str | None = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """
        Take the location of a store apart.

        :param url: `redis://[[user]:password@]host[:port][,host...][/db]`, the same with `rediss`, or
            `unix://[[user]:password@]/path/of/socket`.
        :returns: The endpoint.
        :raises ConfigurationError: If it is malformed. No part of it is in the text.
        """
        parts = parse_store_url(url, schemes=SCHEMES)
        userinfo, at, location = parts.authority.rpartition("@")
        username, _, password = userinfo.partition(":")
        if at and not password:
            raise ConfigurationError("Write a user in a Redis URL with the password: `user:password@`.")
        hosts: tuple[tuple[str, int | None], ...] = ()
        db = None
        if parts.scheme == "unix":
            if location or not parts.path.startswith("/") or parts.path == "/":
                raise ConfigurationError("The URL of a socket has an absolute path: unix:///path/of/socket.")
        else:
            hosts = tuple(_host(text) for text in location.split(","))
            db = _database(parts.path)
        return cls(
            parts.scheme,
            hosts,
            parts.path if parts.scheme == "unix" else "",
            db,
            unquote(username) or None,
            unquote(password) or None,
        )

    def addresses(self, role: str) -> list[tuple[str, int]]:
        """
        Return the hosts with their ports.

        :param role: `server` or `sentinel`, for the default port.
        :returns: Pairs of host and port, in the order of the URL.
        """
        return [(host, port or _DEFAULT_PORTS[role]) for host, port in self.hosts]


def split_options(url: str) -> tuple[str, dict[str, Any]]:
    """
    Take the settings off a URL.

    :param url: A location as in `Endpoint.parse`, with options after `?`.
    :returns: The location alone, and the options, converted.
    :raises ConfigurationError: If an option is unknown, repeated or has a value that is not allowed.
    """
    parts = parse_store_url(url, schemes=SCHEMES, options=OPTIONS)
    return url.partition("?")[0], parts.options


def revealed(value: object, name: str) -> str | None:
    """
    Return the text of a secret.

    :param value: The secret, or None.
    :param name: Its name, for the error.
    :returns: The text.
    :raises ConfigurationError: If it is anything else, also plain text, which the serialized form of a store would
        show; or if its environment variable is not set, or holds no text.
    """
    if value is None:
        return None
    if not isinstance(value, Secret):
        raise ConfigurationError(f"`{name}` must be a `Secret`, not {type(value).__name__}.")
    try:
        text = value.resolve_value()
    except ValueError as error:
        raise ConfigurationError(f"The secret for `{name}` cannot be resolved; is its variable set?") from error
    if text is not None and not isinstance(text, str):
        raise ConfigurationError(f"The secret for `{name}` must be text.")
    return text


def _host(text: str) -> tuple[str, int | None]:
    match = _HOST.match(text)
    if match is None:
        raise ConfigurationError("A host in a Redis URL has the form `host`, `host:port` or `[address]:port`.")
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 0 < port < 65536:
        raise ConfigurationError("A port in a Redis URL must be from 1 to 65535.")
    return unquote(match["six"] or match["name"]) or "localhost", port


def _database(path: str) -> int | None:
    number = path.removeprefix("/")
    if number and not (number.isascii() and number.isdigit()):
        raise ConfigurationError("The path of a Redis URL is the number of a database, such as `/0`.")
    return int(number) if number else None
