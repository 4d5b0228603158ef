"""The store that keeps tool results in Redis or Valkey."""

import logging
import re
from collections.abc import Hashable, Sequence
from datetime import timedelta
from typing import Any, Self

from haystack.utils import Secret

from haybaler.effects import perform, perform_async
from haybaler.errors import ConfigurationError, NotSerializableError, StoreError
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content
from haybaler.stores.protocol import StorePage
from haybaler_redis.clients import Clients, clients_from, clients_of
from haybaler_redis.counting import SharedCount
from haybaler_redis.endpoints import Endpoint, split_options
from haybaler_redis.features import Features
from haybaler_redis.housekeeping import RedisHousekeeping
from haybaler_redis.listing import Listing
from haybaler_redis.reading import Reading
from haybaler_redis.records import LARGEST
from haybaler_redis.removing import Removing
from haybaler_redis.settings import TLS_FILES, Settings, milliseconds, number
from haybaler_redis.sweeping import Sweeping
from haybaler_redis.writing import Writing, group_bounds

logger = logging.getLogger(__name__)

RETRIES = 3
# With the pauses between them, about as long as sentinels need to agree on another primary.
SENTINEL_RETRIES = 10

_PREFIX = re.compile(r"[!-z|~]*(?:\{[!-z|~]+\}[!-z|~]*)?\Z")  # printable ASCII, at most one hash tag of a cluster
_SECRETS = ("url", "password", "sentinel_password")
_OF_A_CLIENT = ("url", "username", "password", "db", "cluster", "sentinel", "sentinel_password", *TLS_FILES)


