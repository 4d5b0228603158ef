"""
Sweeping a scope: expired entries, and what killed writers left behind.

Everything is removed by itself, so a sweep may be stopped at any moment. The next one begins anew and finds less.
"""

import os
import stat
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from haybaler.errors import CorruptEntryError, StoreUnavailableError
from haybaler.stores.inventory import SweepReport
from haybaler.stores.names import is_name, is_scope_name
from haybaler_filesystem.aside import ASIDE, remove_if, settle_all
from haybaler_filesystem.entries import TEMPORARY
from haybaler_filesystem.folders import Folder, opened
from haybaler_filesystem.lease import Lease, is_stale
from haybaler_filesystem.lifetime import Lifetime
from haybaler_filesystem.sealing import SEALS, SealFolder

LEASE = f"{TEMPORARY}sweep"


@dataclass(frozen=True, slots=True)
class Sweep:
    """
    One sweep.

    :param lifetime: How long entries live.
    :param safe_age: Seconds after which what looks unfinished was left behind.
    :param stopped: Asked before each removal; true means that nothing more must be removed.
    """

    lifetime: Lifetime
    safe_age: float
    stopped: Callable[[], bool]

    def run(self, root: str, scope: tuple[str, ...]) -> SweepReport:
        """
        Sweep a scope and those inside it.

        :param root: The absolute path of the store's root.
        :param scope: The folders from there on, outermost first.
        :returns: What was removed.
        :raises OSError: If something could not be removed; calling again goes on.
        :raises StoreUnavailableError: If it was stopped.
        """
        with suppress(FileNotFoundError), opened(root, scope) as folder, Lease(folder, LEASE) as lease:
            return self._swept(folder, lease)
        return SweepReport()

    def _swept(self, folder: Folder, lease: Lease) -> SweepReport:
        report = SweepReport(elsewhere=not lease.holds())
        if report.elsewhere:
            return report
        expired = settle_all(folder, self.lifetime.is_over)
        for name in folder.names():
            if self.stopped():
                raise StoreUnavailableError("The operation was cancelled.")
            with suppress(FileNotFoundError):  # somebody else has removed it
                if is_name(name):
                    expired += self._expired(folder, name)
                elif is_scope_name(name):
                    report += self._inner(folder, name, lease)
                elif name.startswith(TEMPORARY):
                    report += self._left(folder, name)
            if not lease.holds():
                report += SweepReport(elsewhere=True)
                break
        report += SweepReport(expired=len(expired), bytes=sum(status.st_size for _, status in expired))
        return report + self._strays(folder, {name for name, _ in expired})

    def _expired(self, folder: Folder, name: str) -> list[tuple[str, os.stat_result]]:
        if self.lifetime.seconds is None:
            return []
        status = folder.status(name)
        if stat.S_ISREG(status.st_mode):
            _date_anew(folder, name, status)
            if self.lifetime.is_over(status) and (removed := remove_if(folder, name, self.lifetime.is_over)):
                return [(name, removed)]
        return []

    def _left(self, folder: Folder, name: str) -> SweepReport:
        status = folder.status(name)
        _date_anew(folder, name, status)
        held = name == LEASE and not is_stale(status)
        if held or not stat.S_ISREG(status.st_mode) or not self._is_old(status) or not folder.remove(name):
            return SweepReport()
        # With a seal, the file is there until that goes.
        return SweepReport(leftovers=1, bytes=status.st_size if status.st_nlink == 1 else 0)

    def _strays(self, folder: Folder, removed: Collection[str]) -> SweepReport:
        with suppress(FileNotFoundError), folder.child(SEALS, create=False) as child:
            seals = SealFolder(child)
            if removed:
                seals.clear(removed, unlinked=False)
            sizes = seals.clear_strays(folder, self._is_old)
            return SweepReport(leftovers=len(sizes), bytes=sum(sizes))
        return SweepReport()

    def _inner(self, parent: Folder, name: str, lease: Lease) -> SweepReport:
        idle = self._is_old(parent.status(name))
        try:
            with parent.child(name, create=False) as folder:
                report = self._swept(folder, lease)
                if idle and {SEALS, ASIDE}.issuperset(folder.names()):
                    # A writer who comes at this very moment makes them again.
                    for inside in (SEALS, ASIDE):
                        with suppress(OSError):
                            folder.remove_folder(inside)
        except CorruptEntryError:  # a link that somebody planted leads nowhere
            return SweepReport()
        if idle:
            with suppress(OSError):
                parent.remove_folder(name)
        return report

    def _is_old(self, status: os.stat_result) -> bool:
        return time.time() - status.st_mtime > self.safe_age


def _date_anew(folder: Folder, name: str, status: os.stat_result) -> None:
    """Let what comes from the future, since the clock was put back, live no longer than what comes from now."""
    if status.st_mtime > time.time():
        with suppress(OSError):
            folder.date(name)
