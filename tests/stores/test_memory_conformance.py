from typing import Any

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

    def limited(self, **limits: Any) -> ToolResultStore:
        return InMemoryToolResultStore(**limits)

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        assert isinstance(store, InMemoryToolResultStore)
        for held in store._entries.values():
            held.used -= seconds
