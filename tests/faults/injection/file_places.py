"""What can happen to files: to the disk, to permissions and to descriptors."""

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random

from tests.faults.injection.faults import Fault, Place

from haybaler_filesystem import FileSystemToolResultStore

ROOM = 64 * 1024 * 1024  # bytes of the small disk
NOBODY = 65_534

Effect = tuple[Callable[[Random], object], Callable[[], object]]  # strike and heal


@contextmanager
def _files(effect: Callable[[Path], Effect]) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="haybaler-") as folder, _small_disk(Path(folder)) as disk:
        strike, heal = effect(disk)
        store = FileSystemToolResultStore(disk / "results")
        yield Place(store, strike, heal, store.delete_scope)


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """A disk of its own where this process may mount one; otherwise a folder."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def _full(disk: Path) -> Effect:
    filler = disk / "filler"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def strike(chance: Random) -> None:
        if not os.path.ismount(disk):
            resource.setrlimit(resource.RLIMIT_FSIZE, (chance.choice([1, 20_000]), limits[1]))
            return
        left = chance.choice([0, 100_000])
        with filler.open("wb") as file:
            for _ in range(100):  # the runs write at the same time
                with suppress(OSError):
                    os.posix_fallocate(file.fileno(), 0, max(shutil.disk_usage(disk).free - left, 1))
                    break

    def heal() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        filler.unlink(missing_ok=True)

    return strike, heal


def _forbidden(disk: Path) -> Effect:
    results = disk / "results"

    def strike(_: Random) -> None:
        if os.geteuid() == 0:
            os.seteuid(NOBODY)  # permissions do not stop root
        else:
            results.chmod(0o500)

    def heal() -> None:
        if os.getuid() == 0:
            os.seteuid(0)
        else:
            results.chmod(0o700)

    return strike, heal


def _no_descriptors(_: Path) -> Effect:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        lambda _: resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard)),
        lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
    )


FILE_FAULTS = [
    Fault("files", "a full disk", partial(_files, _full), delay=1.0),
    Fault("files", "no permission", partial(_files, _forbidden), delay=1.0),
    Fault("files", "too many open files", partial(_files, _no_descriptors), delay=1.0),
]
