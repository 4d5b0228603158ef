"""Parts of a hook or compactor that can and cannot be serialized."""

from typing import Any

import pytest
from haystack.core.serialization import default_to_dict

from haybaler import ApproximateTokenCounter, InMemoryToolResultStore, ToolResultOffloadCompactor
from haybaler.errors import NotSerializableError
from haybaler.serialization import deserialize_parts, serialized


class Silent:
    pass


class Empty:
    def to_dict(self) -> Any:
        return None


class Forgetful:
    def __init__(self, url: str, *, size: int, retries: int = 3, **more: Any) -> None:
        self.url = url

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, url=self.url)


class Careful(Forgetful):
    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self, url=self.url, size=1)


def test_a_part_is_serialized_as_it_says() -> None:
    for part in (Careful("x", size=1), ApproximateTokenCounter(2.0), InMemoryToolResultStore()):
        assert serialized(part, "part") == part.to_dict()


@pytest.mark.parametrize("part", [Silent(), Empty(), 7], ids=lambda part: type(part).__name__)
def test_a_part_without_settings_is_named(part: object) -> None:
    with pytest.raises(NotSerializableError, match=f"The store {type(part).__name__} cannot be serialized.*to_dict"):
        serialized(part, "store")


def test_settings_that_are_left_out_are_named() -> None:
    with pytest.raises(NotSerializableError, match=r"Forgetful cannot be serialized.*leaves out.* size\."):
        serialized(Forgetful("x", size=1), "store")


def test_a_compactor_names_a_store_that_cannot_be_serialized() -> None:
    unfinished: Any = Silent()
    with pytest.raises(NotSerializableError, match="The store Silent"):
        ToolResultOffloadCompactor(unfinished).to_dict()


def test_parts_are_rebuilt_in_place_and_missing_ones_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "haybaler*")
    data: dict[str, Any] = {"init_parameters": {"counter": ApproximateTokenCounter(2.0).to_dict(), "other": None}}
    deserialize_parts(data, "counter", "other", "absent")
    assert isinstance(data["init_parameters"]["counter"], ApproximateTokenCounter)
    assert data["init_parameters"]["other"] is None
    deserialize_parts({}, "counter")
