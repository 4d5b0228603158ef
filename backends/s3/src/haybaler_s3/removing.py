"""Removing entries: many keys in one request where the server can, and a scope page by page."""

from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from haybaler.effects import Effect, Steps, await_effect, perform, perform_async
from haybaler.stores.names import is_path
from haybaler.stores.protocol import DeletedScope
from haybaler.workers import map_bounded
from haybaler_s3.failures import mapped, passing
from haybaler_s3.lifespan import is_mark
from haybaler_s3.requests import Requests, code_of, pause

# The most keys in one request for deletion; S3's limit.
DELETE_KEYS = 1000
# Single deletions in flight, where there is no other way.
SINGLE_DELETIONS = 16

# How servers say that they do not know the operation, or not in the form in which the client asks: older ones want an
# MD5 and know no CRC.
UNSUPPORTED = frozenset(
    {"NotImplemented", "501", "405", "MethodNotAllowed", "MissingContentMD5", "InvalidRequest", "InvalidArgument"}
)


class Removing:
    """
    How entries are removed.

    :param requests: Where requests go.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def remove(self, keys: Sequence[str]) -> Steps[None]:
        """
        Remove objects.

        :param keys: Their keys; one that does not exist counts as removed.
        :returns: Steps without a result.
        """
        for start in range(0, len(keys), DELETE_KEYS):
            part = keys[start : start + DELETE_KEYS]
            try:
                yield from self._together(part) if len(part) > 1 else await_effect(self._one_by_one(part))
            except ClientError as error:
                if code_of(error) not in UNSUPPORTED or len(part) == 1:
                    raise
                yield from await_effect(self._one_by_one(keys[start:]))
                return

    def _together(self, keys: Sequence[str]) -> Steps[None]:
        attempts = self._requests.settings.attempts
        for attempt in range(1, attempts + 1):
            objects = [{"Key": key} for key in keys]
            answer = yield from self._requests.send("delete_objects", Delete={"Objects": objects, "Quiet": True})
            errors = [_error(found) for found in answer.get("Errors") or () if found.get("Code") != "NoSuchKey"]
            if not errors:
                return
            keys = [key for key, error in errors if passing(error)]
            if len(keys) < len(errors) or attempt == attempts:
                raise mapped(next((e for _, e in errors if not passing(e)), errors[0][1]), action="delete entries")
            yield from await_effect(pause(attempt))

    def _one_by_one(self, keys: Sequence[str]) -> Effect[None]:
        def steps(key: str) -> Steps[None]:
            yield from self._requests.send("delete_object", Key=key)

        def run() -> None:
            for key in keys:
                perform(steps(key))

        async def run_async() -> None:
            await map_bounded(lambda key: perform_async(steps(key)), keys, limit=SINGLE_DELETIONS)

        return Effect(run, run_async)

    def remove_folder(self, folder: str) -> Steps[DeletedScope]:
        """
        Remove every entry whose key begins with a folder; what is none of haybaler's stays.

        :param folder: How the keys begin.
        :returns: Steps that end in how many entries and bytes were removed.
        """
        entries = size = 0
        token: dict[str, str] = {}
        while True:
            page = yield from self._requests.send("list_objects_v2", Prefix=folder, **token)
            listed = page.get("Contents") or ()
            found = [item for item in listed if is_path(item["Key"][len(folder) :])]
            marks = [item["Key"] for item in listed if is_mark(item["Key"][len(folder) :])]
            yield from self.remove([*(item["Key"] for item in found), *marks])
            entries += len(found)
            size += sum(item["Size"] for item in found)
            if not page.get("IsTruncated"):
                return DeletedScope(entries, size)
            token = {"ContinuationToken": page["NextContinuationToken"]}


def _error(found: dict[str, Any]) -> tuple[str, ClientError]:
    return found["Key"], ClientError({"Error": {"Code": found.get("Code", "")}}, "DeleteObjects")
