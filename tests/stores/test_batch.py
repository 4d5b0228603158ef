from enum import Enum
from typing import Any

import pytest

from haybaler.errors import StoreError, StoreUnavailableError
from haybaler.stores.batch import WriteBatch, single
from haybaler.stores.protocol import StoreEntry


def batch_of(*entries: StoreEntry, binary: bool = True) -> WriteBatch:
    return WriteBatch(entries, prefix="ref:", folder="", binary=binary)


class Colour(str, Enum):  # noqa: UP042 - `str()` of its members is not what they hold
    RED = "red"


class Shout(bytes):
    def __bytes__(self) -> bytes:
        return b"something else"


def test_outcomes_are_in_the_order_of_the_entries() -> None:
    batch = batch_of(StoreEntry("a", "1"), StoreEntry("b", "2"), StoreEntry("c", "3"))
    error = StoreError("full")
    assert batch.items == [("a", "1"), ("b", "2"), ("c", "3")]
    assert batch.outcomes([None, error, None]) == ["ref:a", error, "ref:c"]


def test_entries_with_equal_keys_are_one_item_with_the_last_content() -> None:
    batch = batch_of(StoreEntry("a", "1"), StoreEntry("b", "2"), StoreEntry("a", b"3"))
    error = StoreError("full")
    assert batch.items == [("a", b"3"), ("b", "2")]
    assert batch.outcomes([error, None]) == [error, "ref:b", error]


def test_a_refused_entry_leaves_an_earlier_one_of_the_same_key() -> None:
    bad: Any = None
    batch = batch_of(StoreEntry("a", "1"), StoreEntry("a", bad))
    first, second = batch.outcomes([None])
    assert batch.items == [("a", "1")]
    assert first == "ref:a"
    assert isinstance(second, StoreError)


@pytest.mark.parametrize("content", [None, 5, bytearray(b"a"), memoryview(b"a"), ["a"], object()])
def test_content_of_another_type_is_refused_alone(content: Any) -> None:
    batch = batch_of(StoreEntry("a", content), StoreEntry("b", "2"))
    refused, stored = batch.outcomes([None])
    assert isinstance(refused, StoreError)
    assert type(content).__name__ in str(refused)
    assert stored == "ref:b"


@pytest.mark.parametrize("entry", [None, "secret", ("secret", "1"), {"key": "secret", "content": "1"}])
def test_what_is_no_entry_is_refused_alone(entry: Any) -> None:
    batch = batch_of(entry, StoreEntry("b", "2"))
    refused, stored = batch.outcomes([None])
    assert isinstance(refused, StoreError)
    assert "secret" not in str(refused)
    assert stored == "ref:b"


@pytest.mark.parametrize("key", [None, 5, b"a", ("a",)])
def test_a_key_of_another_type_is_refused_alone(key: Any) -> None:
    batch = batch_of(StoreEntry(key, "secret"), StoreEntry("b", "2"))
    refused, stored = batch.outcomes([None])
    assert isinstance(refused, StoreError)
    assert "secret" not in str(refused)
    assert stored == "ref:b"


def test_bytes_are_refused_by_a_store_for_text() -> None:
    (refused,) = batch_of(StoreEntry("a", b"1"), binary=False).outcomes([])
    assert isinstance(refused, StoreError)
    assert str(refused) == "The store holds text, not bytes."


@pytest.mark.parametrize(("content", "exact"), [(Colour.RED, "red"), (Shout(b"quiet"), b"quiet")])
def test_instances_of_subclasses_are_stored_as_what_they_hold(content: str | bytes, exact: str | bytes) -> None:
    ((_, stored),) = batch_of(StoreEntry("a", content)).items
    assert (type(stored), stored) == (type(exact), exact)


def test_a_batch_that_failed_as_a_whole_has_the_cause_in_every_outcome() -> None:
    cause = ConnectionResetError()
    for outcome in batch_of(StoreEntry("a", "1"), StoreEntry("b", "2")).failed(cause):
        assert isinstance(outcome, StoreUnavailableError)
        assert outcome.__cause__ is cause


def test_an_answer_of_another_length_is_not_taken_for_success() -> None:
    with pytest.raises(ValueError):
        batch_of(StoreEntry("a", "1"), StoreEntry("b", "2")).outcomes([None])


def test_a_batch_of_one_returns_its_reference_or_raises_its_error() -> None:
    error = StoreError("full")
    assert single(["ref:a"]) == "ref:a"
    with pytest.raises(StoreError) as caught:
        single([error])
    assert caught.value is error
