"""
Getting and giving up holds on shared contents, safely beside others who do the same, also in other processes.

Stores have no transactions, so this is a matter of order. A content is written once, under a random name, and only the
process that wrote it lets further entries hold it. Such an entry puts up its mark first and looks then whether the
content is being retired. Whoever gives up a hold retires the content first, takes down the mark, and looks then whether
others are left. Of two who meet, at least one sees the other: either the content stays, or the entry gets another one.
A crash in between leaves marks or contents that nobody needs, and never an entry without its content.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from haybaler.effects import Effect, Steps, await_effect
from haybaler.errors import CorruptEntryError, ReferenceNotFoundError, StoreError, StoreUnavailableError
from haybaler.gates import Gate
from haybaler.stores import calling
from haybaler.stores.driver import Content
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import StoreEntry
from haybaler.stores.wrappers.content_index import Claim, ContentIndex
from haybaler.stores.wrappers.holds import Hold, content_key, level_keys, mark_key, numbers_below, retired_key

logger = logging.getLogger(__name__)

# How often another content is tried when the chosen one is being retired.
_ROUNDS = 3
# Seconds to wait for somebody else who is writing the same content.
_PATIENCE = 10.0


class Sharing:
    """
    The shared contents of one scope.

    :param store: The wrapped store of the scope.
    :param index: What this process knows of its contents.
    """

    def __init__(self, store: Any, index: ContentIndex) -> None:
        self._store = store
        self._index = index

    def held(self, wanted: Mapping[str, tuple[Content, bytes]]) -> Steps[dict[str, Hold | StoreError]]:
        """
        Store contents where they are not there yet, and hold them.

        :param wanted: For the key of each entry its content and the digest of that.
        :returns: For each key the hold, or why there is none.
        """
        results: dict[str, Hold | StoreError] = {}
        begun: list[tuple[str, Claim]] = []
        try:
            for _ in range(_ROUNDS):
                scope = self._reference("")
                missing = [key for key in wanted if key not in results]
                claims = {key: self._index.claim(scope, wanted[key][1]) for key in missing}
                begun += claims.items()
                if claims:
                    results.update((yield from self._attempt(claims, wanted)))
        except BaseException:
            for key, claim in begun:
                self.doubt(key, claim.hold)
            raise
        finally:
            _settle(claim for _, claim in begun)
        unlucky = StoreUnavailableError("The content is being removed by others again and again.")
        return {key: results.get(key, unlucky) for key in wanted}

    def _attempt(
        self, claims: Mapping[str, Claim], wanted: Mapping[str, tuple[Content, bytes]]
    ) -> Steps[dict[str, Hold | StoreError]]:
        """Try to get the holds; one whose content is being retired has no result."""
        results: dict[str, Hold | StoreError] = {}
        writes: dict[str, Content] = {}
        for key, claim in claims.items():
            writes.update(dict.fromkeys(claim.hold.marks, "held"))
            if claim.is_first:
                writes[claim.hold.content_key] = wanted[key][0]
        outcomes = yield from self._write(writes)
        _settle(claims.values())
        for key, claim in claims.items():
            needed = [outcomes.get(name) for name in (claim.hold.content_key, *claim.hold.marks)]
            error = next((outcome for outcome in needed if isinstance(outcome, StoreError)), None)
            if error is not None:
                results[key] = error
                self.doubt(key, claim.hold)
            elif claim.is_first:
                results[key] = claim.hold
        others = {key: claim for key, claim in claims.items() if key not in results}
        troubles = yield from self._troubles(others.values())
        lost: list[Hold] = []
        for key, claim in others.items():
            trouble = troubles[claim.hold.content]
            if trouble is None:
                results[key] = claim.hold
            elif isinstance(trouble, ReferenceNotFoundError):
                lost.append(claim.hold)
            else:
                results[key] = trouble
                self.doubt(key, claim.hold)
        yield from self.release_quietly(lost)
        return results

    def _troubles(self, claims: Iterable[Claim]) -> Steps[dict[bytes, StoreError | None]]:
        """Tell for each content whether it may be shared: None, an error, or an absence if it is gone or will be."""
        contents = {claim.hold.content: claim.settled for claim in claims}
        for settled in contents.values():
            yield from await_effect(_opened(settled))
        # In this order: who removes a content takes down the mark that says so at the very end.
        retired = yield from await_effect(self._read_each(map(retired_key, contents)))
        pages = [calling.read_page(self._store, self._reference(content_key(content)), 0, 1) for content in contents]
        there = yield from await_effect(calling.each(pages))
        troubles: dict[bytes, StoreError | None] = {}
        for content, mark, page in zip(contents, retired, there, strict=True):
            if not isinstance(mark, StoreError):
                troubles[content] = ReferenceNotFoundError("The content is being retired.")
            elif not isinstance(mark, ReferenceNotFoundError):
                troubles[content] = mark
            else:
                troubles[content] = page if isinstance(page, StoreError) else None
        return troubles

    def doubt(self, key: str, hold: Hold) -> None:
        """
        Take note that nobody knows whether an entry has a hold.

        :param key: The entry's key.
        :param hold: The hold.
        """
        self._index.doubt(self._reference(key), hold)
        self._index.forget([hold.content])

    def release(self, holds: Sequence[Hold]) -> Steps[None]:
        """
        Give up holds, and remove each content with the last of its holds.

        :param holds: The holds. It is no error if they are given up already.
        :raises StoreError: If that could not be finished. It may be called again.
        """
        contents = list(dict.fromkeys(hold.content for hold in holds))
        self._index.forget(contents)
        outcomes = yield from self._write(dict.fromkeys(map(retired_key, contents), "retired"))
        for outcome in outcomes.values():
            if isinstance(outcome, StoreError):
                raise outcome
        yield from self._delete(mark_key(hold.content, hold.number) for hold in holds)
        still_held = yield from self._still_held(contents)
        free = [content for content in contents if content not in still_held]
        yield from self._delete(map(content_key, free))
        yield from self._delete(key for content in free for key in (*level_keys(content), retired_key(content)))

    def _still_held(self, contents: Sequence[bytes]) -> Steps[set[bytes]]:
        levels = yield from self._present(key for content in contents for key in level_keys(content))
        keys = {
            mark_key(content, number): content
            for content in contents
            for number in numbers_below(
                max((level for level, key in enumerate(level_keys(content), 1) if key in levels), default=0)
            )
        }
        return {keys[key] for key in (yield from self._present(keys))}

    def _present(self, keys: Iterable[str]) -> Steps[set[str]]:
        asked = list(keys)
        found = yield from await_effect(self._read_each(asked))
        for outcome in found:
            if isinstance(outcome, StoreError) and not isinstance(outcome, (ReferenceNotFoundError, CorruptEntryError)):
                raise outcome
        return {
            key for key, outcome in zip(asked, found, strict=True) if not isinstance(outcome, ReferenceNotFoundError)
        }

    def release_quietly(self, holds: Sequence[Hold]) -> Steps[None]:
        """
        Give up holds that no entry has. What cannot be removed is left behind, and logged.

        :param holds: The holds.
        """
        try:
            if holds:
                yield from self.release(holds)
        except StoreError as error:
            logger.warning("A content that nothing refers to may be left in the store.", extra={"error": str(error)})

    def _reference(self, key: str) -> str:
        reference: str = self._store.reference(key)
        return reference

    def _write(self, contents: Mapping[str, Content]) -> Steps[dict[str, Outcome]]:
        entries = [StoreEntry(key, content) for key, content in contents.items()]
        outcomes = yield from await_effect(calling.write(self._store, entries))
        return dict(zip(contents, outcomes, strict=True))

    def _read_each(self, keys: Iterable[str]) -> Effect[list[Content | StoreError]]:
        return calling.each([calling.read(self._store, self._reference(key)) for key in keys])

    def _delete(self, keys: Iterable[str]) -> Steps[None]:
        references = [self._reference(key) for key in keys]
        if references:
            yield from await_effect(calling.delete(self._store, references))


def _settle(claims: Iterable[Claim]) -> None:
    for claim in claims:
        if claim.is_first:
            claim.settled.open()


def _opened(gate: Gate) -> Effect[bool]:
    return Effect(lambda: gate.wait(_PATIENCE), lambda: gate.wait_async(_PATIENCE))
