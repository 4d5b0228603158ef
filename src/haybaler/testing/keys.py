"""Laws 5 and 6: any key works and none meets another; absence, damage and unavailability are never confused."""

import socket
from functools import partial
from typing import Any

import pytest

from haybaler.errors import (
    CorruptEntryError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreUnavailableError,
)
from haybaler.stores.protocol import StoreEntry
from haybaler.testing.access import Access
from haybaler.testing.contract import Check, MakeStore, StoreContract
from haybaler.testing.corpus import KEYS, hostile_references


class KeyLaws(StoreContract):
    """Laws 5 and 6."""

    def test_different_keys_never_meet(self, check: Check) -> None:
        async def law(access: Access) -> None:
            entries = [StoreEntry(key, f"content of {number}") for number, key in enumerate(KEYS)]
            references = await access.write_many(entries)
            assert references == [access.store.reference(key) for key in KEYS]
            assert len({str(reference).casefold() for reference in references}) == len(KEYS)
            for number, reference in enumerate(references):
                assert isinstance(reference, str)
                assert await access.read(reference) == f"content of {number}"

        check(law)

    def test_any_key_can_be_written_alone_read_and_deleted(self, check: Check) -> None:
        async def law(access: Access) -> None:
            for key in KEYS:
                reference = await access.write(key, "content")
                assert reference == access.store.reference(key)
                assert await access.read(reference) == "content"
                await access.delete([reference])
                with pytest.raises(ReferenceNotFoundError):
                    await access.read(reference)

        check(law)

    def test_a_reference_that_was_never_written_is_not_found(self, check: Check) -> None:
        async def law(access: Access) -> None:
            for key in ("before anything was written", *KEYS):
                with pytest.raises(ReferenceNotFoundError) as caught:
                    await access.read(access.store.reference(key))
                assert isinstance(caught.value, LookupError)
                assert not isinstance(caught.value, (ConnectionError, CorruptEntryError, InvalidReferenceError))

        check(law)

    def test_what_is_no_reference_of_the_store_is_refused(self, check: Check) -> None:
        async def law(access: Access) -> None:
            reference = await access.write("key", "content")
            others: list[Any] = [None, 5, reference.encode(), [reference], *hostile_references(reference)]
            for other in others:
                with pytest.raises(InvalidReferenceError):
                    await access.read(other)
                with pytest.raises(InvalidReferenceError):
                    await access.delete([reference, other])
            assert await access.read(reference) == "content"

        check(law)

    def test_deleting_what_is_not_there_is_no_error(self, check: Check) -> None:
        async def law(access: Access) -> None:
            kept, removed = await access.write("kept", "kept"), await access.write("removed", "removed")
            await access.delete([removed, removed, access.store.reference("never written")])
            await access.delete([removed])
            await access.delete([])
            with pytest.raises(ReferenceNotFoundError):
                await access.read(removed)
            assert await access.read(kept) == "kept"

        check(law)

    def test_damage_is_reported_as_damage(self, check: Check) -> None:
        async def law(access: Access) -> None:
            contents: list[str | bytes] = ["content " * 100]
            if access.store.supports_binary_content:
                contents.append(b"content " * 100)
            for content in contents:
                reference = await access.write("key.txt", content)
                if await access.outside(partial(self.damage, access.store, reference)):
                    with pytest.raises(CorruptEntryError):
                        await access.read(reference)
                    assert await access.write("key.txt", content) == reference
                read = await access.read(reference)
                assert (type(read), read) == (type(content), content)

        check(law)

    def test_a_store_that_cannot_be_reached_says_so(self, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
        async def law(access: Access) -> None:
            reference = await access.write("key", "content")
            outage = await access.outside(partial(self.unavailable, access.store))
            if outage is None:
                with monkeypatch.context() as patch:
                    patch.setattr(socket.socket, "connect", _refuse_connection)
                    assert await access.write("key", "content") == reference
                    assert await access.read(reference) == "content"
                return
            await access.outside(outage.__enter__)
            try:
                await _assert_unavailable(access, reference)
            finally:
                await access.outside(partial(outage.__exit__, None, None, None))
            assert await access.read(reference) == "content"

        check(law)

    def test_references_do_not_depend_on_the_instance(self, make_store: MakeStore) -> None:
        one, other = make_store(), make_store()
        same = [one.reference(key) == other.reference(key) for key in KEYS]
        assert same == [self.durable] * len(KEYS)


async def _assert_unavailable(access: Access, reference: str) -> None:
    for attempt in (
        partial(access.write, "key", "new"),
        partial(access.read, reference),
        partial(access.delete, [reference]),
    ):
        with pytest.raises(StoreUnavailableError) as caught:
            await attempt()
        assert isinstance(caught.value, ConnectionError)
    outcomes = await access.write_many([StoreEntry("a", "a"), StoreEntry("b", "b")])
    assert all(isinstance(outcome, StoreUnavailableError) for outcome in outcomes)


def _refuse_connection(*arguments: object) -> None:
    raise AssertionError(f"A store without a server opened a connection: {arguments[1:]}")
