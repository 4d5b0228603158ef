"""Laws 3 and 4: an entry is whole or absent, whatever stops the writer, and another process reads it."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from haybaler.errors import InvalidReferenceError, ReferenceNotFoundError
from haybaler.stores.protocol import StoreEntry, ToolResultStore
from haybaler.testing.access import ASYNC, SYNC, Access, Colour, Way, drive
from haybaler.testing.cancellation import each_cancellation
from haybaler.testing.contract import Check, MakeStore, StoreContract, assert_refuses_sync
from haybaler.testing.corpus import BYTES, TEXTS
from haybaler.testing.processes import read_elsewhere, write_elsewhere_until_killed

_OLD = "old " * 50_000
_NEW = "new " * 60_000
_BATCH = [StoreEntry(key, _NEW) for key in ("a", "b", "c")]

_READERS = (
    Colour("read_async", writes=Way.OWN_LOOP, reads=Way.OWN_LOOP),
    Colour("read_sync", writes=Way.OWN_LOOP, reads=Way.CALLED),
)


class WholenessLaws(StoreContract):
    """Laws 3 and 4."""

    def test_a_cancelled_write_leaves_the_old_entry_or_the_new_one(self, make_store: MakeStore) -> None:
        self._check_cancellations(
            make_store(),
            operation=lambda store: store.write_async(key="a", content=_NEW),
            before=lambda access: access.write("a", _OLD),
            keys=["a"],
            left={_OLD, _NEW},
        )

    def test_a_cancelled_first_write_leaves_the_entry_or_nothing(self, make_store: MakeStore) -> None:
        self._check_cancellations(
            make_store(),
            operation=lambda store: store.write_async(key="a", content=_NEW),
            before=lambda access: access.delete([access.store.reference("a")]),
            keys=["a"],
            left={None, _NEW},
        )

    def test_a_cancelled_batch_leaves_each_entry_whole_or_absent(self, make_store: MakeStore) -> None:
        keys = [entry.key for entry in _BATCH]
        self._check_cancellations(
            make_store(),
            operation=lambda store: store.write_many_async(_BATCH),
            before=lambda access: access.delete([access.store.reference(key) for key in keys]),
            keys=keys,
            left={None, _NEW},
        )

    @pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
    def test_a_killed_process_leaves_the_old_entry_or_the_new_one(self, make_store: MakeStore, sync: bool) -> None:
        access = self._access(make_store, _READERS[sync])
        if sync and not self.supports_sync:
            assert_refuses_sync(access.store)
            return
        for moment in (0.3, 0.7) if self.durable else (0.3,):
            write_elsewhere_until_killed(access.store, "a", [_OLD, _NEW], sync=sync, moment=moment)
            assert drive(_found(access, "a")) in ({_OLD, _NEW} if self.durable else {None})

    def test_another_instance_reads_it_or_refuses_the_reference(self, check: Check, make_store: MakeStore) -> None:
        async def law(access: Access) -> None:
            reference = await access.write("key", "content")
            other = access.to(make_store())
            if self.durable:
                assert await other.read(reference) == "content"
                await other.delete([reference])
                with pytest.raises(ReferenceNotFoundError):
                    await access.read(reference)
            else:
                with pytest.raises(InvalidReferenceError):
                    await other.read(reference)
            await other.close()

        check(law)

    @pytest.mark.parametrize("sync", [False, True], ids=["async", "sync"])
    def test_another_process_reads_it_or_refuses_the_reference(self, make_store: MakeStore, sync: bool) -> None:
        access = self._access(make_store, _READERS[sync])
        if sync and not self.supports_sync:
            assert_refuses_sync(access.store)
            return
        scoped = access.to(access.store.scoped("user/run"))
        contents: list[str | bytes] = list(TEXTS.values())
        if access.store.supports_binary_content:
            contents += BYTES.values()
        references = [drive(scoped.write(f"key {number}", content)) for number, content in enumerate(contents)]
        found = read_elsewhere(scoped.store, references, sync=sync)
        assert found == (contents if self.durable else [None] * len(contents))

    def _check_cancellations(
        self,
        store: ToolResultStore,
        *,
        operation: Callable[[ToolResultStore], Coroutine[Any, Any, object]],
        before: Callable[[Access], Coroutine[Any, Any, object]],
        keys: Sequence[str],
        left: set[str | None],
    ) -> None:
        # Whoever cancels has an event loop. What is left is looked at in that loop, and then from outside.
        inside = Access(store, ASYNC)
        outside = Access(store, SYNC if self.supports_sync else _READERS[0])
        found: set[str | bytes | None] = set()

        async def afterwards() -> None:
            assert await inside.read(await inside.write("used again", _OLD)) == _OLD
            await inside.delete([store.reference("used again")])
            found.update([await _found(inside, key) for key in keys])
            await inside.close()

        drive(before(outside))
        attempts = each_cancellation(lambda: operation(store), afterwards=afterwards, every=self.cancelled_at_every)
        for by, step, cancelled in attempts:
            found.update([drive(_found(outside, key)) for key in keys])
            assert found <= (left if cancelled else {_NEW}), f"cancelled by {by.value} at suspension {step}"
            found.clear()
            drive(before(outside))
        drive(outside.close())

    def _access(self, make_store: MakeStore, reader: Colour) -> Access:
        return Access(make_store(), reader if self.supports_sync else _READERS[0])


async def _found(access: Access, key: str) -> str | bytes | None:
    try:
        return await access.read(access.store.reference(key))
    except ReferenceNotFoundError:
        return None
