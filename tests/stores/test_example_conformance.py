"""The kit serves authors who write one colour only, and stores that are not made from the base class."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from tests.stores.examples import AsyncOnlyStore, SyncOnlyStore

from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import FaultyStore, MakeStore, StoreConformance


class TestSyncOnlyStore(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        root = tmp_path / "entries"
        root.mkdir()
        return lambda: SyncOnlyStore(str(root))

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        assert isinstance(store, SyncOnlyStore)
        file = store.file(reference)
        file.write_bytes(file.read_bytes()[:-1])
        return True

    @contextmanager
    def _outage(self, store: SyncOnlyStore) -> Iterator[None]:
        root = store.file(store.reference("any")).parent
        away = root.with_name("away")
        root.rename(away)
        root.write_text("a file where the folder should be")
        yield
        root.unlink()
        away.rename(root)

    def unavailable(self, store: ToolResultStore) -> AbstractContextManager[None]:
        assert isinstance(store, SyncOnlyStore)
        return self._outage(store)


class TestAsyncOnlyStore(StoreConformance):
    supports_sync = False
    durable = False

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return AsyncOnlyStore

    @contextmanager
    def _outage(self, store: AsyncOnlyStore) -> Iterator[None]:
        store.server.down = True
        yield
        store.server.down = False

    def unavailable(self, store: ToolResultStore) -> AbstractContextManager[None]:
        assert isinstance(store, AsyncOnlyStore)
        return self._outage(store)


class TestFaultyStoreWithoutFaults(StoreConformance):
    durable = False

    @pytest.fixture
    def make_store(self, monkeypatch: pytest.MonkeyPatch) -> MakeStore:
        monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "haybaler*")
        return lambda: FaultyStore(InMemoryToolResultStore())
