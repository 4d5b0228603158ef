import pytest
from tests.stores.wrappers.around import KEYS, WRAPPERS

from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.testing import MakeStore, StoreConformance


class TestAroundMemory(StoreConformance):
    durable = False

    @pytest.fixture(params=WRAPPERS)
    def make_store(self, request, monkeypatch) -> MakeStore:
        monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "haybaler*")
        for k, v in KEYS.items(): monkeypatch.setenv(k, v)
        return lambda: WRAPPERS[request.param](lambda n: InMemoryToolResultStore())
