"""Reading an entry, or a page of it without the rest. Bodies come in chunks, so that none holds up the event loop."""

from typing import Any

import anyio
from botocore.exceptions import ClientError

from haybaler.effects import Effect, Steps, await_effect, computed
from haybaler.errors import StoreUnavailableError
from haybaler.stores.driver import Content, page_of, page_start
from haybaler.stores.page_scan import PageScan
from haybaler.stores.protocol import StorePage
from haybaler_s3.deadlines import Deadline, body_seconds, request_seconds
from haybaler_s3.failures import mapped
from haybaler_s3.lifespan import Keeper
from haybaler_s3.records import BINARY, Record, corrupt
from haybaler_s3.requests import INLINE_BYTES, Requests, code_of, pause

# Bytes that are read at once.
CHUNK = 1024 * 1024
# Bytes that come with the metadata when a page is wanted: most entries are not larger, and are there at once.
FIRST_BYTES = 64 * 1024
# Where characters have different widths, a page is looked for in spans that grow from the first of these to the second.
FIRST_SPAN = 256 * 1024
LONGEST_SPAN = 4 * 1024 * 1024
# How often a read begins anew because the entry is being replaced meanwhile.
_ATTEMPTS = 5


class _BrokenBodyError(Exception):
    """A body broke off after the server had begun to answer. The client does not ask again then."""


class _ReplacedError(Exception):
    """The entry became another one between two requests."""


class Reading:
    """
    How entries are read.

    :param requests: Where requests go.
    :param keeper: Lets entries that are read live on.
    """

    def __init__(self, requests: Requests, keeper: Keeper) -> None:
        self._requests = requests
        self._keeper = keeper
        self._settings = requests.settings

    def get(self, key: str) -> Steps[Content]:
        """
        Return what an object holds.

        :param key: Its key.
        :returns: Steps that end in the content.
        """
        record, chunks = yield from self._opened(key)
        return (yield from computed(record.content, chunks, size=record.size, inline=INLINE_BYTES))

    def page(self, key: str, offset: int, limit: int) -> Steps[StorePage]:
        """
        Return a part of what an object holds. Of a large one, only what the part needs is fetched.

        :param key: The object's key.
        :param offset: Where to begin, in characters or bytes; negative counts from the end.
        :param limit: The most characters or bytes.
        :returns: Steps that end in the page.
        """
        for _ in range(_ATTEMPTS):
            try:
                record, chunks = yield from self._opened(key, (0, FIRST_BYTES))
            except ClientError as error:
                if code_of(error) != "InvalidRange":
                    raise
                return page_of((yield from self.get(key)), offset, limit)  # it is empty
            if sum(map(len, chunks)) == record.size:
                return page_of(
                    (yield from computed(record.content, chunks, size=record.size, inline=INLINE_BYTES)), offset, limit
                )
            try:
                return (yield from self._scanned(key, record, b"".join(chunks), offset, limit))
            except _ReplacedError:
                continue
        raise StoreUnavailableError("Could not read an entry: it is being replaced all the time.")

    def _scanned(self, key: str, record: Record, first: bytes, offset: int, limit: int) -> Steps[StorePage]:
        scan = PageScan(
            binary=record.kind == BINARY, size=record.size, length=record.length, offset=offset, limit=limit
        )
        exact = page_start(offset, record.length) + max(limit, 0) if record.fixed_width else 0
        held, data, span = 0, first, FIRST_SPAN
        while (yield from computed(_feed, scan, held, data, size=len(data), inline=INLINE_BYTES)):
            assert scan.wanted is not None  # noqa: S101 - or it would not want more
            held, least = scan.wanted
            end = exact or held + max(span, least)
            data = yield from self._span(key, record, held, min(end, record.size))
            span = min(2 * span, LONGEST_SPAN)
        return scan.page()

    def _span(self, key: str, expected: Record, start: int, end: int) -> Steps[bytes]:
        try:
            answer, chunks = yield from self._fetched(key, (start, end))
        except ClientError as error:
            if code_of(error) != "InvalidRange":
                raise
            raise _ReplacedError from error  # by a smaller one
        if _record(answer) != expected:
            raise _ReplacedError
        return b"".join(chunks)

    def _opened(self, key: str, span: tuple[int, int] | None = None) -> Steps[tuple[Record, list[bytes]]]:
        """Fetch an object, or the first bytes of it, and let the entry live on."""
        answer, chunks = yield from self._fetched(key, span)
        yield from self._keeper.alive(key, answer, renew=True)
        return _record(answer), chunks

    def _fetched(self, key: str, span: tuple[int, int] | None = None) -> Steps[tuple[dict[str, Any], list[bytes]]]:
        effect = self._fetching(key, {} if span is None else {"Range": f"bytes={span[0]}-{span[1] - 1}"})
        cause: BaseException | None = None
        for attempt in range(1, self._settings.attempts + 1):
            try:
                answer, chunks = yield from self._requests.repeated(effect)
            except _BrokenBodyError as error:
                cause = error.__cause__
            else:
                if sum(map(len, chunks)) == answer["ContentLength"]:
                    return answer, chunks
            yield from await_effect(pause(attempt))
        if isinstance(cause, Exception):
            raise mapped(cause, action="read an entry")
        raise StoreUnavailableError("Could not read an entry: the server broke off.")

    def _fetching(self, key: str, ranged: dict[str, str]) -> Effect[tuple[dict[str, Any], list[bytes]]]:
        def ask(client: Any) -> Any:
            return client.get_object(Bucket=self._settings.bucket, Key=key, **ranged)

        def run(client: Any) -> tuple[dict[str, Any], list[bytes]]:
            seconds = request_seconds(self._settings, 0)
            answer = self._requests.clients.within(seconds, lambda: ask(client), lambda late: late["Body"].close())
            try:
                return answer, _read(answer["Body"], Deadline(self._patience(answer)))
            except Exception as error:
                raise _BrokenBodyError from error

        async def run_async(client: Any) -> tuple[dict[str, Any], list[bytes]]:
            with anyio.fail_after(request_seconds(self._settings, 0)):
                answer = await ask(client)
            try:
                with anyio.fail_after(self._patience(answer)):
                    return answer, await _read_async(answer["Body"])
            except Exception as error:
                raise _BrokenBodyError from error

        return self._requests.clients.request(run, run_async)

    def _patience(self, answer: dict[str, Any]) -> float:
        return body_seconds(self._settings, answer["ContentLength"])


