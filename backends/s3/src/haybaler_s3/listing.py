"""Listing the entries of a scope, page by page as the server does, and telling what one of them is."""

from datetime import UTC
from typing import Any

from haybaler.effects import Steps
from haybaler.stores.inventory import EntryPage, StoredEntry
from haybaler.stores.names import is_path
from haybaler_s3.records import Record
from haybaler_s3.requests import Requests


class Listing:
    """
    How entries are listed.

    :param requests: Where requests go.
    :param folder: What stands before a path in every key.
    """

    def __init__(self, requests: Requests, folder: str) -> None:
        self._requests = requests
        self._folder = folder

    def stat(self, key: str) -> Steps[StoredEntry]:
        """
        Tell what an object is. Its time to live is not renewed.

        :param key: Its key.
        :returns: Steps that end in the entry.
        """
        answer = yield from self._requests.send("head_object", Key=key)
        record = Record.parse(answer.get("Metadata") or {})
        written = answer["LastModified"].astimezone(UTC)
        return StoredEntry(key.removeprefix(self._folder), answer["ContentLength"], written, record.says)

    def page(self, start: str, token: str | None) -> Steps[EntryPage]:
        """
        List some of the entries of a scope.

        :param start: How their keys begin.
        :param token: What the server gave to go on; None to begin.
        :returns: Steps that end in the entries; a list of objects does not tell their kind.
        """
        going_on = {} if token is None else {"ContinuationToken": token}
        answer = yield from self._requests.send("list_objects_v2", Prefix=start, **going_on)
        entries = [self._entry(found) for found in answer.get("Contents") or () if self._is_entry(found)]
        return EntryPage(entries, answer["NextContinuationToken"] if answer.get("IsTruncated") else None)

    def _is_entry(self, found: dict[str, Any]) -> bool:
        return is_path(found["Key"].removeprefix(self._folder))

    def _entry(self, found: dict[str, Any]) -> StoredEntry:
        written = found["LastModified"].astimezone(UTC)
        return StoredEntry(found["Key"].removeprefix(self._folder), found["Size"], written)
