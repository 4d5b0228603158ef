"""`haybaler stores`: what it shows, what it does, and how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest
import typer
from tests.services.redis_servers import VALKEY, redis_server
from tests.services.s3_servers import BUCKET, ENVIRONMENT, s3_server

from haybaler.cli.commands import run
from haybaler.cli.exits import Exit, exit_of
from haybaler.cli.output import printable, without_urls
from haybaler.cli.start import main
from haybaler.errors import HaybalerError, InvalidReferenceError, StoreError
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler_filesystem import FileSystemToolResultStore
from haybaler_redis import RedisToolResultStore
from haybaler_s3 import S3ToolResultStore

ROOT = Path(__file__).parents[2]
SECRET = "hunter2%40x"


@pytest.fixture
def store(tmp_path: Path) -> FileSystemToolResultStore:
    return FileSystemToolResultStore(tmp_path / "results")


@pytest.fixture
def url(store: FileSystemToolResultStore) -> str:
    return Path(store.root).as_uri()


class Shown:
    """Runs commands and keeps what they showed."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capfd = capfd
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        code = run(["stores", *arguments])
        self.out, self.err = self._capfd.readouterr()
        return code

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def shown(capfd: pytest.CaptureFixture[str]) -> Shown:
    return Shown(capfd)


def test_ls_shows_what_is_below_a_scope(shown: Shown, store: FileSystemToolResultStore, url: str) -> None:
    top = store.write(key="a", content="é")
    inner = store.scoped("user/run").write(key="b.png", content=b"\x89PNG")
    assert shown("ls", url) == Exit.OK
    pattern = r" +(\d+)  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  (text|binary) +(\S+)"
    found = {match.groups() for match in map(re.compile(pattern).fullmatch, shown.out.splitlines()) if match}
    assert found == {("2", "text", top), ("4", "binary", inner)}
    assert shown("ls", url, "--scope", "user", "--json") == Exit.OK
    (entry,) = shown.lines
    assert (entry["reference"], entry["bytes"], entry["kind"]) == (inner, 4, "binary")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry["written"])
    assert shown("ls", url, "--scope", "nobody") == Exit.OK
    assert (shown.out, shown.err) == ("", "")


