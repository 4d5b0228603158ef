"""Sweeping a scope: expired entries, marks without an entry, and uploads that nobody goes on with."""

from collections.abc import Callable, Sequence
from datetime import datetime

from botocore.exceptions import ClientError

from haybaler.effects import Effect, Steps, await_effect, perform, perform_async
from haybaler.stores.inventory import SweepReport
from haybaler.stores.names import is_path
from haybaler.workers import map_bounded
from haybaler_s3.lifespan import Lifespan, age_of, ages_of, mark_of, server_time
from haybaler_s3.removing import UNSUPPORTED, Removing
from haybaler_s3.requests import Requests, code_of

# Entries that are removed at the same time, each with a request that looks at it once more.
AT_ONCE = 16

_GONE = frozenset({"404", "NoSuchKey", "PreconditionFailed", "412", "ConditionalRequestConflict", "409"})


class Sweeping:
    """
    How scopes are swept.

    :param requests: Where requests go.
    :param folder: What stands before a path in every key.
    :param lifespan: How long entries live.
    :param removing: How objects are removed.
    """

    def __init__(self, requests: Requests, folder: str, lifespan: Lifespan, removing: Removing) -> None:
        self._requests = requests
        self._folder = folder
        self._lifespan = lifespan
        self._removing = removing

    def sweep(self, start: str, safe_age: float) -> Steps[SweepReport]:
        """
        Sweep the objects of a scope.

        :param start: How their keys begin.
        :param safe_age: Seconds after which an upload is one that nobody goes on with.
        :returns: Steps that end in what was removed; the parts of uploads have no size here.
        """
        report, marks, token = SweepReport(), dict[str, datetime](), dict[str, str]()
        while True:
            page = yield from self._requests.send("list_objects_v2", Prefix=start, **token)
            now = server_time(page)
            ages = ages_of(page, self._folder, marks)
            report += yield from self._removed([found["Key"] for found, age in ages if self._lifespan.is_over(age)])
            if not page.get("IsTruncated"):
                break
            token = {"ContinuationToken": page["NextContinuationToken"]}
        orphans = [mark_of(key) for key, marked in marks.items() if (now - marked).total_seconds() > safe_age]
        yield from self._removing.remove(orphans)
        report += SweepReport(leftovers=len(orphans))
        return report + (yield from self._aborted(start, safe_age))

    def _removed(self, keys: Sequence[str]) -> Steps[SweepReport]:
        if not keys:
            return SweepReport()
        sizes = yield from await_effect(_side_by_side(self._remove_one, keys))
        gone = [key for key, size in zip(keys, sizes, strict=True) if size is not None]
        if gone:
            yield from self._removing.remove([mark_of(key) for key in gone])
        return SweepReport(expired=len(gone), bytes=sum(filter(None, sizes)))

    def _remove_one(self, key: str) -> Steps[int | None]:
        """Remove an entry unless it is another one by now; return its size, or None if it stays."""
        try:
            found = yield from self._requests.send("head_object", Key=key)
            if not self._lifespan.is_over(age_of(found)):
                return None
            try:
                yield from self._requests.send("delete_object", Key=key, IfMatch=found["ETag"])
            except ClientError as error:
                if code_of(error) not in UNSUPPORTED:
                    raise
                yield from self._requests.send("delete_object", Key=key)
        except ClientError as error:
            if code_of(error) not in _GONE:
                raise
            return None
        return int(found["ContentLength"])

    def _aborted(self, start: str, safe_age: float) -> Steps[SweepReport]:
        aborted, marker = 0, dict[str, str]()
        while True:
            try:
                page = yield from self._requests.send("list_multipart_uploads", Prefix=start, **marker)
            except ClientError as error:
                if code_of(error) not in UNSUPPORTED | {"NoSuchUpload"}:  # some say so where there are none at all
                    raise
                return SweepReport()
            now = server_time(page)
            for upload in page.get("Uploads") or ():
                ours = is_path(upload["Key"].removeprefix(self._folder))
                if ours and (now - upload["Initiated"]).total_seconds() > safe_age:
                    aborted += yield from self._abort(upload["Key"], upload["UploadId"])
            if not page.get("IsTruncated"):
                return SweepReport(leftovers=aborted)
            marker = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}

    def _abort(self, key: str, upload: str) -> Steps[int]:
        try:
            yield from self._requests.send("abort_multipart_upload", Key=key, UploadId=upload)
        except ClientError as error:
            if code_of(error) != "NoSuchUpload":
                raise
            return 0
        return 1


def _side_by_side(steps: Callable[[str], Steps[int | None]], keys: Sequence[str]) -> Effect[list[int | None]]:
    async def run_async() -> list[int | None]:
        return await map_bounded(lambda key: perform_async(steps(key)), keys, limit=AT_ONCE)

    return Effect(lambda: [perform(steps(key)) for key in keys], run_async)
