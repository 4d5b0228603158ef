"""
Operations by name inside an open folder, which nothing that was planted in it can lead elsewhere.

The folder is held by a descriptor and links are not followed. Where the platform cannot do that (Windows), each
operation takes the whole path and looks before it opens.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from types import TracebackType
from typing import Self

from haybaler_filesystem.seals import corrupt

FOLDER_MODE = 0o700

DESCRIPTORS = {
    os.open,
    os.mkdir,
    os.unlink,
    os.rmdir,
    os.stat,
    os.link,
    os.rename,
} <= os.supports_dir_fd and os.listdir in os.supports_fd

_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
# Without O_NONBLOCK, opening a FIFO waits for its other end.
_READ = os.O_RDONLY | _NOFOLLOW | _BINARY | getattr(os, "O_NONBLOCK", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
# Opens whatever has a name, without touching it: links and FIFOs too, and without the right to read. Not everywhere.
_HOLD = getattr(os, "O_PATH", 0) and os.O_PATH | _NOFOLLOW

# How a link, a folder, a FIFO or a socket shows where a file or a folder was expected (EMLINK: a link, on FreeBSD).
_OTHER_KIND = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EMLINK})


# How a file system says that it has no hard links.
NO_LINKS = frozenset({
    errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL,
})  # fmt: skip


class Folder:
    """
    An open folder.

    :param path: Its path, used where there is no descriptor.
    :param descriptor: Its descriptor, closed with the folder; None where the platform has none for folders.
    """

    def __init__(self, path: str, descriptor: int | None) -> None:
        self._path = path
        self._descriptor = descriptor

    @classmethod
    def root(cls, path: str, *, create: bool) -> Self:
        """
        Open the folder at `path`, to which links may lead.

        :param path: An absolute path.
        :param create: Whether to make it, with the folders above it, where it is missing.
        :returns: The folder.
        """
        if create and not os.path.isdir(path):  # noqa: PTH112 - a string all along
            os.makedirs(path, FOLDER_MODE, exist_ok=True)  # noqa: PTH103
        return cls(path, os.open(path, _FOLDER) if DESCRIPTORS else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def child(self, name: str, *, create: bool) -> "Folder":
        """
        Open a folder in this one.

        :param name: Its name.
        :param create: Whether to make it where it is missing.
        :returns: The folder.
        :raises FileNotFoundError: If it is missing.
        :raises CorruptEntryError: If something else has the name, a link for example.
        """
        try:
            return self._child(name)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):
            os.mkdir(self._at(name), FOLDER_MODE, dir_fd=self._descriptor)
        return self._child(name)

    def _child(self, name: str) -> "Folder":
        path = os.path.join(self._path, name)  # noqa: PTH118 - a string all along
        if self._descriptor is None:
            if not stat.S_ISDIR(self.status(name).st_mode):
                raise corrupt()
            return Folder(path, None)
        try:
            return Folder(path, os.open(name, _FOLDER | _NOFOLLOW, dir_fd=self._descriptor))
        except OSError as error:
            _refuse_other_kind(error)
            raise

    def open_to_read(self, name: str) -> BufferedReader:
        """
        Open a file.

        :param name: Its name.
        :returns: The open file.
        :raises FileNotFoundError: If nothing has the name.
        :raises CorruptEntryError: If something else has the name: a link, a folder, a FIFO.
        """
        if self._descriptor is None and not stat.S_ISREG(self.status(name).st_mode):
            raise corrupt()
        try:
            descriptor = os.open(self._at(name), _READ, dir_fd=self._descriptor)
        except OSError as error:
            _refuse_other_kind(error)
            raise
        # Looked at after opening, since it could have changed in between.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise corrupt()
        return os.fdopen(descriptor, "rb")

    def create(self, name: str, mode: int) -> tuple[int, int]:
        """
        Create a file that nobody else can have.

        :param name: Its name.
        :param mode: Its permissions, whatever the process's umask.
        :returns: A descriptor to write to, which the caller closes, and the inode number.
        """
        descriptor = os.open(self._at(name), _CREATE, mode, dir_fd=self._descriptor)
        try:
            status = os.fstat(descriptor)
            if stat.S_IMODE(status.st_mode) != mode and hasattr(os, "fchmod"):
                os.fchmod(descriptor, mode)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status.st_ino

    def link(self, name: str, target: "Folder", new_name: str) -> None:
        """Give a file of this folder a second name in `target`."""
        os.link(
            self._at(name),
            target._at(new_name),  # noqa: SLF001 - another object of the class
            src_dir_fd=self._descriptor,
            dst_dir_fd=target._descriptor,  # noqa: SLF001
            follow_symlinks=self._descriptor is None,  # without descriptors only the default is portable
        )

    def replace(self, name: str, new_name: str) -> None:
        """Give a file of this folder another name in it, which it takes over from whatever file or link had it."""
        try:
            os.replace(self._at(name), self._at(new_name), src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
        except OSError as error:
            _refuse_other_kind(error)
            raise

    def move(self, name: str, target: "Folder", new_name: str) -> None:
        """Give a file of this folder another name in `target`, which nothing has there."""
        os.rename(
            self._at(name),
            target._at(new_name),  # noqa: SLF001 - another object of the class
            src_dir_fd=self._descriptor,
            dst_dir_fd=target._descriptor,  # noqa: SLF001
        )

    def date(self, name: str, descriptor: int | None = None) -> None:
        """Let a file, open or not, have been used now."""
        if descriptor is not None and os.utime in os.supports_fd:
            os.utime(descriptor)
        else:
            os.utime(self._at(name), dir_fd=self._descriptor, follow_symlinks=self._descriptor is None)

    def remove(self, name: str) -> bool:
        """Remove a file or link; return whether there was one."""
        try:
            os.unlink(self._at(name), dir_fd=self._descriptor)
        except FileNotFoundError:
            return False
        return True

    def remove_folder(self, name: str) -> None:
        """Remove a folder that is empty."""
        os.rmdir(self._at(name), dir_fd=self._descriptor)

    def status(self, name: str) -> os.stat_result:
        """Return the status of what has the name, without following a link."""
        return os.stat(self._at(name), dir_fd=self._descriptor, follow_symlinks=False)

    @contextmanager
    def held(self, name: str) -> Iterator[os.stat_result]:
        """
        Hold what has the name: until the block ends, no new file gets its inode number, even if it is removed.

        Without that, whoever looks at a file and then removes it by its name may remove a newer one, which got number
        and name meanwhile. Many file systems give a number that is free again to the next file. Where there is no
        `O_PATH` (macOS, Windows), the usual ones (APFS, NTFS) do not.

        :param name: Its name.
        :returns: Its status, without following a link.
        :raises FileNotFoundError: If nothing has the name.
        """
        if not _HOLD or self._descriptor is None:
            yield self.status(name)
            return
        descriptor = os.open(name, _HOLD, dir_fd=self._descriptor)
        try:
            yield os.fstat(descriptor)
        finally:
            os.close(descriptor)

    def has(self, name: str) -> bool:
        """Return whether anything has the name."""
        try:
            self.status(name)
        except FileNotFoundError:
            return False
        return True

    def names(self) -> list[str]:
        """Return the names of everything in the folder, in no order."""
        return os.listdir(self._path if self._descriptor is None else self._descriptor)  # noqa: PTH208

    def synchronize(self) -> None:
        """Wait until the names in the folder would survive a loss of power. Windows has no such call for folders."""
        if self._descriptor is not None:
            os.fsync(self._descriptor)

    def _at(self, name: str) -> str:
        return name if self._descriptor is not None else os.path.join(self._path, name)  # noqa: PTH118


@contextmanager
def opened(root: str, scope: tuple[str, ...]) -> Iterator[Folder]:
    """
    Open the folder of a scope.

    :param root: The absolute path of the store's root.
    :param scope: The folders from there on, outermost first.
    :returns: The folder.
    :raises FileNotFoundError: If it is missing.
    :raises CorruptEntryError: If something else is in the way, a link for example.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(Folder.root(root, create=False))
        for name in scope:
            folder = stack.enter_context(folder.child(name, create=False))
        yield folder


def _refuse_other_kind(error: OSError) -> None:
    if error.errno in _OTHER_KIND:
        raise corrupt() from error
