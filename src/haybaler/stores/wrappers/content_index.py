"""Which contents are stored already, as far as this process knows. Only decisions: nothing here waits or does I/O."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from secrets import token_bytes
from threading import Lock

from haybaler.gates import Gate
from haybaler.stores.wrappers.holds import MOST_HOLDS, Hold

# How many contents, and how many entries, are remembered. What is forgotten is not shared any more.
_MOST = 10_000

Place = tuple[str, bytes]  # the scope, and the digest of the content


@dataclass(slots=True)
class _Content:
    name: bytes
    holds: int = 0
    settled: Gate = field(default_factory=Gate)


@dataclass(frozen=True, slots=True)
class Claim:
    """
    The hold that an entry is to get.

    :param hold: The hold.
    :param is_first: Whether the content has to be written for it.
    :param settled: Open once the content was written, or was not.
    """

    hold: Hold
    is_first: bool
    settled: Gate


class ContentIndex:
    """The contents of one store and all its scopes, for any number of threads and event loops."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._contents: OrderedDict[Place, _Content] = OrderedDict()
        self._places: dict[bytes, Place] = {}
        self._sure: OrderedDict[str, Hold] = OrderedDict()
        self._doubtful: OrderedDict[str, list[Hold]] = OrderedDict()

    def claim(self, scope: str, digest: bytes) -> Claim:
        """
        Choose the content that an entry is to hold.

        :param scope: The entry's scope.
        :param digest: The digest of its content.
        :returns: A hold that nobody else has.
        """
        place = (scope, digest)
        with self._lock:
            content = self._contents.get(place)
            if content is not None and content.holds == MOST_HOLDS:
                del self._places[content.name]
                content = None
            if content is None:
                content = self._contents[place] = _Content(token_bytes(16))
                self._places[content.name] = place
            self._contents.move_to_end(place)
            if len(self._contents) > _MOST:
                del self._places[self._contents.popitem(last=False)[1].name]
            content.holds += 1
            return Claim(Hold(content.name, content.holds - 1, digest), content.holds == 1, content.settled)

    def forget(self, contents: Iterable[bytes]) -> None:
        """
        Share contents no further.

        :param contents: Their names.
        """
        with self._lock:
            for name in contents:
                place = self._places.pop(name, None)
                if place is not None:
                    del self._contents[place]

    def forget_all(self) -> None:
        """Share nothing any further that is there by now."""
        with self._lock:
            self._contents.clear()
            self._places.clear()
            self._sure.clear()
            self._doubtful.clear()

    def keep(self, reference: str, hold: Hold | None) -> Hold | None:
        """
        Take note of what an entry holds, once its record is written.

        :param reference: The entry's reference.
        :param hold: Its hold; None if it has its content itself.
        :returns: The hold that it had before, if this process knows of one.
        """
        with self._lock:
            before = self._sure.pop(reference, None)
            if hold is not None:
                self._sure[reference] = hold
            if len(self._sure) > _MOST:
                self._sure.popitem(last=False)
            return before

    def doubt(self, reference: str, hold: Hold) -> None:
        """
        Take note of a hold that an entry may have, or may yet get: nobody knows whether its record is written.

        :param reference: The entry's reference.
        :param hold: The hold.
        """
        with self._lock:
            self._doubtful.setdefault(reference, []).append(hold)
            self._doubtful.move_to_end(reference)
            if len(self._doubtful) > _MOST:
                self._doubtful.popitem(last=False)

    def holds_of(self, reference: str) -> list[Hold]:
        """
        Return every hold that an entry may have, as far as this process knows.

        :param reference: The entry's reference.
        :returns: The holds.
        """
        with self._lock:
            sure = self._sure.get(reference)
            return [*([sure] if sure else []), *self._doubtful.get(reference, ())]

    def drop(self, references: Iterable[str]) -> None:
        """
        Forget entries that are deleted.

        :param references: Their references.
        """
        with self._lock:
            for reference in references:
                self._sure.pop(reference, None)
                self._doubtful.pop(reference, None)
