"""The store that keeps equal contents once."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar

from haybaler.effects import Effect, Steps, await_effect, computed
from haybaler.errors import (
    ConfigurationError,
    CorruptEntryError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreError,
    is_outage,
)
from haybaler.stores import calling
from haybaler.stores.driver import Content, page_of
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import AnyToolResultStore, DeletedScope, StoreEntry, StorePage
from haybaler.stores.wrappers.base import INLINE, StoreWrapper
from haybaler.stores.wrappers.content_index import ContentIndex
from haybaler.stores.wrappers.content_sharing import Sharing
from haybaler.stores.wrappers.forms import Form, Record
from haybaler.stores.wrappers.holds import Hold
from haybaler.stores.wrappers.octets import corrupt, kind_of, pieces_of, size_of
from haybaler.stores.wrappers.settings import checked_count

R = TypeVar("R")

_MARK = "hb:c1"
_SHARED = b"s"
# How often a reader looks again when an entry is replaced under its eyes.
_ROUNDS = 3


class ContentAddressedStore(StoreWrapper):
    """
    Keeps equal contents of one scope once, and removes each with the last entry that has it.

    ```python
    store = ContentAddressedStore(S3ToolResultStore("my-bucket"))
    ```

    Contents are shared among the entries that one process writes; other processes, and this one after a restart, read
    and delete these entries, and share among their own. They are never shared across scopes: whether somebody else has
    stored the same cannot be found out.

    A large entry is a small record beside the content, so that it costs two writes one after the other, and two reads.
    Any process may delete entries at any time. A crash, or a write that fails, can leave contents that nothing refers
    to, which `delete_scope` removes, but never an entry without its content. A content that is damaged in the store is
    damaged for all its entries; once a reader has found out, it is not shared any more. Where entries expire some time
    after they were written, and not read, such as by a lifecycle rule of S3, a content expires with the first entry
    that has it.

    :param store: The store, with `reference` and `delete`. Whoever encrypts belongs inside, for equal contents are
        different once they are encrypted, and so does whoever tries again, for a second try is a second content.
    :param min_bytes: From this size in bytes on, contents are shared, others kept as they are; text counts in UTF-8.
    :raises ConfigurationError: If a parameter is not usable.
    """

    store: Any

    def __init__(self, store: AnyToolResultStore, *, min_bytes: int = 4096) -> None:
        super().__init__(store)
        lack = self.lack_of("reference", "delete")
        if lack is not None:
            raise ConfigurationError(f"Contents can only be shared where entries can be found and deleted. {lack}")
        checked_count("min_bytes", min_bytes, lowest=0)
        self._min_bytes = min_bytes
        self._form = Form(_MARK, binary=self.supports_binary_content)
        self._index = ContentIndex()

    def _settings(self) -> dict[str, Any]:
        return {"min_bytes": self._min_bytes}

    @property
    def _sharing(self) -> Sharing:
        return Sharing(self.store, self._index)

    def _write(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        size = sum(len(entry.content) for entry in entries)
        digests = yield from computed(self._digests, entries, size=size, inline=INLINE)
        wanted = {e.key: (e.content, d) for e, d in zip(entries, digests, strict=True) if d is not None}
        holds = yield from self._sharing.held(wanted)
        results: dict[str, Outcome] = {key: hold for key, hold in holds.items() if isinstance(hold, StoreError)}
        records = {entry.key: self._record(entry, holds) for entry in entries if entry.key not in results}
        try:
            results.update((yield from self._write_records(records)))
        except BaseException:
            for key, hold in _got(holds).items():
                self._sharing.doubt(key, hold)
            raise
        yield from self._settle(_got(holds), {key: results[key] for key in records})
        return [results[entry.key] for entry in entries]

    def _digests(self, entries: Sequence[StoreEntry]) -> list[bytes | None]:
        return [_digest(e.content) if self._is_shared(e.content) else None for e in entries]

    def _is_shared(self, content: Content) -> bool:
        return len(content) >= self._min_bytes or size_of(content) >= self._min_bytes

    def _record(self, entry: StoreEntry, holds: Mapping[str, Hold | StoreError]) -> Content:
        hold = holds.get(entry.key)
        if isinstance(hold, Hold):
            return self._form.of_record(_SHARED, [hold.pack()])
        return self._form.of_content(entry.content)

    def _write_records(self, records: Mapping[str, Content]) -> Steps[dict[str, Outcome]]:
        entries = [StoreEntry(key, record) for key, record in records.items()]
        outcomes = (yield from await_effect(calling.write(self.store, entries))) if entries else []
        return dict(zip(records, outcomes, strict=True))

    def _settle(self, holds: Mapping[str, Hold], outcomes: Mapping[str, Outcome]) -> Steps[None]:
        """Take note of who holds what now, and give up what nobody needs any more."""
        useless: list[Hold] = []
        replaced: dict[str, Hold] = {}
        for key, outcome in outcomes.items():
            hold = holds.get(key)
            if isinstance(outcome, str):
                before = self._index.keep(outcome, hold)
                if before is not None:
                    replaced[outcome] = before
            elif hold is not None and is_outage(outcome):
                self._sharing.doubt(key, hold)
            elif hold is not None:
                useless.append(hold)
        useless += yield from self._overtaken(replaced)
        yield from self._sharing.release_quietly(useless)

    def _overtaken(self, replaced: Mapping[str, Hold]) -> Steps[list[Hold]]:
        """Return the holds that are no longer those of their entries: somebody else may have been the last to write."""
        found = yield from self._look_at_each(list(replaced))
        return [
            before
            for before, now in zip(replaced.values(), found, strict=True)
            if isinstance(now, ReferenceNotFoundError) or (not isinstance(now, StoreError) and now != before)
        ]

    def _look_at_each(self, references: Sequence[str]) -> Steps[list[Content | Hold | StoreError]]:
        reads = [calling.read(self.store, reference) for reference in references]
        return [self._parsed(stored) for stored in (yield from await_effect(calling.each(reads)))]

    def _parsed(self, stored: Content | StoreError) -> Content | Hold | StoreError:
        try:
            return stored if isinstance(stored, StoreError) else self._entry(stored)
        except CorruptEntryError as error:
            return error

    def _entry(self, stored: Content) -> Content | Hold:
        """Return what an entry consists of: its content, or its hold on a shared one."""
        found = self._form.parse(stored)
        if not isinstance(found, Record):
            return found
        if found.tag != _SHARED:
            raise corrupt()
        return Hold.unpack(found.body)

    def _read(self, reference: str) -> Steps[Content]:
        for _ in range(_ROUNDS):
            entry = self._entry((yield from await_effect(calling.read(self.store, reference))))
            if not isinstance(entry, Hold):
                return entry
            content = yield from self._beside(entry, calling.read)
            if isinstance(content, StoreError):
                continue
            if (yield from computed(_digest, content, size=len(content), inline=INLINE)) != entry.digest:
                self._index.forget([entry.content])
                raise corrupt()
            return content
        raise ReferenceNotFoundError("Nothing is stored under the reference.")

    def _read_page(self, reference: str, offset: int, limit: int) -> Steps[StorePage]:
        for _ in range(_ROUNDS):
            entry = self._entry((yield from await_effect(calling.read(self.store, reference))))
            if not isinstance(entry, Hold):
                return page_of(entry, offset, limit)
            page = yield from self._beside(entry, lambda store, own: calling.read_page(store, own, offset, limit))
            if not isinstance(page, StoreError):
                return page
        raise ReferenceNotFoundError("Nothing is stored under the reference.")

    def _beside(self, hold: Hold, read: Callable[[Any, str], Effect[R]]) -> Steps[R | ReferenceNotFoundError]:
        """Read a shared content, or return its absence. Reading the marks as well keeps them from expiring first."""
        reads: list[Effect[Any]] = [read(self.store, self.store.reference(hold.content_key))]
        reads += [calling.read(self.store, self.store.reference(mark)) for mark in hold.marks]
        outcome: R | StoreError = (yield from await_effect(calling.each(reads)))[0]
        if isinstance(outcome, (ReferenceNotFoundError, CorruptEntryError)):
            self._index.forget([hold.content])  # whoever writes the same again gets a content of its own
        if isinstance(outcome, StoreError) and not isinstance(outcome, ReferenceNotFoundError):
            raise outcome
        return outcome

    def _delete(self, references: Sequence[str]) -> Steps[None]:
        found = yield from self._look_at_each(references)
        for kind in (InvalidReferenceError, StoreError):
            for outcome in found:
                if isinstance(outcome, kind) and not isinstance(outcome, (ReferenceNotFoundError, CorruptEntryError)):
                    raise outcome
        holds = [entry for entry in found if isinstance(entry, Hold)]
        for reference in references:
            holds += self._index.holds_of(reference)
        # The records go last: whoever is interrupted can begin again, and until then an entry may read as absent.
        if holds:
            yield from self._sharing.release(list(dict.fromkeys(holds)))
        yield from await_effect(calling.delete(self.store, references))
        self._index.drop(references)

    def _delete_scope(self) -> Steps[DeletedScope]:
        self._index.forget_all()
        return (yield from super()._delete_scope())


def _got(holds: Mapping[str, Hold | StoreError]) -> dict[str, Hold]:
    return {key: hold for key, hold in holds.items() if isinstance(hold, Hold)}


def _digest(content: Content) -> bytes:
    digest = sha256(kind_of(content))
    for piece in pieces_of(content):
        digest.update(piece)
    return digest.digest()
