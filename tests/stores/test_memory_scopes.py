"""Removing a scope of the store in memory."""

import asyncio
from typing import Any

import pytest

from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.protocol import DeletedScope, StoreEntry


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_scope_in_memory_is_removed_and_nothing_beside_it(is_async: bool) -> None:
    store = InMemoryToolResultStore()
    run = store.scoped("user/run")
    kept = [other.write(key="a", content="kept") for other in (store, store.scoped("user"), store.scoped("user/run2"))]
    run.write(key="a", content="é\ud800")
    run.scoped("b").write(key="a", content=b"\xff")
    deleted = asyncio.run(run.delete_scope_async()) if is_async else run.delete_scope()
    assert deleted == DeletedScope(entries=2, bytes=6)
    assert len(store) == len(kept)
    assert store.delete_scope() == DeletedScope(3, 12)


class Meanwhile(dict[str, Any]):
    """Another thread removes the same scope when the first entry is about to be removed."""

    def __init__(self, store: InMemoryToolResultStore) -> None:
        super().__init__(store._entries)
        self._store = store
        self.others: list[DeletedScope] = []

    def pop(self, path: str, *default: Any) -> Any:
        if not self.others:
            self.others.append(DeletedScope(0, 0))
            self.others.append(self._store.delete_scope())
        return super().pop(path, *default)


def test_what_another_thread_removes_meanwhile_is_counted_once() -> None:
    store = InMemoryToolResultStore()
    run = store.scoped("run")
    kept = store.write(key="a", content="kept")
    run.write_many([StoreEntry(str(number), "é") for number in range(50)])
    entries = run._entries = store._entries = Meanwhile(run)
    deleted = [run.delete_scope(), *entries.others]
    assert (sum(part.entries for part in deleted), sum(part.bytes for part in deleted)) == (50, 100)
    assert store.read(kept) == "kept"
