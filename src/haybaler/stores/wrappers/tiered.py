"""The store that keeps small entries in one place and large ones in another."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from haybaler.effects import Steps, await_effect, computed
from haybaler.errors import CorruptEntryError, InvalidReferenceError, StoreError
from haybaler.stores import calling
from haybaler.stores.driver import Content, page_of
from haybaler.stores.outcomes import Outcome, has
from haybaler.stores.protocol import AnyToolResultStore, StoreEntry, StorePage
from haybaler.stores.wrappers.base import INLINE, StoreWrapper
from haybaler.stores.wrappers.forms import Form, Record
from haybaler.stores.wrappers.octets import corrupt, size_of
from haybaler.stores.wrappers.passing_on import where_stores_have
from haybaler.stores.wrappers.settings import checked_count

_MARK = "hb:t1"
_ELSEWHERE = b"l"


class TieredStore(StoreWrapper):
    """
    Keeps entries up to a size in one store, such as Redis, and larger ones in another, such as S3.

    ```python
    redis, s3 = RedisToolResultStore("redis://localhost:6379/0"), S3ToolResultStore("my-bucket")
    store = TieredStore(redis, s3, threshold=64 * 1024)
    ```

    References are those of the store for small entries. For each large entry, it holds a note that names the entry in
    the other store. So that store alone says what is there, and replacing a small entry by a large one, or the other
    way round, is one write that is whole or not at all. Where an entry lives decides its life: a note that expires
    leaves the large entry behind.

    :param small: The store for small entries, and for notes.
    :param large: The store for large entries. Their key is the reference. What stays behind there, because a large
        entry is replaced by a small one or its note cannot be written, goes when the reference is deleted.
    :param threshold: The largest entry that goes to `small`, in bytes; text counts in UTF-8.
    :raises ConfigurationError: If `threshold` is not usable.
    """

    parts = ("small", "large")
    small: Any
    large: Any

    def __init__(self, small: AnyToolResultStore, large: AnyToolResultStore, *, threshold: int = 64 * 1024) -> None:
        super().__init__(small, large)
        checked_count("threshold", threshold, lowest=0)
        self._threshold = threshold
        self._form = Form(_MARK, binary=getattr(small, "supports_binary_content", False))

    def _settings(self) -> dict[str, Any]:
        return {"threshold": self._threshold}

    def _write(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        size = sum(len(entry.content) for entry in entries)
        forms = yield from computed(self._forms, entries, size=size, inline=INLINE)
        large = [entry for entry, form in zip(entries, forms, strict=True) if form is None]
        places = iter((yield from self._write_large(large)))
        outcomes: list[Outcome | None] = []
        own: list[StoreEntry] = []
        for entry, form in zip(entries, forms, strict=True):
            place = next(places) if form is None else None
            if isinstance(place, StoreError):
                outcomes.append(place)
                continue
            outcomes.append(None)
            own.append(StoreEntry(entry.key, self._note(place) if form is None else form))
        written = iter((yield from await_effect(calling.write(self.small, own))) if own else [])
        return [outcome or next(written) for outcome in outcomes]

    def _forms(self, entries: Sequence[StoreEntry]) -> list[Content | None]:
        """Return what the store for small entries is to hold of each; None for a large one."""
        return [None if self._is_large(entry.content) else self._form.of_content(entry.content) for entry in entries]

    def _is_large(self, content: Content) -> bool:
        return len(content) > self._threshold or size_of(content) > self._threshold

    def _write_large(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        if not entries:
            return []
        if has(self.small, "reference"):
            entries = [StoreEntry(self.small.reference(entry.key), entry.content) for entry in entries]
        return (yield from await_effect(calling.write(self.large, entries)))

    def _note(self, place: str | None) -> Content:
        return self._form.of_record(_ELSEWHERE, [str(place).encode("utf-8", "surrogatepass")])

    def _look(self, reference: str) -> Steps[Content | Record]:
        stored = yield from await_effect(calling.read(self.small, reference))
        return (yield from computed(self._form.parse, stored, size=len(stored), inline=INLINE))

    def _read(self, reference: str) -> Steps[Content]:
        found = yield from self._look(reference)
        if not isinstance(found, Record):
            return found
        with _naming():
            return (yield from await_effect(calling.read(self.large, _place(found))))

    def _read_page(self, reference: str, offset: int, limit: int) -> Steps[StorePage]:
        found = yield from self._look(reference)
        if not isinstance(found, Record):
            return page_of(found, offset, limit)
        with _naming():
            return (yield from await_effect(calling.read_page(self.large, _place(found), offset, limit)))

    @where_stores_have("reference", "delete")
    def delete(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete`: from both stores."""
        super().delete(references)

    @where_stores_have("reference", "delete")
    async def delete_async(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete_async`: from both stores."""
        await super().delete_async(references)

    def _delete(self, references: Sequence[str]) -> Steps[None]:
        # First the notes: a large entry without one is never read. That store checks the references, too.
        yield from await_effect(calling.delete(self.small, references))
        yield from await_effect(calling.delete(self.large, list(map(self.large.reference, references))))


def _place(note: Record) -> str:
    if note.tag != _ELSEWHERE:
        raise corrupt()
    try:
        return bytes(note.body).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise corrupt() from error


@contextmanager
def _naming() -> Iterator[None]:
    try:
        yield
    except InvalidReferenceError as error:
        raise CorruptEntryError(
            "The note of a large entry does not name one of the store for large entries."
        ) from error
