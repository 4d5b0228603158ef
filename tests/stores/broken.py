"""Stores that each break one law, with suites for them; `test_kit.py` runs these and expects failures."""

import asyncio
import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
from tests.stores.examples import AsyncOnlyStore, SyncOnlyStore

from haybaler.errors import StoreError, StoreUnavailableError
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.batch import WriteBatch
from haybaler.stores.driver import Content
from haybaler.stores.group_commit import GroupCommit
from haybaler.stores.inventory import EntryPage, StoredEntry, SweepReport
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.protocol import DeletedScope, StoreEntry, ToolResultStore
from haybaler.testing import MakeStore, StoreConformance


class Suite(StoreConformance):
    __test__ = False
    durable = False
    store_class: ClassVar[type[InMemoryToolResultStore]] = InMemoryToolResultStore

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return self.store_class


class GuessesTypes(InMemoryToolResultStore):
    def _get(self, path: str) -> Content:
        content = super()._get(path)
        try:
            return content.decode() if isinstance(content, bytes) else content
        except UnicodeDecodeError:
            return content


class LosesLineEnds(InMemoryToolResultStore):
    def _put(self, path: str, content: Content) -> None:
        super()._put(path, content.replace("\r\n", "\n") if isinstance(content, str) else content)


class FoldsCase(InMemoryToolResultStore):
    def reference(self, key: str) -> str:
        return super().reference(key.lower())

    def _batch(self, entries: Sequence[StoreEntry]) -> WriteBatch:
        return super()._batch([StoreEntry(entry.key.lower(), entry.content) for entry in entries])


class PredictsOtherReferences(InMemoryToolResultStore):
    def reference(self, key: str) -> str:
        return super().reference(key.lower())


