"""Law 11: a store that can tell what it holds tells the truth."""

from datetime import UTC, datetime, timedelta

import pytest

from haybaler.errors import ConfigurationError, InvalidReferenceError, ReferenceNotFoundError, StoreError
from haybaler.stores.protocol import StoreEntry
from haybaler.testing.access import Access
from haybaler.testing.contract import Check, StoreContract

# What is listed: a key, its content, the size in bytes, and the kind.
_ENTRIES = (
    ("plain.txt", "content", 7, "text"),
    ("é\n../x", "é\ud800", 5, "text"),
    ("empty", "", 0, "text"),
    ("bytes", b"\xff\x00", 2, "binary"),
)
# Clocks of servers may differ from this machine's by that much, and some count whole seconds only.
_TOLERANCE = timedelta(minutes=5)


class InventoryLaws(StoreContract):
    """Law 11. A store that cannot tell says so."""

    def test_what_was_written_is_listed_with_its_size_and_time_and_only_below_its_scope(self, check: Check) -> None:
        async def law(access: Access) -> None:
            binary = access.store.supports_binary_content
            entries = [entry for entry in _ENTRIES if binary or isinstance(entry[1], str)]
            scopes = {scope: access.to(access.store.scoped(scope)) for scope in ("a", "a/b", "a.b", "ab")}
            sizes = {}
            for scope, inner in scopes.items():
                outcomes = await inner.write_many([StoreEntry(key, content) for key, content, _, _ in entries])
                for outcome, (_, _, size, kind) in zip(outcomes, entries, strict=True):
                    assert isinstance(outcome, str)
                    sizes[outcome] = (scope, size, kind)
            for within, listed in (
                ({"a", "a/b"}, await scopes["a"].listed()),
                ({"a/b"}, await scopes["a"].listed("b")),
                (set(scopes), await access.listed()),
                (set(), await access.listed("nowhere")),
            ):
                if listed is None:
                    continue
                expected = {reference: size for reference, (scope, size, _) in sizes.items() if scope in within}
                assert {entry.reference: entry.bytes for entry in listed} == expected
                assert all(entry.kind in {None, sizes[entry.reference][2]} for entry in listed)
                now = datetime.now(UTC)
                assert all(entry.written is None or abs(now - entry.written) < _TOLERANCE for entry in listed)

        check(law)

    def test_many_entries_are_listed_each_once_when_nobody_writes(self, check: Check) -> None:
        async def law(access: Access) -> None:
            inner = access.to(access.store.scoped("many"))
            written = await inner.write_many([StoreEntry(str(number), "x") for number in range(60)])
            await inner.delete([str(reference) for reference in written[::2]])
            listed = await inner.listed()
            assert listed is None or sorted(entry.reference for entry in listed) == sorted(map(str, written[1::2]))

        check(law)

    def test_one_entry_is_told_as_it_is_and_an_absent_or_foreign_one_is_refused(self, check: Check) -> None:
        async def law(access: Access) -> None:
            inner = access.to(access.store.scoped("a"))
            reference = await inner.write("key", "é")
            told = await inner.stat(reference)
            if told is None:
                return
            assert (told.reference, told.bytes) == (reference, 2)
            assert told.kind in {None, "text"}
            await inner.write("key", "longer")
            again = await inner.stat(reference)
            assert again is not None
            assert again.bytes == 6
            with pytest.raises(ReferenceNotFoundError):
                await inner.stat(inner.store.reference("absent"))
            with pytest.raises(InvalidReferenceError):
                await access.stat(reference)
            await inner.delete([reference])
            with pytest.raises(ReferenceNotFoundError):
                await inner.stat(reference)

        check(law)

    def test_the_store_of_what_is_listed_reads_and_deletes_it(self, check: Check) -> None:
        async def law(access: Access) -> None:
            inner = access.to(access.store.scoped("user/\ud800 run"))
            reference = await inner.write("key", "content")
            for listed in await access.listed() or ():
                owner = access.of(listed.reference)
                assert await owner.read(listed.reference) == "content"
                with pytest.raises(InvalidReferenceError):
                    inner.of(access.store.reference("key"))
                await owner.delete([listed.reference])
                assert await access.listed() == []
            assert reference == inner.store.reference("key")

        check(law)

    def test_a_sweep_removes_no_entry_that_lives(self, check: Check) -> None:
        async def law(access: Access) -> None:
            written = [await access.to(access.store.scoped(scope)).write("key", scope) for scope in ("a", "a/b")]
            for reference, scope in zip(written, ("a", "a/b"), strict=True):
                report = await access.sweep()
                assert report is None or (report.expired, report.elsewhere) == (0, False)
                assert await access.to(access.store.scoped(scope)).read(reference) == scope
            if await access.sweep() is not None:
                with pytest.raises((ConfigurationError, StoreError)):
                    await access.sweep(safe_age=-1)

        check(law)
