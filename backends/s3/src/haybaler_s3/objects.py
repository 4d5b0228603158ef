"""The operations on objects, written once for both colours: requests, and what follows from their answers."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio

from haybaler.effects import Effect, Steps, await_effect, in_worker
from haybaler.errors import EntryTooLargeError, StoreError, StoreUnavailableError
from haybaler.stores.driver import Content, page_start
from haybaler.stores.protocol import DeletedScope, StorePage
from haybaler_s3.clients import Clients
from haybaler_s3.failures import mapped
from haybaler_s3.records import Record, corrupt, encoded
from haybaler_s3.settings import Settings

logger = logging.getLogger(__name__)

R = TypeVar("R")

# Up to this size, encoding and summing up takes less than the way to a worker thread and back.
INLINE_BYTES = 128 * 1024
# The most keys in one request for deletion; S3's limit.
DELETE_KEYS = 1000
# How long the abortion of an upload may take while the caller is being cancelled, in seconds.
ABORT_SECONDS = 10.0


class Objects:
    """
    The objects of one bucket.

    :param settings: Bucket, sizes and number of attempts.
    :param clients: Where requests go.
    """

    def __init__(self, settings: Settings, clients: Clients) -> None:
        self._settings = settings
        self._clients = clients

    def _request(self, operation: str, **parameters: Any) -> Steps[Any]:
        def run() -> Any:
            return getattr(self._clients.synchronous(), operation)(Bucket=self._settings.bucket, **parameters)

        async def run_async() -> Any:
            client = await self._clients.asynchronous()
            return await getattr(client, operation)(Bucket=self._settings.bucket, **parameters)

        return (yield from await_effect(Effect(run, run_async)))

    def _fetch(self, key: str, span: str | None = None) -> Steps[tuple[dict[str, Any], bytes]]:
        """Get an object or a span of it. A body that breaks off is asked for again: the client does not do that."""
        ranged = {} if span is None else {"Range": span}

        def run() -> tuple[dict[str, Any], bytes]:
            answer = self._clients.synchronous().get_object(Bucket=self._settings.bucket, Key=key, **ranged)
            with answer["Body"] as body:
                return answer, body.read()

        async def run_async() -> tuple[dict[str, Any], bytes]:
            client = await self._clients.asynchronous()
            answer = await client.get_object(Bucket=self._settings.bucket, Key=key, **ranged)
            async with answer["Body"] as body:
                return answer, await body.read()

        for attempt in range(1, self._settings.attempts + 1):
            try:
                answer, data = yield from await_effect(Effect(run, run_async))
            except Exception as error:
                failure = mapped(error, action="read an entry")
                if attempt == self._settings.attempts or not isinstance(failure, StoreUnavailableError):
                    raise failure from error
                continue
            if len(data) == answer["ContentLength"]:
                return answer, data
        raise StoreUnavailableError("Could not read an entry: the server broke off.")

    def put(self, key: str, content: Content) -> Steps[None]:
        """
        Store an object, whole or not at all.

        :param key: Its key.
        :param content: Its content.
        :returns: Steps without a result.
        :raises EntryTooLargeError: If it is larger than the store accepts.
        """
        data, record = yield from _computed(len(content), lambda: _prepared(content))
        if len(data) > self._settings.max_bytes:
            raise EntryTooLargeError(f"The entry has {len(data)} bytes; the store takes {self._settings.max_bytes}.")
        if len(data) <= self._settings.multipart_bytes:
            yield from self._request("put_object", Key=key, Body=data, **record.parameters)
        else:
            yield from self._upload(key, data, record)

    def _upload(self, key: str, data: bytes, record: Record) -> Steps[None]:
        started = yield from self._request("create_multipart_upload", Key=key, **record.parameters)
        upload = {"Key": key, "UploadId": started["UploadId"]}
        try:
            parts = []
            for number, start in enumerate(range(0, len(data), self._settings.part_bytes), start=1):
                part = memoryview(data)[start : start + self._settings.part_bytes]
                answer = yield from self._request("upload_part", PartNumber=number, Body=bytes(part), **upload)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
            yield from self._request("complete_multipart_upload", MultipartUpload={"Parts": parts}, **upload)
        except BaseException:
            yield from self._abort(upload)
            raise

    def _abort(self, upload: dict[str, Any]) -> Steps[None]:
        def run() -> None:
            with _ignored():
                self._clients.synchronous().abort_multipart_upload(Bucket=self._settings.bucket, **upload)

        async def run_async() -> None:
            with _ignored(), anyio.move_on_after(ABORT_SECONDS, shield=True):
                client = await self._clients.asynchronous()
                await client.abort_multipart_upload(Bucket=self._settings.bucket, **upload)

        yield from await_effect(Effect(run, run_async))

    def get(self, key: str) -> Steps[Content]:
        """
        Return what an object holds.

        :param key: Its key.
        :returns: Steps that end in the content.
        """
        answer, data = yield from self._fetch(key)
        record = Record.parse(answer.get("Metadata") or {})
        return (yield from _computed(len(data), lambda: record.content(data)))

    def page(self, key: str, offset: int, limit: int) -> Steps[StorePage]:
        """
        Return a part of what an object holds, without the rest where characters have one width.

        :param key: The object's key.
        :param offset: Where to begin, in characters or bytes; negative counts from the end.
        :param limit: The most characters or bytes.
        :returns: Steps that end in the page.
        """
        head = yield from self._request("head_object", Key=key)
        record = Record.parse(head.get("Metadata") or {})
        if head["ContentLength"] != record.size:
            raise corrupt()
        start = page_start(offset, record.length)
        wanted = min(max(limit, 0), record.length - start)
        if not record.fixed_width or not wanted:
            whole = (yield from self.get(key)) if wanted else record.decoded(b"")
            return StorePage(whole[start : start + wanted], start, record.length)
        _, data = yield from self._fetch(key, f"bytes={start}-{start + wanted - 1}")
        if len(data) != wanted:
            raise corrupt()
        return StorePage(record.decoded(data), start, record.length)

    def delete(self, keys: Sequence[str]) -> Steps[None]:
        """
        Remove objects.

        :param keys: Their keys; one that does not exist counts as removed.
        :returns: Steps without a result.
        """
        for start in range(0, len(keys), DELETE_KEYS):
            part = [{"Key": key} for key in keys[start : start + DELETE_KEYS]]
            answer = yield from self._request("delete_objects", Delete={"Objects": part, "Quiet": True})
            if answer.get("Errors"):
                code = answer["Errors"][0].get("Code")
                raise StoreError(f"Could not delete {len(answer['Errors'])} entries: the server answers {code}.")

    def delete_all(self, prefix: str) -> Steps[DeletedScope]:
        """
        Remove every object whose key begins with a prefix.

        :param prefix: The prefix.
        :returns: Steps that end in how many objects and bytes were removed.
        """
        entries = size = 0
        token: dict[str, str] = {}
        while True:
            page = yield from self._request("list_objects_v2", Prefix=prefix, **token)
            objects = page.get("Contents") or []
            yield from self.delete([found["Key"] for found in objects])
            entries += len(objects)
            size += sum(found["Size"] for found in objects)
            if not page.get("IsTruncated"):
                return DeletedScope(entries, size)
            token = {"ContinuationToken": page["NextContinuationToken"]}


def _computed(size: int, function: Callable[[], R]) -> Steps[R]:
    return function() if size <= INLINE_BYTES else (yield from in_worker(function))


def _prepared(content: Content) -> tuple[bytes, Record]:
    data = encoded(content)
    return data, Record.of(content, data)


@contextmanager
def _ignored() -> Iterator[None]:
    # Whatever made the upload fail is what the caller is told; the parts that stay are for a lifecycle rule.
    try:
        yield
    except Exception as error:  # noqa: BLE001
        logger.warning(
            "An upload could not be aborted; its parts stay in the bucket.", extra={"error": type(error).__name__}
        )