class RedisToolResultStore(RedisHousekeeping, BaseToolResultStore):
    """
    Keeps each tool result under a key of its own, in Redis (6.2 and newer) or Valkey.

    ```python
    from haybaler_redis import RedisToolResultStore

    store = RedisToolResultStore("redis://localhost:6379/0", ttl=3600)
    reference = store.write(key="search_1.txt", content="...")
    store.read(reference)
    ```

    :param url: Where the server is: `redis://[[user]:password@]host[:port][/db]`, the same with `rediss` for TLS, or
        `unix:///path/of/socket`. Several hosts of a cluster or of sentinels are separated by commas. A URL that holds a
        password should be a `Secret`, or the password be given apart; otherwise the store cannot be serialized.
    :param client: A ready client of redis-py instead of a URL: asyncio or not, of one server, a cluster or sentinels.
        It is never closed. With an asyncio client, synchronous calls raise `AsyncOnlyStoreError`, and the event loop
        has to be the client's; with a synchronous one, asynchronous callers are served by worker threads. Such a store
        cannot be serialized.
    :param username: The user, unless the URL names it.
    :param password: The password, unless the URL holds it; plain text is refused.
    :param db: The number of the database, unless the URL names it.
    :param cluster: Whether the servers are a Redis Cluster.
    :param sentinel: The name of the service, where the hosts are sentinels; user and password are the server's.
    :param sentinel_password: The password of the sentinels themselves; plain text is refused.
    :param prefix: What every key begins with; followed by a colon.
    :param ttl: How long an entry lives from its last write or read on, in seconds; None for ever.
    :param max_bytes: The largest content that is stored, in bytes; a larger one is an `EntryTooLargeError`.
    :param max_scope_bytes: The most bytes of the contents that lie in one scope, those of the scopes inside it not
        counted; None for any number. A counter in the server is shared by all processes that set a bound. An entry
        without room is a `ScopeFullError`.
    :param max_connections: The most connections of each event loop, and of all threads without one; in a cluster, to
        each node. Further calls wait.
    :param connect_timeout: Seconds for connecting.
    :param timeout: Seconds for one request. Large entries are sent and read in requests of at most 4 MB.
    :param pool_timeout: Seconds that a call waits for a connection.
    :param retries: How often a request is repeated that failed for a passing reason: a lost connection, a failover, a
        restart; once for a timeout. By default 3 times, within half a second; with sentinels 10 times.
    :param group_commit: Whether asynchronous writes that find four round trips of other writes on their way (with a
        cluster or fewer connections, less) wait for them together, and then share round trips, whatever scopes they are
        for.
    :param ssl_ca_certs: For `rediss`: the file with the certificate authorities; by default the system's.
    :param ssl_certfile: For `rediss`: the file with a certificate of the client's own.
    :param ssl_keyfile: For `rediss`: the file with its key.
    :raises ConfigurationError: If a parameter is not usable.
    """

    def __init__(
        self,
        url: str | Secret | None = None,
        *,
        client: Any = None,
        username: str | None = None,
        password: Secret | None = None,
        db: int | None = None,
        cluster: bool = False,
        sentinel: str | None = None,
        sentinel_password: Secret | None = None,
        prefix: str = "haybaler",
        ttl: float | timedelta | None = None,
        max_bytes: int = 128 * 1024 * 1024,
        max_scope_bytes: int | None = None,
        max_connections: int = 16,
        connect_timeout: float = 5.0,
        timeout: float = 5.0,
        pool_timeout: float = 30.0,
        retries: int | None = None,
        group_commit: bool = True,
        ssl_ca_certs: str | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
    ) -> None:
        if not 0 < len(prefix) <= 100 or not _PREFIX.match(prefix):
            raise ConfigurationError(
                "`prefix` must be 1 to 100 printable ASCII characters without spaces, and with one `{...}` at most."
            )
        seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
        number("max_bytes", max_bytes, lowest=1, highest=LARGEST, whole=True)
        number("max_connections", max_connections, lowest=1, whole=True)
        number("pool_timeout", pool_timeout, lowest=0.001)
        attempts = (SENTINEL_RETRIES if sentinel else RETRIES) if retries is None else retries
        number("retries", attempts, whole=True)
        if not isinstance(group_commit, bool):
            raise ConfigurationError(f"`group_commit` must be true or false, not {group_commit!r}.")
        self._parameters: dict[str, Any] = {
            "url": url,
            "username": username,
            "password": password,
            "db": db,
            "cluster": cluster,
            "sentinel": sentinel,
            "sentinel_password": sentinel_password,
            "prefix": prefix,
            "ttl": seconds,
            "max_bytes": max_bytes,
            "max_scope_bytes": max_scope_bytes,
            "max_connections": max_connections,
            "connect_timeout": connect_timeout,
            "timeout": timeout,
            "pool_timeout": pool_timeout,
            "retries": retries,
            "group_commit": group_commit,
            "ssl_ca_certs": ssl_ca_certs,
            "ssl_certfile": ssl_certfile,
            "ssl_keyfile": ssl_keyfile,
        }
        self._key_prefix = f"{prefix}:".encode()
        self._ttl = milliseconds(seconds)
        self._clients = self._make_clients(client)
        self._writing = Writing(self._clients, self._ttl, max_bytes, attempts)
        self._reading = Reading(self._clients, self._ttl, attempts)
        self._removing = Removing(self._clients, attempts)
        self._listing = Listing(self._clients, self._key_prefix, attempts)
        self._sweeping = Sweeping(self._clients, attempts)
        groups = group_bounds(self._clients, wait=pool_timeout) if group_commit else None
        super().__init__(location=f"redis:{prefix}/", group_commit=groups, max_scope_bytes=max_scope_bytes)
        self._scope_count = SharedCount(self._clients, self._key_prefix, self._ttl, attempts)

    def _make_clients(self, client: object) -> Clients:
        given = self._parameters
        bounds = {"limit": given["max_connections"], "wait": given["pool_timeout"]}
        if client is None:
            if given["url"] is None:
                raise ConfigurationError("Give either `url` or `client`.")
            return clients_of(Settings.of(given), announce=self._announce, **bounds)
        contradicting = [name for name in _OF_A_CLIENT if given[name] or given[name] == ""]
        if contradicting:
            raise ConfigurationError(f"A ready client has its own `{contradicting[0]}`.")
        return clients_from(client, announce=self._announce, **bounds)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """
        Build a store from a URL, for example `redis://localhost:6379/0?prefix=results&ttl=3600`.

        :param url: A location as for the constructor. Every parameter that is a number, a text, `true` or `false` may
            follow as an option, for example `cluster=true`.
        :returns: The store.
        :raises ConfigurationError: If the URL is not one of this kind.
        """
        location, options = split_options(url)
        return cls(location, **options)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """As `ToolResultStore.from_dict`; secrets are resolved anew."""
        given = data.get("init_parameters", {})
        forms = {name: given.get(name) for name in _SECRETS}  # anything else is refused by the constructor
        secrets = {name: Secret.from_dict(it) for name, it in forms.items() if isinstance(it, dict) and "type" in it}
        return super().from_dict({**data, "init_parameters": {**given, **secrets}})

    def _settings(self) -> dict[str, Any]:
        url = self._parameters["url"]
        if url is None:
            raise NotSerializableError("A store with a ready client cannot be serialized; give it a URL instead.")
        if isinstance(url, str) and Endpoint.parse(url).password:
            raise NotSerializableError(
                "The URL of the store holds a password. Give the URL as a `Secret`, or the password apart from it."
            )
        try:
            return {
                name: value.to_dict() if isinstance(value, Secret) else value
                for name, value in self._parameters.items()
            }
        except ValueError as error:
            raise NotSerializableError("A secret that is not an environment variable cannot be serialized.") from error

    def _key(self, path: str) -> bytes:
        return self._key_prefix + path.encode()

    def _keyed(self, items: Sequence[tuple[str, Content]]) -> list[tuple[bytes, Content]]:
        prefix = self._key_prefix
        return [(prefix + path.encode(), content) for path, content in items]

    def _announce(self, features: Features) -> None:
        """Warn where the server may remove entries that are still referred to."""
        evicting = features.eviction or ""
        if evicting.startswith("allkeys") or (evicting and self._ttl is not None):
            logger.warning(
                "The server removes keys when its memory is full; entries may disappear before their time.",
                extra={"maxmemory_policy": evicting},
            )

    def _servers_of(self, paths: Sequence[str]) -> Sequence[Hashable]:
        if not self._clients.clustered:
            return super()._servers_of(paths)
        return [self._clients.server_of(self._key(path)) for path in paths]

    def _put(self, path: str, content: Content) -> None:
        for error in self._put_many([(path, content)]):
            if error is not None:
                raise error

    def _put_many(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        return perform(self._writing.write(self._keyed(items)))

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        return await perform_async(self._writing.write(self._keyed(items)))

    def _get(self, path: str) -> Content:
        return perform(self._reading.read(self._key(path)))

    async def _get_async(self, path: str) -> Content:
        return await perform_async(self._reading.read(self._key(path)))

    def _get_page(self, path: str, offset: int, limit: int) -> StorePage:
        return perform(self._reading.page(self._key(path), offset, limit))

    async def _get_page_async(self, path: str, offset: int, limit: int) -> StorePage:
        return await perform_async(self._reading.page(self._key(path), offset, limit))

    def _remove(self, path: str) -> None:
        self._remove_many([path])

    def _remove_many(self, paths: Sequence[str]) -> None:
        perform(self._removing.remove([self._key(path) for path in paths]))

    async def _remove_many_async(self, paths: Sequence[str]) -> None:
        await perform_async(self._removing.remove([self._key(path) for path in paths]))

    def warm_up(self) -> None:
        """
        Connect, and learn what the server can do.

        :raises StoreError: If the server cannot be used.
        """
        perform(self._writing.prepare())

    async def warm_up_async(self) -> None:
        """
        Connect for the running event loop, and learn what the server can do.

        :raises StoreError: If the server cannot be used.
        """
        await perform_async(self._writing.prepare())

    def close(self) -> None:
        """Disconnect what synchronous callers opened, after what they are doing. The next use connects again."""
        self._clients.close()

    async def close_async(self) -> None:
        """Disconnect what was opened for the running event loop, after what is in flight. The next use reconnects."""
        await super().close_async()
        await self._clients.close_async()
