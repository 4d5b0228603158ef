import pytest

from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.testing import MakeStore, StoreConformance


class TestInMemoryToolResultStore(StoreConformance):
    durable = False

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return InMemoryToolResultStore