class WritesInPlace(InMemoryToolResultStore):
    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        for path, content in items:
            self._put(path, content[: len(content) // 2])
        await asyncio.sleep(0)
        return self._put_many(items)


class ConfusesAbsence(InMemoryToolResultStore):
    def _get(self, path: str) -> Content:
        if path not in self._entries:
            raise StoreUnavailableError("Perhaps it is down.")
        return super()._get(path)


class TrustsReferences(InMemoryToolResultStore):
    def _path(self, reference: Any) -> str:
        return str(reference).removeprefix(self._location)


class RaisesFromBatches(InMemoryToolResultStore):
    def write_many(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        outcomes = super().write_many(entries)
        for outcome in outcomes:
            if isinstance(outcome, StoreError):
                raise outcome
        return outcomes


class MixesUpOutcomes(InMemoryToolResultStore):
    async def write_many_async(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        return (await super().write_many_async(entries))[::-1]


class KeepsTheFirst(InMemoryToolResultStore):
    def write_many(self, entries: Sequence[StoreEntry]) -> list[str | StoreError]:
        return super().write_many(entries[::-1])[::-1]


class TaskForEachEntry(InMemoryToolResultStore):
    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        async def put(item: tuple[str, Content]) -> None:
            await asyncio.sleep(0)
            self._put(*item)

        return list(await asyncio.gather(*(put(item) for item in items)))


class GroupsByTheCallersScope(InMemoryToolResultStore):
    def __init__(self) -> None:
        super().__init__()
        BaseToolResultStore.__init__(self, location=self._location, group_commit=GroupCommit(in_flight=1))

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        await asyncio.sleep(0)
        return self._put_many([(self._scope_path + path.rpartition("/")[2], content) for path, content in items])


class BoundToItsFirstLoop(InMemoryToolResultStore):
    _loop: asyncio.AbstractEventLoop | None = None

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        self._check()
        return self._put_many(items)

    async def _get_async(self, path: str) -> Content:
        self._check()
        return self._get(path)

    def _check(self) -> None:
        self._loop = self._loop or asyncio.get_running_loop()
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError("attached to a different loop")


class IsCopied(InMemoryToolResultStore):
    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        inner = copy.copy(self)
        inner._entries = dict(self._entries)
        return inner


class ClosesForGood(InMemoryToolResultStore):
    def close(self) -> None:
        self._entries = {}

    async def close_async(self) -> None:
        self.close()


class HasOneScope(InMemoryToolResultStore):
    def scoped(self, scope: str) -> Self:
        return self


class RemovesByTheBeginningOfAName(InMemoryToolResultStore):
    def _remove_scope(self, folder: str) -> DeletedScope:
        return super()._remove_scope(folder.removesuffix("/"))


class LeavesInnerScopes(InMemoryToolResultStore):
    def _remove_scope(self, folder: str) -> DeletedScope:
        found = [path for path in self._entries if path.rpartition("/")[0] == folder.removesuffix("/")]
        return DeletedScope(len(found), sum(len(str(self._entries.pop(path).content).encode()) for path in found))


class CountsBeforeItRemoves(InMemoryToolResultStore):
    async def _remove_scope_async(self, folder: str) -> DeletedScope:
        found = [path for path in self._entries if path.startswith(folder)]
        await asyncio.sleep(0)
        self._remove_scope(folder)
        return DeletedScope(len(found), 0)

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        await asyncio.sleep(0)
        return self._put_many(items)


class ForgetsItsScope(InMemoryToolResultStore):
    def to_dict(self) -> dict[str, Any]:
        data = super().to_dict()
        del data["scope"]
        return data if not self._scope else {**data, "lost": True}


class ReferencesByCount(InMemoryToolResultStore):
    _count = 0

    def reference(self, key: str) -> str:
        self._count += 1
        return super().reference(f"{key}{self._count}")


class ListsByTheBeginningOfAName(InMemoryToolResultStore):
    def _list(self, folder: str, after: object) -> EntryPage:
        return super()._list(folder.removesuffix("/"), after)


class ListsOnePage(InMemoryToolResultStore):
    def _list(self, folder: str, after: object) -> EntryPage:
        return EntryPage(super()._list(folder, after).entries[:20])


class CountsCharacters(InMemoryToolResultStore):
    def _stat(self, path: str) -> StoredEntry:
        return replace(super()._stat(path), bytes=len(self._found(path).content))


class SweepsEverything(InMemoryToolResultStore):
    def _sweep(self, folder: str, safe_age: float) -> SweepReport:
        deleted = self._remove_scope(folder)
        return SweepReport(leftovers=deleted.entries, bytes=deleted.bytes)


class NeverExpires(InMemoryToolResultStore):
    def __init__(self, **limits: Any) -> None:
        super().__init__(**{**limits, "ttl": None})


class IsNotRenewed(InMemoryToolResultStore):
    def _get(self, path: str) -> Content:
        return self._found(path).content


class MeasuresCharacters(InMemoryToolResultStore):
    def _put(self, path: str, content: Content) -> None:
        if len(content) <= (self._max_bytes or len(content)):
            self._max_bytes = None
        super()._put(path, content)


class LimitedSuite(Suite):
    ttl = 1000.0

    def limited(self, **limits: Any) -> ToolResultStore:
        return self.store_class(**limits)

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        assert isinstance(store, InMemoryToolResultStore)
        for held in store._entries.values():
            held.used -= seconds


class TestListsByTheBeginningOfAName(Suite):
    __test__ = True
    store_class = ListsByTheBeginningOfAName


class TestListsOnePage(Suite):
    __test__ = True
    store_class = ListsOnePage


class TestCountsCharacters(Suite):
    __test__ = True
    store_class = CountsCharacters


class TestSweepsEverything(Suite):
    __test__ = True
    store_class = SweepsEverything


class TestNeverExpires(LimitedSuite):
    __test__ = True
    store_class = NeverExpires


class TestIsNotRenewed(LimitedSuite):
    __test__ = True
    store_class = IsNotRenewed


class TestMeasuresCharacters(LimitedSuite):
    __test__ = True
    store_class = MeasuresCharacters


class TestGuessesTypes(Suite):
    __test__ = True
    store_class = GuessesTypes


class TestLosesLineEnds(Suite):
    __test__ = True
    store_class = LosesLineEnds


class TestFoldsCase(Suite):
    __test__ = True
    store_class = FoldsCase


class TestPredictsOtherReferences(Suite):
    __test__ = True
    store_class = PredictsOtherReferences


class TestWritesInPlace(Suite):
    __test__ = True
    store_class = WritesInPlace


class TestConfusesAbsence(Suite):
    __test__ = True
    store_class = ConfusesAbsence


class TestTrustsReferences(Suite):
    __test__ = True
    store_class = TrustsReferences


class TestRaisesFromBatches(Suite):
    __test__ = True
    store_class = RaisesFromBatches


class TestMixesUpOutcomes(Suite):
    __test__ = True
    store_class = MixesUpOutcomes


class TestKeepsTheFirst(Suite):
    __test__ = True
    store_class = KeepsTheFirst


class TestTaskForEachEntry(Suite):
    __test__ = True
    store_class = TaskForEachEntry


class TestGroupsByTheCallersScope(Suite):
    __test__ = True
    store_class = GroupsByTheCallersScope


class TestBoundToItsFirstLoop(Suite):
    __test__ = True
    store_class = BoundToItsFirstLoop


class TestIsCopied(Suite):
    __test__ = True
    store_class = IsCopied


class TestClosesForGood(Suite):
    __test__ = True
    store_class = ClosesForGood


class TestHasOneScope(Suite):
    __test__ = True
    store_class = HasOneScope


class TestRemovesByTheBeginningOfAName(Suite):
    __test__ = True
    store_class = RemovesByTheBeginningOfAName


class TestLeavesInnerScopes(Suite):
    __test__ = True
    store_class = LeavesInnerScopes


class TestCountsBeforeItRemoves(Suite):
    __test__ = True
    store_class = CountsBeforeItRemoves


class TestForgetsItsScope(Suite):
    __test__ = True
    store_class = ForgetsItsScope


class TestReferencesByCount(Suite):
    __test__ = True
    store_class = ReferencesByCount


class TestClaimsToBeDurable(Suite):
    __test__ = True
    durable = True


class TestClaimsToHaveNoSynchronousMethods(Suite):
    __test__ = True
    supports_sync = False


class TestClaimsToHaveSynchronousMethods(Suite):
    __test__ = True

    @pytest.fixture
    def make_store(self) -> MakeStore:
        return AsyncOnlyStore


class Unchecked(SyncOnlyStore):
    def _get(self, path: str) -> Content:
        return self.file(self._location + path).read_bytes()[5:].decode("utf-8", "surrogatepass")


class WritesFilesInPlace(SyncOnlyStore):
    def _put(self, path: str, content: Content) -> None:
        assert isinstance(content, str)
        half = len(content) // 2
        super()._put(path, content[:half])
        time.sleep(0.2)  # a disk that takes its time, so that the kill comes in between
        super()._put(path, content)


class TestWritesFilesInPlace(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: WritesFilesInPlace(str(tmp_path))


class TestReadsDamage(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: Unchecked(str(tmp_path))

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        assert isinstance(store, Unchecked)
        file = store.file(reference)
        file.write_bytes(file.read_bytes()[:-1])
        return True


BROKEN = {
    TestGuessesTypes: ("test_bytes_come_back_as_those_bytes_or_are_refused",),
    TestLosesLineEnds: ("test_text_comes_back_as_that_text",),
    TestFoldsCase: ("test_different_keys_never_meet",),
    TestPredictsOtherReferences: (
        "test_different_keys_never_meet",
        "test_any_key_can_be_written_alone_read_and_deleted",
    ),
    TestWritesInPlace: (
        "test_a_cancelled_write_leaves_the_old_entry_or_the_new_one",
        "test_a_cancelled_first_write_leaves_the_entry_or_nothing",
        "test_a_cancelled_batch_leaves_each_entry_whole_or_absent",
    ),
    TestConfusesAbsence: (
        "test_a_reference_that_was_never_written_is_not_found",
        "test_deleting_what_is_not_there_is_no_error",
    ),
    TestTrustsReferences: (
        "test_what_is_no_reference_of_the_store_is_refused",
        "test_scopes_cannot_read_replace_or_delete_each_others_entries",
        "test_another_instance_reads_it_or_refuses_the_reference",
    ),
    TestRaisesFromBatches: ("test_a_bad_entry_is_an_outcome_and_harms_no_other",),
    TestMixesUpOutcomes: ("test_a_thousand_outcomes_belong_to_their_entries",),
    TestKeepsTheFirst: ("test_of_equal_keys_in_one_batch_the_last_stands",),
    TestTaskForEachEntry: ("test_a_large_batch_keeps_few_operations_in_flight",),
    TestGroupsByTheCallersScope: ("test_runs_that_write_at_the_same_time_never_mix",),
    TestBoundToItsFirstLoop: (
        "test_it_works_in_a_second_event_loop_when_nobody_closed_it_in_the_first",
        "test_two_event_loops_in_two_threads_use_it_at_once",
    ),
    TestIsCopied: ("test_a_deep_copy_is_the_store_itself", "test_a_pipeline_writes_to_the_callers_store"),
    TestClosesForGood: ("test_closing_may_be_repeated_and_the_next_use_reopens",),
    TestHasOneScope: (
        "test_scopes_cannot_read_replace_or_delete_each_others_entries",
        "test_a_deleted_entry_is_gone_in_its_scope_only",
        "test_any_text_names_a_scope_of_its_own",
    ),
    TestRemovesByTheBeginningOfAName: (
        "test_a_scope_is_removed_with_the_scopes_inside_it_and_nothing_else",
        "test_a_scope_that_is_removed_while_a_run_writes_into_it_holds_whole_entries_only",
    ),
    TestLeavesInnerScopes: ("test_a_scope_is_removed_with_the_scopes_inside_it_and_nothing_else",),
    TestCountsBeforeItRemoves: ("test_a_scope_that_is_removed_while_a_run_writes_into_it_holds_whole_entries_only",),
    TestListsByTheBeginningOfAName: (
        "test_what_was_written_is_listed_with_its_size_and_time_and_only_below_its_scope",
    ),
    TestListsOnePage: ("test_many_entries_are_listed_each_once_when_nobody_writes",),
    TestCountsCharacters: ("test_one_entry_is_told_as_it_is_and_an_absent_or_foreign_one_is_refused",),
    TestSweepsEverything: ("test_a_sweep_removes_no_entry_that_lives",),
    TestNeverExpires: ("test_an_entry_lives_on_with_each_read_and_is_absent_once_its_time_is_over",),
    TestIsNotRenewed: ("test_an_entry_lives_on_with_each_read_and_is_absent_once_its_time_is_over",),
    TestMeasuresCharacters: ("test_an_entry_that_is_too_large_is_refused_alone_and_what_stood_there_stays",),
    TestForgetsItsScope: ("test_its_settings_survive_serialization",),
    TestReferencesByCount: ("test_a_write_returns_the_reference_that_was_known_before",),
    TestClaimsToBeDurable: (
        "test_another_instance_reads_it_or_refuses_the_reference",
        "test_another_process_reads_it_or_refuses_the_reference",
        "test_references_do_not_depend_on_the_instance",
    ),
    TestClaimsToHaveNoSynchronousMethods: ("test_a_write_returns_the_reference_that_was_known_before",),
    TestClaimsToHaveSynchronousMethods: ("test_a_write_returns_the_reference_that_was_known_before",),
    TestWritesFilesInPlace: ("test_a_killed_process_leaves_the_old_entry_or_the_new_one",),
    TestReadsDamage: ("test_damage_is_reported_as_damage",),
}
