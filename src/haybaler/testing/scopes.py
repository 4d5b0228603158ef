"""Law 10: scopes share the store's clients, and nothing else."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from haybaler.errors import InvalidReferenceError, ReferenceNotFoundError, StoreError
from haybaler.stores.protocol import DeletedScope, StoreEntry
from haybaler.testing.access import COLOURS, Access, Way
from haybaler.testing.contract import Check, MakeStore, StoreContract
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

    def test_a_scope_is_removed_with_the_scopes_inside_it_and_nothing_else(self, check: Check) -> None:
        """A store that cannot remove a scope says so and removes nothing."""

        async def law(access: Access) -> None:
            beside = await access.write("key", "beside")
            scopes = {scope: access.to(access.store.scoped(scope)) for scope in SCOPES}
            references = {
                scope: await inner.write("key", "é" * size) for size, (scope, inner) in enumerate(scopes.items())
            }
            left = {scope: 2 * size for size, scope in enumerate(scopes)}
            for scope in SCOPES:
                deleted = await scopes[scope].delete_scope()
                if deleted is None:
                    assert await scopes[scope].read(references[scope]) == "é" * (left[scope] // 2)
                    continue
                parts = scope.split("/")
                inside = [other for other in left if other.split("/")[: len(parts)] == parts]
                self._assert_counted(deleted, DeletedScope(len(inside), sum(left.pop(other) for other in inside)))
                with pytest.raises(ReferenceNotFoundError):
                    await scopes[scope].read(references[scope])
            assert await access.read(beside) == "beside"
            if (deleted := await access.delete_scope()) is not None:
                self._assert_counted(deleted, DeletedScope(1, 6))
                assert await access.delete_scope() == DeletedScope(0, 0)

        check(law)

    def _assert_counted(self, deleted: DeletedScope, written: DeletedScope) -> None:
        if self.counts_as_written:
            assert deleted == written
        else:
            assert deleted.entries >= written.entries

    def test_a_scope_that_is_removed_while_a_run_writes_into_it_holds_whole_entries_only(
        self, make_store: MakeStore
    ) -> None:
        """What is written meanwhile stays, is removed, or fails to be written; nothing is damaged or counted twice."""
        colour = next(colour for colour in COLOURS if colour.writes is colour.reads is Way.AWAITED)

        async def law() -> None:
            access = Access(make_store(), colour)
            run, beside = access.to(access.store.scoped("run/step")), access.to(access.store.scoped("run-2"))
            kept = await beside.write("key", "kept")
            found: Counter[str] = Counter()

            async def write(writer: int) -> None:
                for number in range(6):
                    entries = [StoreEntry(f"{writer} {number} {n}", f"{writer} {number} {n}") for n in range(3)]
                    for entry, outcome in zip(entries, await run.write_many(entries), strict=True):
                        if isinstance(outcome, StoreError):
                            continue
                        found["written"] += 1
                        with suppress(ReferenceNotFoundError):
                            assert await run.read(outcome) == entry.content

            async def remove() -> bool:
                deleted = await access.to(access.store.scoped("run")).delete_scope()
                found["removed"] += deleted.entries if deleted else 0
                return deleted is not None

            async with asyncio.TaskGroup() as group:
                writers = [group.create_task(write(writer)) for writer in range(3)]
                while not all(writer.done() for writer in writers):
                    await remove()
                    await asyncio.sleep(0)
            if await remove():
                assert found["removed"] == found["written"]
            assert await beside.read(kept) == "kept"
            await access.close()

        asyncio.run(law())
