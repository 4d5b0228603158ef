"""The store that keeps tool results in an S3 bucket."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Self

from haystack.utils import Secret, deserialize_secrets_inplace

from haybaler.errors import NotSerializableError, StoreError
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content, write_failure
from haybaler.stores.limits import time_to_live
from haybaler.stores.protocol import StorePage
from haybaler.stores.url import boolean, parse_store_url
from haybaler.workers import map_bounded
from haybaler_s3.clients import Clients
from haybaler_s3.expiry import ExpiryRules
from haybaler_s3.failures import mapping
from haybaler_s3.housekeeping import S3Housekeeping
from haybaler_s3.lifespan import Keeper, Lifespan
from haybaler_s3.listing import Listing
from haybaler_s3.reading import Reading
from haybaler_s3.removing import Removing
from haybaler_s3.requests import Requests
from haybaler_s3.settings import SECRETS, Settings, check_secrets
from haybaler_s3.sweeping import Sweeping
from haybaler_s3.writing import Writing

MIB = 1024 * 1024
# Requests of one batch that synchronous callers have in flight.
THREADS = 8


class S3ToolResultStore(S3Housekeeping, BaseToolResultStore):
    """
    Keeps each tool result in an object of its own, in an S3 bucket or in a store that speaks its protocol.

    ```python
    from haybaler_s3 import S3ToolResultStore

    store = S3ToolResultStore("my-bucket", prefix="results")
    ```

    Clients are opened on first use: one for each event loop, and one of boto3 for synchronous callers. Text is stored
    as UTF-8 and binary content as it is; an object's own metadata says which.

    :param bucket: The name of an existing bucket.
    :param prefix: What keys begin with, without a `/` at the end.
    :param endpoint_url: The server; None for Amazon's.
    :param region_name: The region; None for the environment's, and `us-east-1` for a server of one's own.
    :param path_style: Whether the bucket stands in the path of URLs; None for "with `endpoint_url`".
    :param access_key_id: Explicit credentials, with the next one; None for boto's usual chain.
    :param secret_access_key: Explicit credentials.
    :param session_token: The token of temporary credentials.
    :param session: A ready session of aioboto3 or aiobotocore, for asynchronous callers.
    :param client: A ready asynchronous client with botocore's methods; it is never closed. It belongs to its own loop.
    :param sync_client: A ready boto3 client for synchronous callers; it is never closed.
    :param checksums: When requests carry a CRC; None for "when_required" with `endpoint_url` (not every server knows
        it), else "when_supported".
    :param max_concurrency: The most requests of one batch in flight, and the connections of one event loop.
    :param multipart_bytes: Above this size in bytes, an entry is uploaded in parts.
    :param part_bytes: The size of a part in bytes; at least 5 MiB.
    :param max_bytes: The largest entry that is accepted, in bytes.
    :param max_scope_bytes: As for `BaseToolResultStore`.
    :param ttl: How long an entry lives at least from its last write or read on, in seconds, and a quarter longer at
        most; None for ever. What has expired reads as absent, and goes with the next `sweep`.
    :param connect_timeout: Seconds for making a connection.
    :param read_timeout: Seconds without a byte of the answer.
    :param min_bytes_per_second: What a transfer of content has to reach on the whole, or it is given up: a request
        takes no longer than its timeouts and its size at this rate allow.
    :param attempts: How often a request that may succeed the next time is tried in all.
    :raises ConfigurationError: If a parameter is not usable.
    """

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "haybaler",
        endpoint_url: str | None = None,
        region_name: str | None = None,
        path_style: bool | None = None,
        access_key_id: Secret | None = None,
        secret_access_key: Secret | None = None,
        session_token: Secret | None = None,
        session: Any = None,
        client: Any = None,
        sync_client: Any = None,
        checksums: str | None = None,
        max_concurrency: int = 50,
        multipart_bytes: int = 8 * MIB,
        part_bytes: int = 5 * MIB,
        max_bytes: int = 1024 * MIB,
        max_scope_bytes: int | None = None,
        ttl: float | timedelta | None = None,
        connect_timeout: float = 5.0,
        read_timeout: float = 20.0,
        min_bytes_per_second: int = 16 * 1024,
        attempts: int = 4,
    ) -> None:
        self._settings_of_store = Settings(
            bucket=bucket,
            prefix=prefix,
            endpoint_url=endpoint_url,
            region_name=region_name,
            path_style=endpoint_url is not None if path_style is None else path_style,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            session_token=session_token,
            checksums=checksums or ("when_required" if endpoint_url else "when_supported"),
            max_concurrency=max_concurrency,
            multipart_bytes=multipart_bytes,
            part_bytes=part_bytes,
            max_bytes=max_bytes,
            max_scope_bytes=max_scope_bytes,
            ttl=time_to_live(ttl),
            connect_timeout=connect_timeout,
            read_timeout=read_timeout,
            min_bytes_per_second=min_bytes_per_second,
            attempts=attempts,
        )
        self._clients = Clients(self._settings_of_store, session=session, client=client, sync_client=sync_client)
        self._folder = f"{prefix}/" if prefix else ""
        requests = Requests(self._settings_of_store, self._clients)
        self._keeper = Keeper(requests, Lifespan(self._settings_of_store.ttl))
        self._writing, self._reading = Writing(requests), Reading(requests, self._keeper)
        self._removing = Removing(requests)
        self._expiry = ExpiryRules(requests)
        self._listing = Listing(requests, self._folder, self._keeper)
        self._sweeping = Sweeping(requests, self._folder, self._keeper.lifespan, self._removing)
        super().__init__(location=f"s3://{bucket}/{self._folder}", max_scope_bytes=max_scope_bytes)

    @classmethod
    def from_url(cls, url: str) -> Self:
        """
        Build a store from a URL, for example `s3://my-bucket/results?region_name=eu-central-1`.

        Credentials do not belong into it: they come from boto's usual chain.

        :param url: The bucket and the prefix. Every parameter of the constructor that is a number, a text, `true` or
            `false` may follow as an option.
        :returns: The store.
        :raises ConfigurationError: If the URL is not one of this kind.
        """
        options: dict[str, Any] = {
            **dict.fromkeys(("endpoint_url", "region_name", "checksums"), str),
            **dict.fromkeys(("max_concurrency", "multipart_bytes", "part_bytes", "max_bytes", "max_scope_bytes"), int),
            **dict.fromkeys(("min_bytes_per_second", "attempts"), int),
            **dict.fromkeys(("connect_timeout", "read_timeout", "ttl"), float),
            "path_style": boolean,
        }
        parts = parse_store_url(url, schemes=["s3"], options=options)
        prefix = parts.path.strip("/")
        named = {"prefix": prefix, **parts.options} if prefix else parts.options
        return cls(parts.authority, **named)

    def _put(self, path: str, content: Content) -> None:
        self._perform("write an entry", self._writing.put(self._key(path), content))

    async def _put_async(self, path: str, content: Content) -> None:
        async with self._clients.room.taken(len(content)):
            await self._perform_async("write an entry", self._writing.put(self._key(path), content))

    def _put_many(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        def put(item: tuple[str, Content]) -> StoreError | None:
            try:
                self._put(*item)
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
                return write_failure(error)
            return None

        if len(items) == 1:
            return [put(items[0])]
        with ThreadPoolExecutor(THREADS) as pool:
            return list(pool.map(put, items))

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        async def put(item: tuple[str, Content]) -> StoreError | None:
            try:
                await self._put_async(*item)
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
                return write_failure(error)
            return None

        return await map_bounded(put, items, limit=self._settings_of_store.max_concurrency)

    def _get(self, path: str) -> Content:
        return self._perform("read an entry", self._reading.get(self._key(path)))

    async def _get_async(self, path: str) -> Content:
        return await self._perform_async("read an entry", self._reading.get(self._key(path)))

    def _get_page(self, path: str, offset: int, limit: int) -> StorePage:
        return self._perform("read an entry", self._reading.page(self._key(path), offset, limit))

    async def _get_page_async(self, path: str, offset: int, limit: int) -> StorePage:
        return await self._perform_async("read an entry", self._reading.page(self._key(path), offset, limit))

    def _remove(self, path: str) -> None:
        self._remove_many([path])

    def _remove_many(self, paths: Sequence[str]) -> None:
        keys = self._keeper.with_marks([self._key(path) for path in paths])
        self._perform("delete entries", self._removing.remove(keys))

    async def _remove_many_async(self, paths: Sequence[str]) -> None:
        keys = self._keeper.with_marks([self._key(path) for path in paths])
        await self._perform_async("delete entries", self._removing.remove(keys))

    def ensure_expiry_rule(self, days: int) -> None:
        """
        Have the server delete the entries of this scope, and of those inside it, some days after they were written.

        Without a scope, that is everything under the store's prefix. The bucket's lifecycle configuration gets one rule
        for it, which also drops unfinished uploads after a day; other rules stay. Where several rules meet, the
        shortest time counts. A bucket holds a thousand rules at most, so set them for tenants rather than for runs. S3
        counts from the last write, not from the last read.

        :param days: After how many days; a whole number of at least 1.
        :raises ConfigurationError: If `days` is none, or if the store has neither prefix nor scope: such a rule would
            delete whatever else is in the bucket.
        :raises StoreError: If the server has no lifecycle rules, or the credentials may not set them.
        """
        self._perform("set the expiry rule", self._expiry.ensure(self._key(self._scope_path), days))

    async def ensure_expiry_rule_async(self, days: int) -> None:
        """
        Have the server delete entries, as `ensure_expiry_rule` does.

        :param days: After how many days; a whole number of at least 1.
        :raises ConfigurationError: As `ensure_expiry_rule`.
        :raises StoreError: As `ensure_expiry_rule`.
        """
        await self._perform_async("set the expiry rule", self._expiry.ensure(self._key(self._scope_path), days))

    def warm_up(self) -> None:
        """Open the client of synchronous callers. The server is not asked for anything."""
        with mapping("open the store"):
            self._clients.open().run()

    async def warm_up_async(self) -> None:
        """Open the running loop's client. The server is not asked for anything."""
        with mapping("open the store"):
            await self._clients.open().run_async()

    def close(self) -> None:
        """Close the synchronous client, unless it was given. The next use opens another."""
        self._clients.close()

    async def close_async(self) -> None:
        """Close the running loop's client, unless it was given. The next use opens another."""
        await self._clients.close_async()

    def _settings(self) -> dict[str, Any]:
        if not self._clients.serializable:
            raise NotSerializableError("A store with a ready session or client cannot be serialized.")
        try:
            return self._settings_of_store.init_parameters()
        except ValueError as error:
            raise NotSerializableError("Credentials can only be serialized as `Secret.from_env_var`.") from error

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        As `ToolResultStore.from_dict`; credentials are read from the environment again.

        :raises ConfigurationError: If they stand in the data themselves.
        """
        parameters = dict(data.get("init_parameters", {}))
        check_secrets(parameters, dict)
        deserialize_secrets_inplace(parameters, keys=SECRETS)
        return super().from_dict({**data, "init_parameters": parameters})
