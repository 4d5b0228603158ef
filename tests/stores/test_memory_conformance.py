import pytest

from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import MakeStore, StoreConformance


class TestInMemoryToolResultStore(StoreConformance):
    durable = False
    ttl = 1000.0

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return InMemoryToolResultStore

    def limited(self, *, ttl: float | None = None, max_bytes: int | None = None) -> ToolResultStore:
        return InMemoryToolResultStore(ttl=ttl, max_bytes=max_bytes)

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        assert isinstance(store, InMemoryToolResultStore)
        for held in store._entries.values():
            held.used -= seconds
