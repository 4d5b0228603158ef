"""Times to live of files, and sweeping: what expires and what killed writers leave goes, and nothing else."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from haybaler.errors import ConfigurationError, ReferenceNotFoundError, StoreError, StoreUnavailableError
from haybaler.stores.inventory import SweepReport
from haybaler.stores.protocol import StoreEntry
from haybaler_filesystem import FileSystemToolResultStore, aside, lease
from haybaler_filesystem.folders import Folder
from haybaler_filesystem.sweeping import LEASE

HOUR = 3600.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture
def store(root: Path) -> FileSystemToolResultStore:
    return FileSystemToolResultStore(root, ttl=HOUR)


def age(path: Path | str, seconds: float) -> None:
    """Let a file or folder have been used that long ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.anyio
async def test_an_expired_entry_is_absent_for_everybody_before_any_sweep(store: FileSystemToolResultStore) -> None:
    inner = store.scoped("run")
    reference = await inner.write_async(key="a", content="x")
    assert (await inner.stat_async(reference)).bytes == 1
    age(reference, HOUR + 1)
    for reading in (
        inner.read_async(reference),
        inner.read_page_async(reference, limit=1),
        inner.stat_async(reference),
        anext(inner.stream_async(reference)),
    ):
        with pytest.raises(ReferenceNotFoundError):
            await reading
    assert [entry async for entry in store.list_async()] == []
    forever = FileSystemToolResultStore(store.root).scoped("run")
    assert await forever.read_async(reference) == "x"
    await inner.write_async(key="a", content="y")
    assert await inner.read_async(reference) == "y"


def test_reading_a_page_or_the_whole_renews_the_time_to_live_and_looking_does_not(
    store: FileSystemToolResultStore,
) -> None:
    reference = store.write(key="a", content="x" * 500_000)
    for reading in (lambda: store.read(reference), lambda: store.read_page(reference, limit=1)):
        age(reference, HOUR / 2)
        reading()
        assert time.time() - Path(reference).stat().st_mtime < HOUR / 4
    age(reference, HOUR / 2)
    store.stat(reference)
    [*store.list()]
    assert time.time() - Path(reference).stat().st_mtime > HOUR / 4
    other = FileSystemToolResultStore(store.root)
    other.read(reference)
    assert time.time() - Path(reference).stat().st_mtime > HOUR / 4


