"""One sweep of a scope at a time: a file that says that somebody is at it, and is worth nothing once it is old."""

import os
import time
from secrets import token_hex
from types import TracebackType
from typing import Self

from haybaler_filesystem.folders import Folder

# Seconds after which a lease that nobody has renewed is taken over: its sweep was killed, or hangs.
STALE = 60.0


class Lease:
    """
    The right to sweep a scope, for the length of a `with` block.

    It saves work and protects nothing: entries are safe from any number of sweeps, so it may be taken over by mistake,
    when a sweep is stopped for a minute or a clock jumps.

    :param folder: The folder of the scope.
    :param name: The name of the file.
    """

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder = folder
        self._name = name
        self._inode: int | None = None
        self._renewed = 0.0

    def __enter__(self) -> Self:
        try:
            self._inode = self._made(self._name)
        except FileExistsError:
            if self._is_stale():
                self._take_over()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_mine():
            self._folder.remove(self._name)

    def holds(self) -> bool:
        """
        Whether the lease is still one's own. Renews it now and then.

        :returns: False if somebody else had it from the beginning, or has taken it over.
        """
        if self._inode is None or time.monotonic() - self._renewed < STALE / 10:
            return self._inode is not None
        if not self._is_mine():
            self._inode = None
            return False
        self._renewed = time.monotonic()
        self._folder.date(self._name)
        return True

    def _made(self, name: str) -> int:
        descriptor, inode = self._folder.create(name, 0o600)
        os.close(descriptor)
        self._renewed = time.monotonic()
        return inode

    def _is_stale(self) -> bool:
        try:
            return is_stale(self._folder.status(self._name))
        except FileNotFoundError:
            return True

    def _take_over(self) -> None:
        # Of several that take it over, the last one has it; the others find out.
        own = f"{self._name}-{token_hex(8)}"
        self._inode = self._made(own)
        self._folder.replace(own, self._name)

    def _is_mine(self) -> bool:
        try:
            return self._inode is not None and self._folder.status(self._name).st_ino == self._inode
        except FileNotFoundError:
            return False


def is_stale(status: os.stat_result) -> bool:
    """
    Whether a lease is worth nothing any more.

    :param status: The status of its file.
    :returns: True also for one from the future, which was made before the clock was put back.
    """
    return abs(time.time() - status.st_mtime) > STALE
