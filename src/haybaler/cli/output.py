"""What the command line shows: nothing that a terminal would obey, and nothing of a URL that may be a credential."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any, Self

import typer
from rich.console import Console
from rich.text import Text

from haybaler.cli.exits import Exit
from haybaler.stores.inventory import StoredEntry

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)\S+")


def printable(text: str) -> str:
    """
    Return a text with everything escaped that a terminal might obey or hide.

    :param text: Any text, for example a name that a model chose.
    :returns: One line of printable characters; a character that is not printable is written as in Python.
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def without_urls(text: str) -> str:
    """Return a text with what follows the scheme of a URL left out, since it may be a password."""
    return _URL.sub(r"\1...", text)


def complain(text: str) -> None:
    """Tell on the error stream what went wrong."""
    sys.stderr.write(f"haybaler: {printable(text)}\n")


def say(text: str) -> None:
    """Write one line to the output, as it is, whatever its encoding can."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def write_raw(data: bytes) -> None:
    """Write bytes to the output, as they are; where Python does not buffer it, one call may write a part only."""
    sys.stdout.flush()
    rest = memoryview(data)
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) or 0 :]


def say_json(values: Any) -> None:
    """Write one line of JSON in ASCII, in which control characters are escaped."""
    say(json.dumps(values, default=_plain))


def of_entry(entry: StoredEntry) -> dict[str, Any]:
    """Return an entry as JSON has it."""
    return asdict(entry)


def line_of(entry: StoredEntry) -> str:
    """Return an entry as a line: size, time and kind in columns, then the reference."""
    written = f"{entry.written:%Y-%m-%dT%H:%M:%SZ}" if entry.written else "-"
    return f"{entry.bytes:>12}  {written:<20}  {entry.kind or '-':<6}  {printable(entry.reference)}"


def _plain(value: object) -> str:
    return f"{value:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(value, datetime) else str(value)


class Progress:
    """
    A line that says how far something has come, on a terminal only, and gone when it is done.

    :param what: What is being done.
    :param unless_shown: Whether the output itself shows it, if it goes to a terminal.
    """

    def __init__(self, what: str, *, unless_shown: bool = False) -> None:
        self._what = what
        self._console = Console(stderr=True)
        self._shown = self._console.is_terminal and not (unless_shown and sys.stdout.isatty())
        self._status = self._console.status(Text(what)) if self._shown else None
        self._count = 0

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def count(self) -> None:
        """Note one more."""
        self._count += 1
        if self._status is not None and self._count % 100 == 0:
            self._status.update(Text(f"{self._what}: {self._count:,}"))


@contextmanager
def to_its_end() -> Iterator[None]:
    """Have all of the output written inside; where whoever reads it has gone away, end quietly."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # What the interpreter still has to write at its end goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(Exit.UNREAD) from None
