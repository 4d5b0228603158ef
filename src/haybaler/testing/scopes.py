"""Law 10: scopes share the store's clients, and nothing else."""

import pytest

from haybaler.errors import InvalidReferenceError, ReferenceNotFoundError
from haybaler.stores.protocol import StoreEntry
from haybaler.testing.access import Access
from haybaler.testing.contract import Check, StoreContract
from haybaler.testing.corpus import SCOPES


class ScopeLaws(StoreContract):
    """Law 10."""

    def test_scopes_cannot_read_replace_or_delete_each_others_entries(self, check: Check) -> None:
        async def law(access: Access) -> None:
            everywhere = [
                access,
                *(access.to(access.store.scoped(scope)) for scope in ("a", "b", "a.b", "@a")),
                access.to(access.store.scoped("a").scoped("a")),
            ]
            references = [await inner.write("key", f"of {number}") for number, inner in enumerate(everywhere)]
            assert len(set(references)) == len(everywhere)
            for number, inner in enumerate(everywhere):
                for owner, reference in enumerate(references):
                    if owner == number:
                        assert await inner.read(reference) == f"of {number}"
                        continue
                    with pytest.raises(InvalidReferenceError):
                        await inner.read(reference)
                    with pytest.raises(InvalidReferenceError):
                        await inner.delete([reference])
            for number, inner in enumerate(everywhere):
                assert await inner.read(references[number]) == f"of {number}"

        check(law)

    def test_a_deleted_entry_is_gone_in_its_scope_only(self, check: Check) -> None:
        async def law(access: Access) -> None:
            one, other = access.to(access.store.scoped("a")), access.to(access.store.scoped("b"))
            gone, kept = await one.write("key", "gone"), await other.write("key", "kept")
            await one.delete([gone])
            with pytest.raises(ReferenceNotFoundError):
                await one.read(gone)
            assert await other.read(kept) == "kept"

        check(law)

    def test_any_text_names_a_scope_of_its_own(self, check: Check) -> None:
        async def law(access: Access) -> None:
            scopes = [access.to(access.store.scoped(scope)) for scope in SCOPES]
            references = [await inner.write("key", f"of {number}") for number, inner in enumerate(scopes)]
            assert len({reference.casefold() for reference in references}) == len(SCOPES)
            for number, (inner, reference) in enumerate(zip(scopes, references, strict=True)):
                assert await inner.read(reference) == f"of {number}"

        check(law)

    def test_a_scope_is_the_same_place_every_time(self, check: Check) -> None:
        async def law(access: Access) -> None:
            reference = await access.to(access.store.scoped("user/run")).write("key", "content")
            for same in (access.store.scoped("user/run"), access.store.scoped("user").scoped("run")):
                assert same.reference("key") == reference
                assert await access.to(same).read(reference) == "content"

        check(law)

    def test_no_key_reaches_into_a_scope(self, check: Check) -> None:
        async def law(access: Access) -> None:
            inside = access.to(access.store.scoped("a"))
            reference = await inside.write("b", "inside")
            keys = ["a/b", "@a/b", "a", "@a", reference]
            assert reference not in await access.write_many([StoreEntry(key, "outside") for key in keys])
            assert await inside.read(reference) == "inside"

        check(law)
