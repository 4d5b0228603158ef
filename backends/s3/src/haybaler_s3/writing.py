"""Writing an entry: in one request if it is small, in parts if it is large, and whole or not at all in any case."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from haybaler.effects import Effect, Steps, await_effect, computed, in_worker, perform, perform_async
from haybaler.errors import CorruptEntryError, EntryTooLargeError
from haybaler.stores.driver import Content
from haybaler.workers import clean_up, map_bounded, unbroken
from haybaler_s3.records import Record, encoded, parts
from haybaler_s3.requests import ABSENT, INLINE_BYTES, Requests, code_of

R = TypeVar("R")

logger = logging.getLogger(__name__)

# Parts of one entry that are uploaded, and held in memory, at the same time.
PARTS = 3
# How long a caller that is being cancelled waits for requests in flight, and for the abortion, in seconds.
ABORT_SECONDS = 10.0


class Writing:
    """
    How entries are written.

    :param requests: Where requests go.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._settings = requests.settings

    def put(self, key: str, content: Content) -> Steps[None]:
        """
        Store an object.

        :param key: Its key.
        :param content: Its content.
        :returns: Steps without a result.
        :raises EntryTooLargeError: If it is larger than the store accepts.
        """
        self._check(len(content))
        record, data = yield from computed(self._prepared, content, size=len(content), inline=INLINE_BYTES)
        self._check(record.size)
        if data is not None:
            yield from self._requests.send("put_object", Key=key, Body=data, **record.parameters)
        else:
            yield from self._upload(key, record, parts(content, self._settings.part_bytes))

    def _prepared(self, content: Content) -> tuple[Record, bytes | None]:
        record = Record.of(content)
        return record, encoded(content) if record.size <= self._settings.multipart_bytes else None

    def _check(self, size: int) -> None:
        if size > self._settings.max_bytes:
            raise EntryTooLargeError(f"The entry has {size} bytes or more; the store takes {self._settings.max_bytes}.")

    def _upload(self, key: str, record: Record, remaining: Iterator[bytes]) -> Steps[None]:
        upload = {"Key": key, "UploadId": (yield from await_effect(self._begun(key, record)))}
        try:
            done: list[dict[str, Any]] = []
            while group := (yield from in_worker(list, islice(remaining, PARTS))):
                numbered = list(enumerate(group, start=len(done) + 1))
                done += yield from await_effect(_to_its_end(self._sent(upload, numbered)))
            yield from self._completed(upload, record, done)
        except BaseException:
            yield from await_effect(self._aborted(upload))
            raise

    def _completed(self, upload: dict[str, str], record: Record, done: list[dict[str, Any]]) -> Steps[None]:
        complete = self._requests.once("complete_multipart_upload", MultipartUpload={"Parts": done}, **upload)
        try:
            yield from self._requests.repeated(_to_its_end(complete))
        except ClientError as error:
            # Once an upload is complete, some servers know it no more; the first answer may have got lost.
            if code_of(error) != "NoSuchUpload" or not (yield from self._is_there(upload["Key"], record)):
                raise

    def _is_there(self, key: str, record: Record) -> Steps[bool]:
        try:
            found = yield from self._requests.send("head_object", Key=key)
            return found["ContentLength"] == record.size and Record.parse(found.get("Metadata") or {}) == record
        except CorruptEntryError:
            return False
        except ClientError as error:
            if code_of(error) not in ABSENT:
                raise
            return False

    def _begun(self, key: str, record: Record) -> Effect[str]:
        """Begin an upload. An asynchronous caller that is cancelled meanwhile leaves none behind."""

        def steps() -> Steps[str]:
            answer = yield from self._requests.send("create_multipart_upload", Key=key, **record.parameters)
            return str(answer["UploadId"])

        async def run_async() -> str:
            begun: list[str] = []

            async def begin() -> None:
                begun.append(await perform_async(steps()))

            try:
                await unbroken(begin(), seconds=ABORT_SECONDS)
            except asyncio.CancelledError:
                for upload in begun:
                    await self._aborted({"Key": key, "UploadId": upload}).run_async()
                raise
            return begun[0]

        return Effect(lambda: perform(steps()), run_async)

    def _sent(self, upload: dict[str, str], numbered: Sequence[tuple[int, bytes]]) -> Effect[list[dict[str, Any]]]:
        def steps(part: tuple[int, bytes]) -> Steps[dict[str, Any]]:
            number, data = part
            answer = yield from self._requests.send("upload_part", PartNumber=number, Body=data, **upload)
            return {"PartNumber": number, "ETag": answer["ETag"]}

        def run() -> list[dict[str, Any]]:
            return [perform(steps(part)) for part in numbered]

        async def run_async() -> list[dict[str, Any]]:
            return await map_bounded(lambda part: perform_async(steps(part)), numbered, limit=PARTS)

        return Effect(run, run_async)

    def _aborted(self, upload: dict[str, str]) -> Effect[None]:
        def steps() -> Steps[Any]:
            return self._requests.send("abort_multipart_upload", **upload)

        def run() -> None:
            with _quiet():
                perform(steps())

        async def run_async() -> None:
            with _quiet():
                await clean_up(lambda: perform_async(steps()), seconds=ABORT_SECONDS)

        return Effect(run, run_async)


def _to_its_end(effect: Effect[R]) -> Effect[R]:
    """
    Have a cancelled caller wait for the end of what it asked for, though not for ever.

    A server that is still busy with a part would keep it although the upload was aborted meanwhile.
    """
    return Effect(effect.run, lambda: unbroken(effect.run_async(), seconds=ABORT_SECONDS))


@contextmanager
def _quiet() -> Iterator[None]:
    # Whatever made the upload fail is what the caller is told; the parts that stay are for a lifecycle rule.
    try:
        yield
    except Exception as error:  # noqa: BLE001
        if not (isinstance(error, ClientError) and code_of(error) == "NoSuchUpload"):
            logger.warning(
                "An upload could not be aborted; its parts stay in the bucket.", extra={"error": type(error).__name__}
            )
