"""Listing the entries of a scope, page by page as the server does, and telling what one of them is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from haybaler.effects import Steps
from haybaler.stores.inventory import EntryPage, StoredEntry
from haybaler_s3.lifespan import Keeper, ages_of
from haybaler_s3.records import Record
from haybaler_s3.requests import Requests


@dataclass(frozen=True, slots=True)
class Position:
    """
    How far a listing has come.

    :param token: What the server gave to go on.
    :param marks: When entries were read whose turn is still to come, by their keys.
    """

    token: str
    marks: dict[str, datetime]


class Listing:
    """
    How entries are listed.

    :param requests: Where requests go.
    :param folder: What stands before a path in every key.
    :param keeper: Tells which entries have expired.
    """

    def __init__(self, requests: Requests, folder: str, keeper: Keeper) -> None:
        self._requests = requests
        self._folder = folder
        self._keeper = keeper

    def stat(self, key: str) -> Steps[StoredEntry]:
        """
        Tell what an object is. Its time to live is not renewed.

        :param key: Its key.
        :returns: Steps that end in the entry.
        """
        answer = yield from self._requests.send("head_object", Key=key)
        yield from self._keeper.alive(key, answer, renew=False)
        record = Record.parse(answer.get("Metadata") or {})
        written = answer["LastModified"].astimezone(UTC)
        return StoredEntry(key.removeprefix(self._folder), answer["ContentLength"], written, record.says)

    def page(self, start: str, position: Position | None) -> Steps[EntryPage]:
        """
        List some of the entries of a scope.

        :param start: How their keys begin.
        :param position: How far the listing has come; None to begin.
        :returns: Steps that end in the entries; a list of objects does not tell their kind.
        """
        going_on = {} if position is None else {"ContinuationToken": position.token}
        answer = yield from self._requests.send("list_objects_v2", Prefix=start, **going_on)
        marks = {} if position is None else dict(position.marks)
        entries = list(self._entries(answer, marks))
        return EntryPage(
            entries, Position(answer["NextContinuationToken"], marks) if answer.get("IsTruncated") else None
        )

    def _entries(self, answer: Mapping[str, Any], marks: dict[str, datetime]) -> Iterator[StoredEntry]:
        for found, age in ages_of(answer, self._folder, marks):
            if not self._keeper.lifespan.is_over(age):
                path = found["Key"].removeprefix(self._folder)
                yield StoredEntry(path, found["Size"], found["LastModified"].astimezone(UTC))
