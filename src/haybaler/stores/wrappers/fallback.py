"""The store that turns to another one while the first is away."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from haybaler.effects import Effect, Steps, await_effect, computed
from haybaler.errors import (
    CorruptEntryError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    ScopeFullError,
    StoreError,
    StoreUnavailableError,
)
from haybaler.stores import calling
from haybaler.stores.driver import Content
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import AnyToolResultStore, StoreEntry, StorePage
from haybaler.stores.wrappers.base import INLINE, StoreWrapper
from haybaler.stores.wrappers.passing_on import where_stores_have

logger = logging.getLogger(__name__)

R = TypeVar("R")

# What it takes to find one reference of the second store, in characters of content that take as long to work on.
_EACH = 256


class FallbackStore(StoreWrapper):
    """
    Writes to a second store what the first cannot take because it is away, does not answer in time, or is full.

    What the first refuses because of its `max_bytes` or `max_scope_bytes` stays refused.

    ```python
    redis = CircuitBreakerStore(RedisToolResultStore("redis://localhost:6379/0"))
    store = FallbackStore(redis, FileSystemToolResultStore("tool_results"))
    ```

    References are those of the first store, whichever store holds the entry: a reference is known before the write, so
    it cannot say where the entry went. In the second store, the entry's key is its reference.

    What the second store holds is newer than what the first may hold under the same reference. So reads ask the second
    one first, and each write to the first removes what the second holds. The second store should be near, such as
    files, and be one that all readers share. Where one store has nothing and the other is away, the entry may be there:
    that is a `StoreUnavailableError`, not an absent entry.

    Where a store does not tell references beforehand, neither does this one, and each store has its own references.

    :param primary: The first store. It should fail fast, for instance behind a `CircuitBreakerStore`.
    :param secondary: The second store.
    """

    parts = ("primary", "secondary")
    primary: Any
    secondary: Any

    def __init__(self, primary: AnyToolResultStore, secondary: AnyToolResultStore) -> None:
        super().__init__(primary, secondary)

    @property
    def _shares_references(self) -> bool:
        """Whether both stores can do what it takes to find, and to remove, what the other one has a reference for."""
        return self.lack_of("reference", "delete") is None

    @where_stores_have("reference", "delete")
    def reference(self, key: str) -> str:
        """As `ToolResultStore.reference`: that of the first store."""
        return super().reference(key)

    def _second(self, reference: str) -> str:
        """Return the reference in the second store of what has one in the first."""
        second: str = self.secondary.reference(reference) if self._shares_references else reference
        return second

    def _write(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        outcomes = yield from await_effect(calling.write(self.primary, entries))
        taken = [outcome for outcome in outcomes if isinstance(outcome, str)]
        if taken and self._shares_references:
            yield from self._remove_older(taken)
        fallen = [index for index, outcome in enumerate(outcomes) if _may_fall(outcome)]
        if fallen:
            caught = yield from self._write_second([entries[index] for index in fallen])
            for index, outcome in zip(fallen, caught, strict=True):
                if isinstance(outcome, str):
                    outcomes[index] = outcome
        return outcomes

    def _write_second(self, entries: list[StoreEntry]) -> Steps[list[Outcome]]:
        shared = [self.primary.reference(entry.key) for entry in entries] if self._shares_references else []
        named = [StoreEntry(key, e.content) for key, e in zip(shared, entries, strict=True)] if shared else entries
        outcomes = yield from await_effect(calling.write(self.secondary, named))
        errors = [outcome for outcome in outcomes if isinstance(outcome, StoreError)]
        logger.warning(
            "A store is away or full; entries went to the one that stands in for it.",
            extra={
                "store": type(self.primary).__name__,
                "entries": len(entries) - len(errors),
                "failed": len(errors),
                "error": str(errors[0]) if errors else None,
            },
        )
        if shared:
            return [own if isinstance(outcome, str) else outcome for own, outcome in zip(shared, outcomes, strict=True)]
        return outcomes

    def _remove_older(self, references: Sequence[str]) -> Steps[None]:
        try:
            yield from self._delete_second(references)
        except StoreError as error:  # both have to fail before it matters: the second may hold nothing of them
            logger.warning(
                "Entries were written, but a store that stood in for them could not be asked to forget older ones.",
                extra={"store": type(self.secondary).__name__, "entries": len(references), "error": str(error)},
            )

    def _read(self, reference: str) -> Steps[Content]:
        return (yield from self._found(reference, calling.read))

    def _read_page(self, reference: str, offset: int, limit: int) -> Steps[StorePage]:
        return (yield from self._found(reference, lambda store, own: calling.read_page(store, own, offset, limit)))

    def _found(self, reference: str, read: Callable[[Any, str], Effect[R]]) -> Steps[R]:
        doubt: StoreError | None = None
        if isinstance(reference, str):  # anything else is refused by the first
            try:
                return (yield from await_effect(read(self.secondary, self._second(reference))))
            except CorruptEntryError:
                raise
            except (ReferenceNotFoundError, InvalidReferenceError):
                pass
            except StoreError as error:
                doubt = error
        try:
            return (yield from await_effect(read(self.primary, reference)))
        except ReferenceNotFoundError:
            if doubt is not None:
                raise doubt from None
            raise

    @where_stores_have("reference", "delete")
    def delete(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete`: from both stores."""
        super().delete(references)

    @where_stores_have("reference", "delete")
    async def delete_async(self, references: Sequence[str]) -> None:
        """As `ToolResultStore.delete_async`: from both stores."""
        await super().delete_async(references)

    def _delete(self, references: Sequence[str]) -> Steps[None]:
        # The first store checks the references. It is also the one with older contents, which must not reappear.
        yield from await_effect(calling.delete(self.primary, references))
        yield from self._delete_second(references)

    def _delete_second(self, references: Sequence[str]) -> Steps[None]:
        own = yield from computed(
            lambda: list(map(self._second, references)), size=len(references) * _EACH, inline=INLINE
        )
        yield from await_effect(calling.delete(self.secondary, own))

    def _warm_up(self) -> Steps[None]:
        errors: list[StoreUnavailableError] = []
        for store in self.wrapped:
            try:
                yield from await_effect(calling.warm_up(store))
            except StoreUnavailableError as error:
                errors.append(error)
        if len(errors) == len(self.wrapped):
            raise errors[0]


def _may_fall(outcome: Outcome) -> bool:
    # That a scope may hold no more is a decision, and so is that an entry is too large.
    return isinstance(outcome, StoreUnavailableError) and not isinstance(outcome, ScopeFullError)
