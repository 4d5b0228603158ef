"""Keys, scopes and references of every kind, on every backend: each stays in its scope or is refused."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from tests.hostile.case import each
from tests.hostile.corpus_places import KEYS, PREFIXES, SCOPES, SERIALIZED_SCOPES, TOO_DEEP
from tests.hostile.corpus_readback import REFERENCES
from tests.hostile.corpus_texts import BOMBS, FORGERIES
from tests.services.places import Place
from tests.services.redis_servers import RedisServer

from haybaler import InMemoryToolResultStore
from haybaler.errors import (
    ConfigurationError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreError,
)
from haybaler.stores.protocol import DeletedScope, StoreEntry
from haybaler_redis import RedisToolResultStore


def used(store: Any, law: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a law in an event loop, and close what it has opened there."""

    async def run() -> None:
        try:
            await law()
        finally:
            await store.close_async()

    asyncio.run(run())


def test_every_key_stays_in_its_scope_and_meets_no_other(place: Place) -> None:
    scope = place.store.scoped("victim")
    entries = [StoreEntry(case.value, f"of {number}") for number, case in enumerate(KEYS)]

    async def law() -> None:
        references = await scope.write_many_async(
            [StoreEntry("Secret!", "secret"), StoreEntry("secret", "s"), *entries]
        )
        assert [outcome for outcome in references if isinstance(outcome, StoreError)] == []
        assert len({reference.casefold() for reference in references}) == len(references)
        assert await place.outside(scope) == []
        for entry, reference in zip(entries, references[2:], strict=True):
            assert reference == scope.reference(entry.key)
            assert (reference.isprintable(), len(reference) <= 512) == (True, True)
            assert await scope.read_async(reference) == entry.content
        await scope.delete_async(references[2:])
        assert [await scope.read_async(reference) for reference in references[:2]] == ["secret", "s"]
        for reference in references[2:]:
            with pytest.raises(ReferenceNotFoundError):
                await scope.read_async(reference)

    used(place.store, law)


def test_every_scope_is_a_place_of_its_own_and_goes_alone(place: Place) -> None:
    victim, inside = place.store.scoped("victim"), place.store.scoped("victim/run")

    async def law() -> None:
        kept = [(scope, await scope.write_async(key="secret", content="secret")) for scope in (victim, inside)]
        others = [place.store.scoped(case.value) for case in SCOPES]
        written = [await other.write_async(key="secret", content=f"{n:03}") for n, other in enumerate(others)]
        assert len({reference.casefold() for reference in written}) == len(others)
        for other, reference in zip(others, written, strict=True):
            for scope, secret in kept:
                with pytest.raises(InvalidReferenceError):
                    await other.read_async(secret)
                with pytest.raises(InvalidReferenceError):
                    await scope.delete_async([reference])
        for number, (case, other) in enumerate(zip(SCOPES, others, strict=True)):
            assert await other.read_async(written[number]) == f"{number:03}"
            assert (await other.delete_scope_async()).entries == 1, case.name
        assert [await scope.read_async(secret) for scope, secret in kept] == ["secret", "secret"]

    used(place.store, law)


@each(TOO_DEEP)
def test_a_scope_for_which_a_reference_has_no_room_is_refused(case: Any, place: Place) -> None:
    with pytest.raises(ConfigurationError):
        place.store.scoped(case.value)


@each(SERIALIZED_SCOPES)
def test_a_serialized_scope_leads_nowhere_else(case: Any) -> None:
    with pytest.raises(ConfigurationError):
        InMemoryToolResultStore.from_dict({**InMemoryToolResultStore().to_dict(), "scope": case.value})


def test_every_reference_that_is_made_up_is_refused_by_every_operation(place: Place) -> None:
    own, victim = place.store.scoped("run/step"), place.store.scoped("victim/step")

    async def law() -> None:
        reference = await own.write_async(key="own.txt", content="own")
        secret = await victim.write_async(key="secret.txt", content="secret")
        before = await place.everything()
        for case in REFERENCES:
            made_up: Any = case.value(reference, secret)
            with pytest.raises(InvalidReferenceError):
                await own.read_async(made_up)
            with pytest.raises(InvalidReferenceError):
                await own.read_page_async(made_up, offset=0, limit=2**40)
            with pytest.raises(InvalidReferenceError):
                await own.delete_async([reference, made_up])
        assert await place.everything() == before
        assert await own.read_async(reference) == "own"
        assert await victim.read_async(secret) == "secret"

    used(place.store, law)
    for case in REFERENCES:
        made_up: Any = case.value(own.reference("own.txt"), victim.reference("secret.txt"))
        with pytest.raises(InvalidReferenceError):
            own.read(made_up)
        with pytest.raises(InvalidReferenceError):
            own.read_page(made_up, limit=1)
        with pytest.raises(InvalidReferenceError):
            own.delete([made_up])


def test_every_content_comes_back_as_it_was_and_nobody_inflates_it(place: Place) -> None:
    contents: list[str | bytes] = [*(case.value for case in FORGERIES), *(case.value for case in BOMBS)]

    async def law() -> None:
        references = await place.store.write_many_async([StoreEntry(str(n), c) for n, c in enumerate(contents)])
        for content, reference in zip(contents, references, strict=True):
            assert await place.store.read_async(reference) == content
            page = await place.store.read_page_async(reference, offset=-(2**70), limit=2**70)
            assert (page.content, page.offset, page.total) == (content, 0, len(content))

    used(place.store, law)


@each(PREFIXES)
def test_no_prefix_is_a_pattern_or_a_tag_that_reaches_other_keys(case: Any, valkey: RedisServer, prefix: str) -> None:
    """A store of each prefix removes all of its own, and the neighbours' entries and foreign keys stay."""
    prefixes = [prefix + case.value, prefix, prefix + "x", f"x{prefix}", f"{prefix}a", f"{prefix}{case.value}x"]
    valkey.client.flushall()
    stores = [RedisToolResultStore(valkey.url, prefix=name, ttl=600) for name in dict.fromkeys(prefixes)]
    try:
        for store in stores:
            store.scoped("*").write(key="*", content="123")
            store.scoped("a").write(key="*", content="123")
        valkey.client.set(f"{prefix}{case.value}", "foreign")
        with suppress(StoreError):
            assert stores[0].scoped("*").delete_scope() == DeletedScope(1, 3)
        assert stores[0].delete_scope() == DeletedScope(1, 3)
        for store in stores[1:]:
            assert store.scoped("*").read(store.scoped("*").reference("*")) == "123"
            assert store.scoped("a").read(store.scoped("a").reference("*")) == "123"
        assert valkey.client.get(f"{prefix}{case.value}") == b"foreign"
    finally:
        for store in stores:
            store.close()
