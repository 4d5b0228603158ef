import traceback
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.stores.examples import SyncOnlyStore

from haybaler.errors import ConfigurationError
from haybaler.stores import registry
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.registry import store_from_url
from haybaler.stores.url import boolean, parse_store_url

OPTIONS: dict[str, Callable[[str], Any]] = {"references": str, "fsync": boolean, "ttl": int}


def install(monkeypatch: pytest.MonkeyPatch, **classes: str) -> None:
    points = [EntryPoint(name, value, registry.GROUP) for name, value in classes.items()]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


def test_the_memory_store_is_installed() -> None:
    assert type(store_from_url("memory://")) is InMemoryToolResultStore
    assert type(store_from_url("MEMORY://")) is InMemoryToolResultStore


@pytest.mark.parametrize("url", ["memory://host", "memory:///path", "memory://?size=5", "memory://#a", "memory:"])
def test_the_memory_store_takes_no_settings(url: str) -> None:
    with pytest.raises(ConfigurationError):
        store_from_url(url)


def test_the_file_store_is_installed(tmp_path: Path) -> None:
    store = store_from_url(f"{tmp_path.as_uri()}?references=relative")
    reference = store.write(key="key.txt", content="content")
    assert str(tmp_path) not in reference
    assert store_from_url(f"{tmp_path.as_uri()}?references=relative").read(reference) == "content"


def test_a_scheme_is_served_by_the_class_of_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, sync="tests.stores.examples:SyncOnlyStore")
    store = store_from_url("sync:///a%20folder")
    assert isinstance(store, SyncOnlyStore)
    assert store.to_dict()["init_parameters"] == {"root": "/a folder"}


def test_an_unknown_scheme_names_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, sync="a:B", memory="c:D")
    with pytest.raises(
        ConfigurationError, match=r"No store for other:// is installed; installed: memory://, sync://\."
    ):
        store_from_url("other://host")


def test_an_unknown_scheme_of_haybalers_own_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with pytest.raises(ConfigurationError, match=r"installed: none\. Install haybaler\[filesystem\]\."):
        store_from_url("file:///folder")


def test_a_class_that_cannot_be_imported_is_reported_with_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, broken="no_such_module:Store")
    with pytest.raises(ConfigurationError, match="no_such_module:Store") as caught:
        store_from_url("broken://user:secret@host")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_an_entry_point_without_from_url_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, json="json:JSONDecoder")
    with pytest.raises(ConfigurationError, match="has no class method `from_url`"):
        store_from_url("json://")


def test_one_class_found_twice_is_one_class_and_two_are_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = EntryPoint("memory", "haybaler.stores.memory:InMemoryToolResultStore", registry.GROUP)
    other = EntryPoint("memory", "other:Store", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [memory, memory])
    assert type(store_from_url("memory://")) is InMemoryToolResultStore
    monkeypatch.setattr(registry, "entry_points", lambda group: [memory, other])
    with pytest.raises(ConfigurationError, match="Several classes claim memory://"):
        store_from_url("memory://")


@pytest.mark.parametrize(
    "url", ["", "memory", "memory:/x", "://", "/a/path", "1a://", "a b://", "memory://\n", "a\x00://"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"form `scheme://\.\.\.`"):
        store_from_url(url)


def test_a_url_is_taken_apart_and_decoded() -> None:
    url = parse_store_url(
        "FILE://user:pw@host:1/a%20b/%C3%A9+c?references=relative&fsync=true&ttl=60", schemes=["file"], options=OPTIONS
    )
    assert (url.scheme, url.authority, url.path) == ("file", "user:pw@host:1", "/a b/é+c")
    assert url.options == {"references": "relative", "fsync": True, "ttl": 60}
    assert "pw" not in repr(url)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {}),
        ("?", {}),
        ("?references=", {"references": ""}),
        ("?references=a%26b%3Dc", {"references": "a&b=c"}),
        ("?references=a=b+c", {"references": "a=b+c"}),
        ("?fsync=false", {"fsync": False}),
    ],
)
def test_options_are_decoded_and_converted(query: str, options: dict[str, Any]) -> None:
    assert parse_store_url("file:///x" + query, schemes=["file"], options=OPTIONS).options == options


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://host", "must begin with file://"),
        ("file:///x?unknown=1", "unknown option 'unknown'; known options: fsync, references, ttl"),
        ("file:///x?References=a", "unknown option 'References'"),
        ("file:///x?ttl=1&ttl=2", "gives the option 'ttl' twice"),
        ("file:///x?ttl=soon", "option 'ttl' has a value that is not allowed"),
        ("file:///x?fsync=True", "option 'fsync' has a value that is not allowed"),
        ("file:///x?ttl", "option 'ttl' has a value that is not allowed"),
        ("file:///x?&ttl=1", "unknown option ''"),
        ("file:///x#part", "no fragment"),
        ("file:///x#", "no fragment"),
        ("file:///x%2", "must begin an escape"),
        ("file:///x%zz", "must begin an escape"),
        ("file:///x?references=%", "must begin an escape"),
        ("file:///x%ff", "must be UTF-8"),
        ("file:///x%00", "control characters"),
        ("file:///x?references=a%0Ab", "control characters"),
        ("file://[::1/x", "malformed"),
    ],
)
def test_a_malformed_url_is_refused_with_the_reason(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_store_url(url, schemes=["file"], options=OPTIONS)


@pytest.mark.parametrize(
    "url",
    [
        "file://user:hunter2@host/x?unknown=1",
        "file://user:hunter2@host/x?ttl=hunter2",
        "file://user:hunter2@host/x#a",
        "file://user:hunter2@[host/x",
        "file://user:hunter2\u2100@host/x",  # urlsplit repeats such a host in its error
        "file://user:?hunter2=a@host/x",
        "file://user:a?hunter2&b@host/x",
        "file://user:#hunter2@host/x",
        "file://user:hunter2%@host/%",
        "other://user:hunter2@host/x",
        "hunter2@host",
        "nowhere://user:hunter2@host",
    ],
)
@pytest.mark.parametrize("read", [lambda url: parse_store_url(url, schemes=["file"], options=OPTIONS), store_from_url])
def test_no_credential_is_repeated_by_an_error(url: str, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, file="haybaler.stores.memory:InMemoryToolResultStore")
    with pytest.raises(ConfigurationError) as caught:
        read(url)
    shown = "".join(traceback.format_exception_only(caught.value)) + str(caught.value.__cause__)
    assert "hunter2" not in shown
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