def test_an_entry_whose_time_cannot_be_renewed_is_read_all_the_same(
    store: FileSystemToolResultStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    reference = store.write(key="a", content="x")
    monkeypatch.setattr(Folder, "date", refuse)
    assert store.read(reference) == "x"
    assert [record.getMessage() for record in caplog.records] == ["The time to live of an entry could not be renewed."]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_sweep_removes_what_has_expired_with_its_seals_and_nothing_else(
    store: FileSystemToolResultStore, root: Path, is_async: bool
) -> None:
    user = store.scoped("user")
    gone = [user.write(key="old", content="éé"), user.scoped("run").write(key="old", content=b"12345")]
    kept = [user.write(key="new", content="x"), store.write(key="old", content="of nobody's scope")]
    for reference in (*gone, kept[1]):
        age(reference, HOUR + 1)
    report = asyncio.run(user.sweep_async()) if is_async else user.sweep()
    assert report == SweepReport(expired=2, bytes=9)
    assert not any(Path(reference).exists() for reference in gone)
    assert user.read(kept[0]) == "x"
    assert Path(kept[1]).exists()
    assert len(files(root)) == 4  # two entries and their seals
    assert store.sweep() == SweepReport(expired=1, bytes=17)
    assert store.sweep() == SweepReport()


def test_without_a_time_to_live_a_sweep_leaves_entries_alone(root: Path) -> None:
    store = FileSystemToolResultStore(root)
    reference = store.write(key="a", content="x")
    age(reference, 1e9)
    assert store.sweep() == SweepReport()
    assert store.read(reference) == "x"


def test_what_a_killed_writer_left_goes_once_it_is_old(store: FileSystemToolResultStore, root: Path) -> None:
    kept = store.write(key="a", content="x")
    for name, seconds in (("old", 2 * HOUR), ("new", 0.0)):
        draft = root / f".haybaler-tmp-{name}"
        draft.write_bytes(b"12345")
        os.link(draft, root / ".seals" / f"{name}.b.5.5.{0:016x}.{draft.stat().st_ino:x}")
        age(draft, seconds)
    (root / ".haybaler-tmp-unsealed").write_bytes(b"123")
    age(root / ".haybaler-tmp-unsealed", 2 * HOUR)
    (root / ".seals" / f"a.t.3.3.{0:016x}.1").write_bytes(b"abc")  # of an entry that was replaced
    (root / "notes of mine").write_text("stay")
    age(root / "notes of mine", 1e9)
    assert store.sweep() == SweepReport(leftovers=4, bytes=11)
    assert store.read(kept) == "x"
    assert {".haybaler-tmp-new", "notes of mine", "a"} < files(root)
    assert len(files(root)) == 5
    assert store.sweep(safe_age=timedelta(0)) == SweepReport(leftovers=2, bytes=5)
    with pytest.raises(ConfigurationError):
        store.sweep(safe_age=-1)


def test_the_seals_of_a_tree_that_was_copied_stay(store: FileSystemToolResultStore, tmp_path: Path) -> None:
    references = [store.write(key="a", content="x"), store.write(key="b", content=b"x")]
    shutil.copytree(store.root, tmp_path / "copy")
    copy = FileSystemToolResultStore(tmp_path / "copy", ttl=HOUR)
    assert copy.sweep() == SweepReport()
    assert [copy.read(copy.reference(key)) for key in "ab"] == ["x", b"x"]
    assert [store.read(reference) for reference in references] == ["x", b"x"]


def test_folders_that_nobody_has_used_for_long_go_and_writers_make_them_again(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = store.scoped("user/run")
    age(inner.write(key="a", content="x"), 3 * HOUR)
    assert store.sweep().expired == 1
    assert (root / "@user/@run").is_dir()  # somebody has just been here: this sweep
    age(root / "@user/@run", 2 * HOUR)
    age(root / "@user", 2 * HOUR)
    removing = Folder.remove_folder
    made: list[str] = []

    def meanwhile(folder: Folder, name: str) -> None:
        if not made:
            made.append(inner.write(key="b", content="y"))
        removing(folder, name)

    monkeypatch.setattr(Folder, "remove_folder", meanwhile)
    store.sweep()
    assert inner.read(made[0]) == "y"
    inner.delete(made)
    age(root / "@user/@run", 2 * HOUR)
    age(root / "@user", 2 * HOUR)
    assert store.sweep() == SweepReport()
    assert not (root / "@user").exists()


def test_a_writer_whose_folder_is_swept_away_under_its_feet_writes_all_the_same(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = store.scoped("run")
    inner.write(key="a", content="x")
    inner.delete([inner.reference("a")])
    creating = Folder.create
    away: list[Path] = []

    def create(folder: Folder, name: str, mode: int) -> tuple[int, int]:
        if not away:
            away.append(root / "@run")
            shutil.rmtree(root / "@run")
        return creating(folder, name, mode)

    monkeypatch.setattr(Folder, "create", create)
    outcomes = inner.write_many([StoreEntry("a", "x"), StoreEntry("b", "y")])
    assert [inner.read(str(outcome)) for outcome in outcomes] == ["x", "y"]
    assert away


# ----------------------------------------------------------------------------- replaced at the very moment


def at_moves(monkeypatch: pytest.MonkeyPatch, before: Callable[[], object], after: Callable[[], object]) -> None:
    """Do something once before, and something once after a sweep takes an entry aside."""
    moving = Folder.move
    moved: list[str] = []

    def move(folder: Folder, name: str, target: Folder, new_name: str) -> None:
        first = not moved
        moved.append(name)
        if first:
            before()
        moving(folder, name, target, new_name)
        if first:
            after()

    monkeypatch.setattr(Folder, "move", move)


def test_an_entry_that_is_replaced_while_it_is_swept_stays_and_can_be_read_at_any_moment(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = store.write(key="a", content="old")
    age(reference, 2 * HOUR)
    seen: list[object] = []
    at_moves(
        monkeypatch,
        before=lambda: store.write(key="a", content="fresh"),
        after=lambda: seen.extend((store.read(reference), store.stat(reference).bytes)),
    )
    assert store.sweep() == SweepReport(leftovers=0)
    assert seen == ["fresh", 5]
    assert store.read(reference) == "fresh"
    assert store.sweep(safe_age=0) == SweepReport()
    assert len(files(root)) == 2


def test_what_is_written_after_an_entry_was_taken_aside_counts(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = store.write(key="a", content="old")
    age(reference, 2 * HOUR)
    at_moves(
        monkeypatch,
        before=lambda: store.write(key="a", content="fresh"),
        after=lambda: store.write(key="a", content="freshest"),
    )
    store.sweep()
    assert store.read(reference) == "freshest"
    store.sweep(safe_age=0)
    assert store.read(reference) == "freshest"
    assert len(files(root)) == 2


class Killed(BaseException):
    pass


@pytest.mark.parametrize("fresh", [True, False])
def test_a_sweep_that_is_killed_with_an_entry_aside_loses_nothing(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool
) -> None:
    reference = store.write(key="a", content="old")
    age(reference, 2 * HOUR)

    def kill(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(aside, "_settle", kill)
        at_moves(patched, before=lambda: fresh and store.write(key="a", content="fresh"), after=lambda: None)
        with pytest.raises(Killed):
            store.sweep()
    (root / LEASE).touch()  # a process that is killed leaves its lease as well
    assert not Path(reference).exists()
    age(root / LEASE, 2 * lease.STALE)
    if fresh:
        assert store.read(reference) == "fresh"
        assert store.sweep().expired == 0
        assert Path(reference).read_text() == "fresh"
        assert store.read(reference) == "fresh"
    else:
        with pytest.raises(ReferenceNotFoundError):
            store.read(reference)
        assert store.sweep() == SweepReport(expired=1, bytes=3)
        assert files(root) == set()


@pytest.mark.parametrize("whole_scope", [True, False])
def test_what_is_deleted_while_it_is_aside_stays_deleted(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch, whole_scope: bool
) -> None:
    reference = store.write(key="a", content="old")
    age(reference, 2 * HOUR)
    at_moves(
        monkeypatch,
        before=lambda: store.write(key="a", content="fresh"),
        after=lambda: store.delete_scope() if whole_scope else store.delete([reference]),
    )
    store.sweep()
    with pytest.raises(ReferenceNotFoundError):
        store.read(reference)
    assert files(root) == set()


def test_an_entry_that_is_put_back_while_it_is_deleted_is_deleted(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = store.write(key="a", content="fresh")
    (root / ".aside").mkdir()
    Path(reference).rename(root / ".aside" / f"{0:016x}.a")
    removing = Folder.remove

    def remove(folder: Folder, name: str) -> bool:
        removed = removing(folder, name)
        if name == "a" and not removed and (root / ".aside" / f"{0:016x}.a").exists():
            assert aside.settle_all(folder, lambda status: False) == []
        return removed

    monkeypatch.setattr(Folder, "remove", remove)
    store.delete([reference])
    assert files(root) == set()


def test_a_planted_link_in_place_of_a_hidden_folder_leads_nowhere(
    store: FileSystemToolResultStore, root: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / f"{0:016x}.a").write_text("not ours")
    reference = store.write(key="b", content="x")
    age(reference, 2 * HOUR)
    (root / ".aside").symlink_to(outside)
    with pytest.raises(ReferenceNotFoundError):
        store.read(store.reference("a"))
    store.delete([store.reference("a")])
    store.sweep()
    assert (outside / f"{0:016x}.a").read_text() == "not ours"


# ----------------------------------------------------------------------------- several sweeps, clocks, kills


def test_a_sweep_leaves_its_scope_to_the_one_that_is_at_it(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(store.write(key="a", content="x"), 2 * HOUR)
    seen: list[SweepReport] = []
    at_moves(monkeypatch, before=lambda: seen.append(store.sweep(safe_age=0)), after=lambda: None)
    assert store.sweep() == SweepReport(expired=1, bytes=1)
    assert seen == [SweepReport(elsewhere=True)]
    assert files(root) == set()


@pytest.mark.parametrize("seconds", [2 * lease.STALE, -2 * lease.STALE], ids=["old", "from the future"])
def test_a_stale_lease_is_taken_over(store: FileSystemToolResultStore, root: Path, seconds: float) -> None:
    age(store.write(key="a", content="x"), 2 * HOUR)
    (root / LEASE).touch()
    age(root / LEASE, seconds)
    assert store.sweep() == SweepReport(expired=1, bytes=1)
    assert files(root) == set()


def test_a_sweep_whose_lease_was_taken_over_stops_and_says_so(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        age(store.write(key=str(number), content="x"), 2 * HOUR)

    def take_over() -> None:
        (root / "another's").touch()
        (root / "another's").replace(root / LEASE)

    monkeypatch.setattr(lease, "STALE", 0.0)  # looks each time
    at_moves(monkeypatch, before=take_over, after=lambda: None)
    assert store.sweep() == SweepReport(expired=1, bytes=1, elsewhere=True)
    assert (root / LEASE).exists()


def test_what_comes_from_the_future_is_dated_anew_and_lives_no_longer_than_the_rest(
    store: FileSystemToolResultStore, root: Path
) -> None:
    reference = store.write(key="a", content="x")
    draft = root / ".haybaler-tmp-x"
    draft.touch()
    for path in (reference, draft):
        age(path, -1e8)
    assert store.read(reference) == "x"
    age(reference, -1e8)
    assert store.sweep() == SweepReport()
    for path in (Path(reference), draft):
        assert time.time() - path.stat().st_mtime >= 0
    age(reference, HOUR + 1)
    age(draft, HOUR + 1)
    assert store.sweep() == SweepReport(expired=1, leftovers=1, bytes=1)


def test_a_cancelled_sweep_stops_and_leaves_no_lease(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    references = [store.write(key=str(number), content="x") for number in range(5)]
    for reference in references:
        age(reference, 2 * HOUR)
    go_on = Event()

    async def cancel() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        at_moves(monkeypatch, before=lambda: loop.call_soon_threadsafe(begun.set), after=lambda: go_on.wait(10))
        task = asyncio.create_task(store.sweep_async())
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert sum(Path(reference).exists() for reference in references) == 4
    assert not (root / LEASE).exists()
    assert store.sweep().expired == 4


SWEEPER = """
import sys
from haybaler_filesystem import FileSystemToolResultStore

store = FileSystemToolResultStore(sys.argv[1], ttl=3600)
print("ready", flush=True)
sys.stdin.readline()
print(store.sweep().expired, flush=True)
"""


def sweeper(root: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", SWEEPER, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def begin(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()


def test_ten_thousand_entries_are_swept_beside_writers_and_readers_and_a_kill_in_the_middle(
    store: FileSystemToolResultStore, root: Path
) -> None:
    """Sweeps in several processes, one of them killed: nothing fresh is lost, and nothing expired stays."""
    processes = [sweeper(root) for _ in range(2)]
    scopes = [store.scoped(f"user/{number}") for number in range(4)]
    expired = [
        str(reference)
        for scope in scopes
        for reference in scope.write_many([StoreEntry(f"old {number}", "x" * 10) for number in range(2_500)])
    ]
    for reference in expired:
        age(reference, 2 * HOUR)
    done = Event()
    fresh: dict[str, str] = {}

    def write(scope: FileSystemToolResultStore) -> None:
        """Replace what is about to be swept, and write new entries; whatever was written is there from then on."""
        for number in range(0, 2_500, 100):
            if done.is_set():
                return
            for key in (f"old {number}", f"new {number}"):
                reference = scope.write(key=key, content=f"fresh {number}")
                fresh[reference] = f"fresh {number}"
                assert scope.read(reference) == fresh[reference]
                earlier = scope.reference(key.replace(str(number), str(number // 200 * 100)))
                assert scope.read(earlier) == fresh[earlier]

    try:
        with ThreadPoolExecutor(len(scopes)) as pool:
            writing = [pool.submit(write, scope) for scope in scopes]
            victim, second = processes
            begin(victim)
            while all(Path(reference).exists() for reference in expired[:10_000:500]) and victim.poll() is None:
                time.sleep(0.001)
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            if (root / LEASE).exists():  # it had no time to remove it
                age(root / LEASE, 2 * lease.STALE)
            begin(second)
            while second.poll() is None:
                store.sweep()
            assert second.returncode == 0
            done.set()
            for task in writing:
                task.result()
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
    assert {reference: store.scope_of(reference).read(reference) for reference in fresh} == fresh
    store.sweep()
    listed = {entry.reference for entry in store.list()}
    assert listed == set(fresh)
    assert len(files(root)) == 2 * len(fresh)


def test_the_settings_of_times_and_sizes_are_checked_and_survive_serialization(root: Path) -> None:
    store = FileSystemToolResultStore(root, ttl=timedelta(hours=1), max_bytes=3)
    again = FileSystemToolResultStore.from_dict(store.to_dict())
    assert again.to_dict() == store.to_dict()
    assert FileSystemToolResultStore.from_url(f"{root.as_uri()}?ttl=3600&max_bytes=3").to_dict() == store.to_dict()
    for wrong in (0, -1.0, True, "1", float("nan"), float("inf")):
        with pytest.raises(ConfigurationError):
            FileSystemToolResultStore(root, ttl=wrong)  # type: ignore[arg-type]
    for wrong in (0, -1, 1.5, True, "1"):
        with pytest.raises(ConfigurationError):
            FileSystemToolResultStore(root, max_bytes=wrong)  # type: ignore[arg-type]


def test_a_sweep_of_what_is_not_there_is_nothing_and_one_that_may_not_write_says_so(
    store: FileSystemToolResultStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.sweep() == SweepReport()
    store.write(key="a", content="x")
    assert store.scoped("nobody").sweep() == SweepReport()

    def refuse(*args: object) -> tuple[int, int]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Folder, "create", refuse)
    with pytest.raises(StoreUnavailableError) as caught:
        store.sweep()
    assert isinstance(caught.value, StoreError)