def test_cat_writes_contents_raw_also_of_inner_scopes(
    store: FileSystemToolResultStore, url: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    contents: list[str | bytes] = ["héllo\r\n", b"\x00\xff\x1b[31m\n", "lone \ud800"]
    references = [store.scoped("a/b").write(key=str(n), content=content) for n, content in enumerate(contents)]
    assert run(["stores", "cat", url, *references]) == Exit.OK
    data = b"".join(c if isinstance(c, bytes) else c.encode("utf-8", "surrogatepass") for c in contents)
    assert capfdbinary.readouterr() == (data, b"")


def test_stat_tells_entries_and_what_is_not_there_has_its_own_exit_code(
    shown: Shown, store: FileSystemToolResultStore, url: str
) -> None:
    reference = store.scoped("a").write(key="x", content="12345")
    assert shown("stat", url, reference, "--json") == Exit.OK
    assert shown.lines[0]["bytes"] == 5
    for name in ("stat", "cat"):
        assert shown(name, url, store.reference("absent")) == Exit.NOT_FOUND
        assert shown.err.startswith("haybaler: Could not ")
        assert shown(name, url, "/etc/passwd") == Exit.USAGE
        assert shown(name, url, reference, "--scope", "b") == Exit.USAGE
    assert shown.out == ""


def test_damage_and_unavailability_have_their_own_exit_codes(
    shown: Shown, store: FileSystemToolResultStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = store.write(key="x", content="12345")
    Path(reference).write_text("1234")
    assert shown("cat", url, reference) == Exit.DAMAGED

    def fail(*args: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FileSystemToolResultStore, "_get", fail)
    assert shown("cat", url, reference) == Exit.UNAVAILABLE
    assert shown.err == "haybaler: Could not read an entry: Input/output error.\n"


def test_rm_removes_entries_and_asks_before_it_removes_a_scope(
    shown: Shown, store: FileSystemToolResultStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store.write(key="kept", content="x")
    gone = [store.scoped("a").write(key=key, content="x") for key in ("1", "2", "3")]
    assert shown("rm", url, gone[0], store.reference("absent")) == Exit.OK
    assert shown("rm", url, gone[1], "/etc/passwd") == Exit.USAGE  # nothing of it is done
    assert shown("rm", url, "--scope", "a") == Exit.USAGE
    assert "--yes" in shown.err
    assert [Path(reference).exists() for reference in gone] == [False, True, True]
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    asked: list[str] = []
    answers = [True, False]

    def confirm(text: str, *, err: bool) -> bool:
        asked.append(text)
        return answers.pop()

    monkeypatch.setattr(typer, "confirm", confirm)
    for code in (Exit.UNCONFIRMED, Exit.OK):
        assert shown("rm", url, "--scope", "a\x1b[2J") == code
    assert asked == ["Remove everything in scope 'a\\x1b[2J'?"] * 2
    assert shown("rm", url, "--scope", "a", "--yes", "--json") == Exit.OK
    assert shown.lines == [{"entries": 2, "bytes": 2}]
    assert store.read(kept) == "x"
    assert shown("rm", url, "-y") == Exit.OK
    assert shown.out == "Removed 1 entries, 1 bytes.\n"


def test_sweep_removes_what_has_expired_by_the_time_to_live_in_the_url(
    shown: Shown, store: FileSystemToolResultStore, url: str
) -> None:
    old, new = store.scoped("a").write(key="old", content="123"), store.write(key="new", content="x")
    os.utime(old, (1, 1))
    assert shown("sweep", url) == Exit.OK
    assert shown.out == "Removed 0 expired entries and 0 leftovers, 0 bytes.\n"
    assert shown("sweep", f"{url}?ttl=60", "--scope", "a", "--json") == Exit.OK
    assert shown.lines == [{"expired": 1, "leftovers": 0, "bytes": 3, "elsewhere": False}]
    assert store.read(new) == "x"
    draft = Path(store.root, ".haybaler-tmp-x")
    draft.write_text("12345")
    os.utime(draft, (time.time() - 50, time.time() - 50))
    assert shown("sweep", url, "--safe-age", "100") == Exit.OK
    assert draft.exists()
    assert shown("sweep", url, "--safe-age", "10") == Exit.OK
    assert shown.out == "Removed 0 expired entries and 1 leftovers, 5 bytes.\n"
    assert shown("sweep", url, "--safe-age", "-1") == Exit.USAGE


class Talkative(InMemoryToolResultStore):
    """Somebody's store, whose names are not safe to show, and whose errors repeat everything."""

    @classmethod
    def from_url(cls, url: str) -> "Talkative":
        store = cls()
        store._location = "\x1b]0;title\x07[red]\u202e"
        store.url = url  # type: ignore[attr-defined]
        store._enter_scope = lambda names: None  # type: ignore[method-assign]
        store._put("a", "x")
        return store

    def _stat(self, path: str) -> Any:
        raise ValueError(f"cannot look at {self.url}")  # type: ignore[attr-defined]

    def _path(self, reference: object) -> str:
        if reference == "bug":
            raise ValueError(f"a bug at {self.url}")  # type: ignore[attr-defined]
        raise InvalidReferenceError("No.")

    def scope_of(self, reference: object) -> "Talkative":
        return self


def test_names_that_are_shown_can_neither_move_the_cursor_nor_turn_the_text_around(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haybaler.cli.places.store_from_url", Talkative.from_url)
    for arguments in (("ls", "any://x"), ("ls", "any://x", "--json")):
        assert shown(*arguments) == Exit.OK
        assert shown.out.removesuffix("\n").isprintable()
        assert shown.out.isascii()
    assert printable("a\nb\x9b\ud800é") == "a\\nb\\x9b\\ud800é"


def test_no_output_has_anything_of_a_url_that_may_be_a_password(
    shown: Shown, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = f"redis://user:{SECRET}@127.0.0.1:1/0"
    for arguments, code in (
        (("ls", hostile + "?retries=0"), Exit.UNAVAILABLE),
        (("ls", hostile + "?wrong=1"), Exit.USAGE),
        (("ls", f"redis://user:{SECRET}?x@host"), Exit.USAGE),
        (("ls", f"nothing://user:{SECRET}@host"), Exit.USAGE),
        (("ls", url, hostile), Exit.USAGE),
        ((hostile,), Exit.USAGE),
        (("ls", f"user:{SECRET}@host"), Exit.USAGE),
        (("ls", url, f"{SECRET}@host"), Exit.USAGE),
        (("stat", hostile + "?retries=0", hostile), Exit.UNAVAILABLE),
        (("rm", url, hostile), Exit.USAGE),
        (("sweep", hostile + "?retries=0", "--safe-age", "x"), Exit.USAGE),
    ):
        assert shown(*arguments) == code, arguments
        assert SECRET not in shown.out + shown.err
        assert "hunter2" not in shown.out + shown.err
        assert shown.err.count("\n") == 1
    monkeypatch.setattr("haybaler.cli.places.store_from_url", Talkative.from_url)
    assert shown("stat", hostile, "bug") == Exit.FAILED
    assert shown.err == "haybaler: Unexpected ValueError.\n"


def test_a_url_may_stand_in_an_environment_variable(
    shown: Shown, store: FileSystemToolResultStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(key="a", content="x")
    monkeypatch.setenv("RESULTS", url)
    assert shown("ls", "env:RESULTS") == Exit.OK
    assert shown.out.count("\n") == 1
    assert shown("ls", "env:NOTHING_OF_THAT_NAME") == Exit.USAGE


def test_a_store_that_cannot_do_it_says_so(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    class Little:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr("haybaler.cli.places.store_from_url", lambda url: Little())
    for arguments in (("ls", "x"), ("stat", "x", "y"), ("rm", "x", "y"), ("rm", "x", "-y"), ("sweep", "x")):
        assert shown(*arguments) == Exit.FAILED
        assert "Little has no `" in shown.err


def test_help_names_every_command_and_a_mistake_is_one_line(shown: Shown) -> None:
    assert shown("--help") == Exit.OK
    assert all(f" {name} " in shown.out for name in ("ls", "cat", "stat", "rm", "sweep"))
    for wrong in (("ls",), ("nothing",), ("ls", "x", "--nothing"), ("cat", "memory://")):
        assert shown(*wrong) == Exit.USAGE
        assert shown.err.count("\n") == 1
    assert run(["--version"]) == Exit.OK


def test_every_error_has_an_exit_code_that_the_document_explains() -> None:
    document = (ROOT / "docs/command-line.md").read_text(encoding="utf-8")
    rows = {int(code) for code in re.findall(r"^\| `(\d+)` +\|", document, re.MULTILINE)}
    assert rows == set(map(int, Exit))
    assert exit_of(HaybalerError()) == exit_of(StoreError()) == Exit.FAILED
    assert without_urls("at redis://:x@y z") == "at redis://... z"


def haybaler(*arguments: str, **options: Any) -> "subprocess.Popen[bytes]":
    code = "from haybaler.cli.start import main; main()"
    return subprocess.Popen([sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, **options)


def test_a_large_entry_is_written_whole_and_a_reader_who_goes_away_ends_it_quietly(
    store: FileSystemToolResultStore, url: str
) -> None:
    reference = store.write(key="a", content="x" * 1_000_000)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}  # then one call writes what the pipe takes
    leaving, staying = (
        haybaler("stores", "cat", url, reference, stderr=subprocess.PIPE, env=environment) for _ in range(2)
    )
    assert leaving.stdout is not None
    assert leaving.stdout.read(10) == b"x" * 10
    leaving.stdout.close()
    assert staying.communicate() == (b"x" * 1_000_000, b"")
    _, err = leaving.communicate()
    assert (leaving.returncode, err) == (Exit.UNREAD, b"")


def test_an_interruption_has_its_own_exit_code(tmp_path: Path) -> None:
    # Where the tests run in the background of a shell, it has told them to ignore this signal.
    script = """
import signal, sys, time
from haybaler.cli.commands import run
from haybaler_filesystem import FileSystemToolResultStore

def wait(self, path):
    print("reading", flush=True)
    time.sleep(60)

FileSystemToolResultStore._get = wait
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(run(["stores", "cat", "file:///nowhere", "/nowhere/a"]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"reading\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert (process.returncode, err) == (Exit.INTERRUPTED, b"haybaler: Interrupted.\n")


def test_without_its_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "haybaler.cli.commands")
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == Exit.USAGE
    assert "haybaler[cli]" in capfd.readouterr().err


def test_a_redis_server_with_a_password_is_looked_after_and_a_wrong_password_is_refused(
    shown: Shown, prefix: str
) -> None:
    with redis_server(VALKEY, password="hunter2") as server:
        url = f"redis://:hunter2@127.0.0.1:{server.port}?prefix={prefix}&ttl=600"
        with RedisToolResultStore.from_url(url) as store:
            reference = store.scoped("run").write(key="a", content="hello")
        assert shown("ls", url, "--json") == Exit.OK
        assert [(entry["reference"], entry["bytes"], entry["kind"]) for entry in shown.lines] == [
            (reference, 5, "text")
        ]
        assert shown("cat", url, reference) == Exit.OK
        assert shown.out == "hello"
        assert shown("sweep", url) == Exit.OK
        assert shown("rm", url, "--scope", "run", "-y") == Exit.OK
        assert shown("stat", url, reference) == Exit.NOT_FOUND
        wrong = url.replace("hunter2", "hunter3")
        assert shown("ls", wrong) == Exit.REFUSED
        assert "hunter" not in shown.out + shown.err


def test_an_s3_server_is_looked_after(shown: Shown, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with s3_server() as server:
        url = f"s3://{BUCKET}/{prefix}?endpoint_url=http://127.0.0.1:{server.port}&attempts=1&ttl=600"
        with S3ToolResultStore.from_url(url) as store:
            reference = store.scoped("run").write(key="a", content="hello")
        assert shown("ls", url, "--json") == Exit.OK
        assert [(entry["reference"], entry["bytes"], entry["kind"]) for entry in shown.lines] == [(reference, 5, None)]
        assert shown("cat", url, reference) == Exit.OK
        assert shown.out == "hello"
        assert shown("sweep", url) == Exit.OK
        assert shown("rm", url, reference) == Exit.OK
        assert shown("cat", url, reference) == Exit.NOT_FOUND
    assert shown("ls", url) == Exit.UNAVAILABLE


@pytest.fixture
def prefix() -> str:
    return "test-cli"
