"""What the author of a store says about it, and the fixtures on which every law stands."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import ClassVar

import pytest

from haybaler.errors import AsyncOnlyStoreError
from haybaler.stores.protocol import StoreEntry, ToolResultStore
from haybaler.testing.access import COLOURS, Colour, Law, run_law

MakeStore = Callable[[], ToolResultStore]
Check = Callable[[Law], None]


class StoreContract:
    """
    The base of the conformance suites: the capabilities that a subclass states, and the fixtures.

    Nothing is skipped. Where a store lacks a capability, the test asserts what is documented for such a store instead.
    """

    durable: ClassVar[bool] = True
    """
    Whether another instance with the same settings, also in another process, reads what was written. If False, the
    tests assert that another instance refuses the reference.
    """

    supports_sync: ClassVar[bool] = True
    """Whether the synchronous methods work. If False, the tests assert that each raises `AsyncOnlyStoreError`."""

    counts_as_written: bool = True
    """
    Whether `delete_scope` counts entries and bytes as they were written. If False, for a store that keeps them in
    another form, the tests only assert that it counts at least one entry for each that it removes.
    """

    cancelled_at_every: int = 1
    """
    At which suspension points writes are cancelled: by default at each. For a store whose writes have hundreds of them,
    and whose parts keep the laws at each, a higher number takes a sample.
    """

    most_in_flight: ClassVar[int] = 64
    """The most tasks, and the most threads, that one batch of any size may add."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """
        Return a function that makes a store, with the same settings each time. A subclass must override the fixture.

        Each test starts with an empty place for entries, for example below `tmp_path`.
        """
        raise NotImplementedError("Override the fixture `make_store`.")

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        """
        Damage what is stored under a reference, behind the store's back. Override it where there is a way.

        :param store: The store.
        :param reference: The reference of an entry.
        :returns: Whether the entry is damaged now. False, the default, says that nobody outside the store can reach
            its entries; the test then asserts that what a reader gets cannot be altered.
        """
        del store, reference
        return False

    def unavailable(self, store: ToolResultStore) -> AbstractContextManager[None] | None:
        """
        Make what the store needs unreachable. Override it for a store that needs something.

        :param store: The store.
        :returns: A context in which nothing answers, or None, the default, for a store that needs nothing outside the
            process; the test then asserts that it opens no connection.
        """
        del store
        return None

    ttl: ClassVar[float] = 0.5
    """The time to live, in seconds, of the stores of `limited`. With a `pass_time` of one's own, any large number."""

    def limited(
        self, *, ttl: float | None = None, max_bytes: int | None = None, max_scope_bytes: int | None = None
    ) -> ToolResultStore | None:
        """
        Make a store with limits. Override it for a store that has them.

        :param ttl: Seconds that entries live from their last write or read on.
        :param max_bytes: The most bytes of an entry.
        :param max_scope_bytes: The most bytes of a scope, without those of the scopes inside it.
        :returns: The store, at the place of `make_store`; None, the default, where it knows no such limit.
        """
        del ttl, max_bytes, max_scope_bytes
        return None

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        """
        Let time pass for the entries of a store. By default it is waited for.

        :param store: A store of `limited`.
        :param seconds: How much.
        """
        del store
        time.sleep(seconds)

    @pytest.fixture(params=COLOURS, ids=lambda colour: colour.name)
    def colour(self, request: pytest.FixtureRequest) -> Colour:
        """Return the colour of this run of the test."""
        colour: Colour = request.param
        return colour

    @pytest.fixture
    def check(self, make_store: MakeStore, colour: Colour) -> Check:
        """Return a function that checks a law with a new store, in the colour of this run of the test."""

        def check(law: Law) -> None:
            if colour.uses_sync and not self.supports_sync:
                assert_refuses_sync(make_store())
            else:
                run_law(law, make_store(), colour)

        return check


def assert_refuses_sync(store: ToolResultStore) -> None:
    """
    Assert that a store without synchronous methods says so, in every one of them.

    :param store: The store.
    """
    reference = store.reference("key")
    with pytest.raises(AsyncOnlyStoreError):
        store.write(key="key", content="content")
    with pytest.raises(AsyncOnlyStoreError):
        store.read(reference)
    with pytest.raises(AsyncOnlyStoreError):
        store.delete([reference])
    (outcome,) = store.write_many([StoreEntry("key", "content")])
    assert isinstance(outcome, AsyncOnlyStoreError)
