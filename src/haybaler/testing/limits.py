"""Law 12: what has a time to live goes when it is over and not before; what is too large is refused."""

import pytest

from haybaler.errors import EntryTooLargeError, ReferenceNotFoundError, ScopeFullError
from haybaler.stores.protocol import StoreEntry
from haybaler.testing.access import Access
from haybaler.testing.contract import Check, StoreContract


class LimitLaws(StoreContract):
    """Law 12, for stores that know such limits."""

    def test_an_entry_lives_on_with_each_read_and_is_absent_once_its_time_is_over(self, check: Check) -> None:
        async def law(access: Access) -> None:
            limited = self.limited(ttl=self.ttl)
            if limited is None:
                assert await access.read(await access.write("key", "stays")) == "stays"
                return
            inner = access.to(limited)
            try:
                scope = inner.to(limited.scoped("a"))
                read, unread = await scope.write("read", "content"), await scope.write("unread", "content")
                for _ in range(3):
                    await access.outside(lambda: self.pass_time(limited, 0.6 * self.ttl))
                    assert await scope.read(read) == "content"
                with pytest.raises(ReferenceNotFoundError):
                    await scope.read(unread)
                listed = await inner.listed()
                assert listed is None or [entry.reference for entry in listed] == [read]
                await access.outside(lambda: self.pass_time(limited, 2 * self.ttl))
                for reference in (read, unread):
                    with pytest.raises(ReferenceNotFoundError):
                        await scope.read(reference)
                assert not await inner.listed()
                report = await inner.sweep()
                assert report is None or report.expired in {0, 2}
                assert await scope.read(await scope.write("read", "again")) == "again"
                await inner.sweep()
                assert await scope.read(read) == "again"
            finally:
                await inner.close()

        check(law)

    def test_an_entry_that_is_too_large_is_refused_alone_and_what_stood_there_stays(self, check: Check) -> None:
        async def law(access: Access) -> None:
            limited = self.limited(max_bytes=10)
            if limited is None:
                assert await access.read(await access.write("key", "x" * 1000)) == "x" * 1000
                return
            inner = access.to(limited)
            try:
                await inner.write("ascii", "old")
                contents: dict[str, str | bytes] = {
                    "ascii": "x" * 11,
                    "fits": "x" * 10,
                    "wide": "é" * 6,
                    "wide and fits": "é" * 5,
                    "empty": "",
                }
                if limited.supports_binary_content:
                    contents |= {"bytes": b"\xff" * 11, "bytes that fit": b"\xff" * 10}
                outcomes = await inner.write_many([StoreEntry(key, content) for key, content in contents.items()])
                for (key, content), outcome in zip(contents.items(), outcomes, strict=True):
                    size = len(content if isinstance(content, bytes) else content.encode())
                    if size <= 10:
                        assert await inner.read(str(outcome)) == content
                        continue
                    assert isinstance(outcome, EntryTooLargeError)
                    if key != "ascii":
                        with pytest.raises(ReferenceNotFoundError):
                            await inner.read(limited.reference(key))
                assert await inner.read(limited.reference("ascii")) == "old"
            finally:
                await inner.close()

        check(law)

    def test_a_scope_takes_no_more_than_it_may_hold_and_room_that_was_made_is_found(self, check: Check) -> None:
        async def law(access: Access) -> None:
            limited = self.limited(max_scope_bytes=100)
            if limited is None:
                assert await access.read(await access.write("key", "x" * 1000)) == "x" * 1000
                return
            inner = access.to(limited)
            try:
                await _fill(inner.to(limited.scoped("a")), inner.to(limited.scoped("a/b")))
            finally:
                await inner.close()

        check(law)


async def _fill(scope: Access, inside: Access) -> None:
    fits = await scope.write("first", "x" * 60)
    outcomes = await scope.write_many(
        [StoreEntry("too much", "x" * 41), StoreEntry("wide", "é" * 15), StoreEntry("no room", "x" * 20)]
    )
    assert [type(outcome) for outcome in outcomes] == [ScopeFullError, str, ScopeFullError]
    with pytest.raises(ReferenceNotFoundError):
        await scope.read(scope.store.reference("too much"))
    # Scopes inside it, and others, have room of their own.
    assert await inside.read(await inside.write("first", "x" * 100)) == "x" * 100
    # What replaces an entry needs no room besides.
    assert await scope.write("first", "y" * 60) == fits
    with pytest.raises(ScopeFullError):
        await scope.write("one more", "x" * 41)
    await scope.delete([fits])
    assert await scope.read(await scope.write("one more", "x" * 70)) == "x" * 70
    with pytest.raises(ScopeFullError):
        await scope.write("first", "x")
    if await scope.delete_scope() is not None:
        assert await scope.read(await scope.write("first", "x" * 100)) == "x" * 100
