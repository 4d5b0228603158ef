"""What somebody plants in the folder of a file store leads nowhere: nothing outside is read, changed or made."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.case import each
from tests.hostile.corpus_plants import CONTENT, ENTRY, PLANTS, SECRET

from haybaler.errors import StoreError
from haybaler.stores.protocol import StoreEntry
from haybaler.workers import run_in_worker
from haybaler_filesystem import FileSystemToolResultStore

pytestmark = pytest.mark.anyio


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o640)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def scope(root: Path) -> Iterator[FileSystemToolResultStore]:
    with FileSystemToolResultStore(root) as store:
        store.scoped("victim").write(key=ENTRY, content=SECRET)
        run = store.scoped("run")
        run.write(key=ENTRY, content=CONTENT)
        yield run


def view(folder: Path) -> dict[str, Any]:
    """Return what is in a folder: names, contents and permissions."""
    return {
        path.name: (path.read_text(), path.stat().st_mode) if path.is_file() and not path.is_symlink() else None
        for path in sorted(folder.rglob("*"))
    }


async def streamed(scope: FileSystemToolResultStore, reference: str) -> str:
    return b"".join([piece async for piece in scope.stream_async(reference)]).decode()


Reader = Callable[[FileSystemToolResultStore, str], Any]
READERS: dict[str, Reader] = {
    "read": lambda scope, reference: scope.read_async(reference),
    "page": lambda scope, reference: scope.read_page_async(reference, limit=100),
    "stream": streamed,
}


@each(PLANTS)
async def test_what_is_planted_is_not_followed(
    case: Any, scope: FileSystemToolResultStore, root: Path, outside: Path
) -> None:
    reference = scope.reference(ENTRY)
    await run_in_worker(case.value, root / "@run", outside)
    before = await run_in_worker(view, outside)
    for reader in READERS.values():
        with suppress(StoreError):
            read = await reader(scope, reference)
            assert getattr(read, "content", read) == CONTENT
    for content in ("new", b"\xff"):
        (outcome,) = await scope.write_many_async([StoreEntry(ENTRY, content)])
        if not isinstance(outcome, StoreError):
            with suppress(StoreError):  # what stands in place of the seals stays, and then the entry counts as damaged
                assert await scope.read_async(outcome) == content
    with suppress(StoreError):
        await scope.delete_async([reference])
    with suppress(StoreError):
        await scope.delete_scope_async()
    assert await run_in_worker(view, outside) == before
    victim = scope.scoped("x")  # a way to the store of the victim, which has the same root
    victim._enter_scope(("@victim",))
    assert await victim.read_async(victim.reference(ENTRY)) == SECRET


@contextmanager
def changing(change: Callable[[], object]) -> Iterator[None]:
    """Change something again and again, in a thread, for the length of a `with` block."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            change()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
        assert not thread.is_alive()


class Swap:
    """Puts a link in place of a file or folder, and takes it away again."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.target = path, target
        self.done = 0

    def __call__(self) -> None:
        aside = self.path.with_name(f"aside-{self.done}")
        with suppress(OSError):
            self.path.rename(aside)
        with suppress(OSError):
            self.path.symlink_to(self.target)
            self.done += 1
            self.path.unlink()
        with suppress(OSError):
            aside.rename(self.path)


@pytest.mark.parametrize("what", ["the entry", "the folder of the scope", "the folder of the seals"])
def test_a_link_that_appears_between_the_look_and_the_opening_is_not_followed(
    what: str, scope: FileSystemToolResultStore, root: Path, outside: Path
) -> None:
    place = {"the entry": root / "@run" / ENTRY, "the folder of the scope": root / "@run"}.get(what)
    swap = Swap(place or root / "@run" / ".seals", outside / ENTRY if what == "the entry" else outside)
    (outside / ENTRY).write_text(SECRET)
    (outside / "keep").write_text("kept")
    before = view(outside)
    reference = scope.reference(ENTRY)
    found = set()
    with changing(swap):
        for number in range(150):
            with suppress(StoreError):
                found.add(scope.read(reference))
            with suppress(StoreError):
                scope.write(key=ENTRY if what == "the entry" else f"{number}", content=CONTENT)
            with suppress(StoreError):
                scope.delete([scope.reference(f"{number}")])
            if number % 10 == 0:
                with suppress(StoreError):
                    scope.delete_scope()
                with suppress(StoreError):
                    scope.write(key=ENTRY, content=CONTENT)
    assert swap.done > 20
    assert found <= {CONTENT}
    assert view(outside) == before