def _record(answer: dict[str, Any]) -> Record:
    """Return what an object's metadata says, if that has the size of the object itself."""
    record = Record.parse(answer.get("Metadata") or {})
    if _size_of_object(answer) not in {str(record.size), None}:
        raise corrupt()
    return record


def _size_of_object(answer: dict[str, Any]) -> str | None:
    if said := answer.get("ContentRange"):
        return str(said).rpartition("/")[2]
    is_part = answer.get("ResponseMetadata", {}).get("HTTPStatusCode") == 206
    return None if is_part else str(answer["ContentLength"])


def _read(body: Any, deadline: Deadline) -> list[bytes]:
    # The client's own reads return when they have all that they were asked for, which may be never.
    read = getattr(getattr(body, "_raw_stream", None), "read1", body.read)
    chunks = []
    try:
        while chunk := read(CHUNK):
            chunks.append(chunk)
            deadline.check()
    finally:
        body.close()
    return chunks


async def _read_async(body: Any) -> list[bytes]:
    chunks = []
    async with body:
        while chunk := await body.read(CHUNK):
            chunks.append(chunk)
    return chunks


def _feed(scan: PageScan, start: int, data: bytes) -> bool:
    """Give a scan what it wants of a span, and return whether it wants what is not in it."""
    while scan.wanted is not None:
        position, size = scan.wanted
        if position < start or position + size > start + len(data):
            return True
        scan.feed(data[position - start : position - start + size])
    return False
