"""
How long entries live, and how a read renews that.

S3 dates an object by its last write and cannot be told of a read. So a read that finds an entry a quarter through its
time puts a small object beside it, a mark, whose date is that of the read. Copying the entry onto itself would renew it
as well, but could bring back what somebody is replacing at the same moment. All ages are by the server's clock.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import ClientError

from haybaler.effects import Steps
from haybaler.errors import ReferenceNotFoundError
from haybaler.stores.names import is_path
from haybaler_s3.requests import ABSENT, Requests, code_of

logger = logging.getLogger(__name__)

# How often an entry is renewed at most while it lives, however often it is read. What has not been renewed since then
# is allowed for by the same part of the time, so that nothing expires too early.
RENEWALS = 4

_MARK = "!"  # sorts before every name and every scope, so that a listing shows marks before their entries


@dataclass(frozen=True, slots=True)
class Lifespan:
    """
    How long an entry lives.

    :param seconds: At least, from its last write or read on; None for ever.
    """

    seconds: float | None

    def is_over(self, age: float) -> bool:
        """Whether an entry has expired that was last written or marked that many seconds ago."""
        return self.seconds is not None and age > self.seconds * (1 + 1 / RENEWALS)

    def wants_renewal(self, age: float) -> bool:
        """Whether a read should mark an entry that was last written or marked that many seconds ago."""
        return self.seconds is not None and age > self.seconds / RENEWALS


class Keeper:
    """
    Lets entries that are read live on.

    :param requests: Where requests go.
    :param lifespan: How long entries live.
    """

    def __init__(self, requests: Requests, lifespan: Lifespan) -> None:
        self._requests = requests
        self.lifespan = lifespan

    def alive(self, key: str, answer: Mapping[str, Any], *, renew: bool) -> Steps[None]:
        """
        Refuse an entry that has expired, and let one that is read live on.

        :param key: Its key.
        :param answer: What the server answered to a request for it.
        :param renew: Whether it is being read.
        :returns: Steps without a result.
        :raises ReferenceNotFoundError: If it has expired.
        """
        age = age_of(answer)
        if not self.lifespan.wants_renewal(age):
            return
        age = min(age, (yield from self._marked(key)))
        if self.lifespan.is_over(age):
            raise ReferenceNotFoundError("The entry has expired.")
        if renew and self.lifespan.wants_renewal(age):
            try:
                yield from self._requests.send("put_object", Key=mark_of(key), Body=b"used")
            except Exception as error:  # noqa: BLE001 - the entry can be read all the same
                logger.warning(
                    "The time to live of an entry could not be renewed.", extra={"error": type(error).__name__}
                )

    def _marked(self, key: str) -> Steps[float]:
        """Return how many seconds ago an entry was marked; infinitely many if it never was."""
        try:
            answer = yield from self._requests.send("head_object", Key=mark_of(key))
        except ClientError as error:
            if code_of(error) not in ABSENT:
                raise
            return float("inf")
        return age_of(answer)

    def with_marks(self, keys: list[str]) -> list[str]:
        """Return keys with those of their marks, if there may be any."""
        return keys if self.lifespan.seconds is None else [name for key in keys for name in (key, mark_of(key))]


def mark_of(key: str) -> str:
    """Return the key of an entry's mark, which is never one of an entry."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{_MARK}{name}"


def marked_by(key: str) -> str | None:
    """Return the key of the entry that a mark is for; None for what is no mark."""
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{name[1:]}" if name.startswith(_MARK) else None


def is_mark(text: str) -> bool:
    """Whether a key goes on like one of a mark, after the folder of a store."""
    entry = marked_by(text)
    return entry is not None and is_path(entry)


def ages_of(
    answer: Mapping[str, Any], folder: str, marks: dict[str, datetime]
) -> Iterator[tuple[Mapping[str, Any], float]]:
    """
    Tell how long ago each entry of a page of a listing was last written or marked. Marks come before their entries.

    :param answer: The page.
    :param folder: What stands before a path in every key.
    :param marks: The marks whose entries have not come yet, with their dates; those of this page are added and used up.
    :returns: What the server says of each entry, and the seconds.
    """
    now = server_time(answer)
    for found in answer.get("Contents") or ():
        key, written = found["Key"], found["LastModified"]
        path = key.removeprefix(folder)
        if is_mark(path):
            marks[str(marked_by(key))] = written
        elif is_path(path):
            yield found, (now - max(written, marks.pop(key, written))).total_seconds()


def server_time(answer: Mapping[str, Any]) -> datetime:
    """Return the time by the server's clock; by one's own where it does not tell."""
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(date) if date else datetime.now(UTC)
    except ValueError:
        return datetime.now(UTC)


def age_of(answer: Mapping[str, Any]) -> float:
    """Return how many seconds ago an object was written, by what the server answered to a request for it."""
    written = answer.get("LastModified")
    return (server_time(answer) - written).total_seconds() if written is not None else 0.0
