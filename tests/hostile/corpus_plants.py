"""What somebody who can write into the folder of a file store may plant in it."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

from tests.hostile.case import Case, corpus

ENTRY = "entry.txt"
CONTENT = "the content of the entry"
SECRET = "the secret outside"

# Given the scope's folder, in which the entry stands, and a folder outside the root with the file `secret`.
Plant = Callable[[Path, Path], object]


def _instead(path: Path, make: Callable[[Path], object]) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name("moved away"))
    else:
        path.unlink()
    make(path)


def _link_to_link(path: Path, out: Path) -> None:
    (out / "link").symlink_to(out / "secret")
    path.symlink_to(out / "link")


def _full_folder(path: Path) -> None:
    path.mkdir()
    (path / "x").write_text("x")


def _socket(path: Path) -> None:
    # The path of a socket is short, whatever the folder.
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


def _seal(folder: Path) -> Path:
    return next((folder / ".seals").iterdir())


PLANTS: tuple[Case[Plant], ...] = corpus(
    {
        "a link in place of the entry": {
            "to a file": lambda own, out: _instead(own / ENTRY, lambda p: p.symlink_to(out / "secret")),
            "to a file, relative": lambda own, out: _instead(
                own / ENTRY, lambda p: p.symlink_to(os.path.relpath(out / "secret", own))
            ),
            "to a folder": lambda own, out: _instead(own / ENTRY, lambda p: p.symlink_to(out)),
            "to nothing": lambda own, out: _instead(own / ENTRY, lambda p: p.symlink_to(out / "new")),
            "to itself": lambda own, out: _instead(own / ENTRY, lambda p: p.symlink_to(p)),
            "to a link": lambda own, out: _instead(own / ENTRY, lambda p: _link_to_link(p, out)),
            "to the machine's passwords": lambda own, out: _instead(own / ENTRY, lambda p: p.symlink_to("/etc/passwd")),
            "to memory": lambda own, out: _instead(own / ENTRY, lambda p: p.symlink_to("/proc/self/mem")),
            "to an endless device": lambda own, out: _instead(own / ENTRY, lambda p: p.symlink_to("/dev/zero")),
            "to another scope": lambda own, out: _instead(own / ENTRY, lambda p: p.symlink_to("../@victim/entry.txt")),
        },
        "a hard link in place of the entry": {
            "to a file outside": lambda own, out: _instead(own / ENTRY, lambda p: p.hardlink_to(out / "secret")),
            "to another scope": lambda own, out: _instead(
                own / ENTRY, lambda p: p.hardlink_to(own.parent / "@victim" / ENTRY)
            ),
            "to a seal's other file": lambda own, out: _instead(
                own / ENTRY, lambda p: p.hardlink_to(_seal(own.parent / "@victim"))
            ),
        },
        "what is no file": {
            "folder": lambda own, out: _instead(own / ENTRY, Path.mkdir),
            "folder with a file": lambda own, out: _instead(own / ENTRY, _full_folder),
            "FIFO": lambda own, out: _instead(own / ENTRY, os.mkfifo),
            "socket": lambda own, out: _instead(own / ENTRY, _socket),
        },
        "the folder of the scope": {
            "link outside": lambda own, out: _instead(own, lambda p: p.symlink_to(out)),
            "link to another scope": lambda own, out: _instead(own, lambda p: p.symlink_to("@victim")),
            "link to nothing": lambda own, out: _instead(own, lambda p: p.symlink_to(out / "new")),
            "file": lambda own, out: _instead(own, lambda p: p.write_text("x")),
            "FIFO": lambda own, out: _instead(own, os.mkfifo),
        },
        "the folder of the seals": {
            "link outside": lambda own, out: _instead(own / ".seals", lambda p: p.symlink_to(out)),
            "link to another scope's": lambda own, out: _instead(
                own / ".seals", lambda p: p.symlink_to("../@victim/.seals")
            ),
            "file": lambda own, out: _instead(own / ".seals", lambda p: p.write_text("x")),
            "FIFO": lambda own, out: _instead(own / ".seals", os.mkfifo),
            "gone": lambda own, out: (own / ".seals").rename(out / "seals"),
            "seal is a link outside": lambda own, out: _instead(_seal(own), lambda p: p.symlink_to(out / "secret")),
            "seal is a folder": lambda own, out: _instead(_seal(own), Path.mkdir),
            "strange names": lambda own, out: [
                (own / ".seals" / name).write_text("x") for name in ("", "x.t.1", "...", "a\nb", "\udcff") if name
            ],
        },
    }
)
