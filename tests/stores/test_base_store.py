"""What the author of a store, and whoever serializes one, meets in the base class."""

import asyncio
import json
from typing import Any

import pytest
from tests.stores.examples import AsyncOnlyStore, SyncOnlyStore

from haybaler.errors import (
    AsyncOnlyStoreError,
    ConfigurationError,
    CorruptEntryError,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content
from haybaler.stores.memory import InMemoryToolResultStore
from haybaler.stores.names import MAX_NAME, encode_name
from haybaler.stores.place import MAX_REFERENCE
from haybaler.stores.protocol import StoreEntry, StorePage
from haybaler.testing.corpus import hostile_references


class Failing(BaseToolResultStore):
    """Raises what it is told to, in every operation."""

    def __init__(self, error: Exception, location: str = "failing/") -> None:
        super().__init__(location=location)
        self.error = error
        self.touched: list[str] = []

    def _fail(self, path: str) -> Any:
        self.touched.append(path)
        raise self.error

    def _put(self, path: str, content: Content) -> None:
        if content != "good":
            self._fail(path)

    def _get(self, path: str) -> Content:
        content: Content = self._fail(path)
        return content

    def _remove(self, path: str) -> None:
        self._fail(path)


class FailingAsync(Failing):
    async def _put_async(self, path: str, content: Content) -> None:
        self._put(path, content)

    async def _get_async(self, path: str) -> Content:
        return self._get(path)

    async def _remove_async(self, path: str) -> None:
        self._remove(path)


class Located(InMemoryToolResultStore):
    """A store whose place is given, so that two instances agree on references."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self._location = location
        self._enter_scope(())

    def _settings(self) -> dict[str, Any]:
        return {"location": self._location}


@pytest.mark.parametrize("missing", ["_put", "_get", "_remove"])
def test_a_class_without_either_colour_of_an_operation_is_refused_when_it_is_defined(missing: str) -> None:
    methods = {name: lambda self, *_: None for name in ("_put", "_get", "_remove") if name != missing}
    with pytest.raises(ConfigurationError, match=f"Incomplete must define `{missing}` or `{missing}_async`"):
        type("Incomplete", (BaseToolResultStore,), methods)
    complete = type("Complete", (BaseToolResultStore,), {**methods, f"{missing}_async": lambda self, *_: None})
    assert issubclass(complete, BaseToolResultStore)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(28, "No space left on device"), StoreFullError),
        (ConnectionRefusedError(), StoreUnavailableError),
        (TimeoutError(), StoreUnavailableError),
        (KeyError("secret"), StoreError),
        (UnicodeDecodeError("utf-8", b"secret", 0, 1, "secret"), StoreError),
        (CorruptEntryError("damaged"), CorruptEntryError),
    ],
)
@pytest.mark.parametrize("store_class", [Failing, FailingAsync])
def test_errors_of_a_backend_are_mapped_and_chained(
    store_class: type[Failing], error: Exception, kind: type[StoreError]
) -> None:
    store = store_class(error)
    reference = store.reference("key")
    calls: list[Any] = [
        lambda: store.write(key="key", content="bad"),
        lambda: store.read(reference),
        lambda: store.read_page(reference, limit=5),
        lambda: store.delete([reference]),
        lambda: asyncio.run(store.write_async(key="key", content="bad")),
        lambda: asyncio.run(store.read_async(reference)),
        lambda: asyncio.run(store.read_page_async(reference, limit=5)),
        lambda: asyncio.run(store.delete_async([reference, store.reference("other")])),
    ]
    for call in calls:
        with pytest.raises(StoreError) as caught:
            call()
        assert type(caught.value) is kind
        assert "secret" not in str(caught.value)
        assert caught.value is error or caught.value.__cause__ is error


def test_a_missing_folder_is_absence_for_a_reader_and_an_outage_for_a_writer() -> None:
    store = Failing(FileNotFoundError(2, "No such file or directory"))
    with pytest.raises(ReferenceNotFoundError):
        store.read(store.reference("key"))
    with pytest.raises(StoreUnavailableError):
        store.write(key="key", content="bad")


@pytest.mark.parametrize("store_class", [Failing, FailingAsync])
def test_an_error_of_one_entry_stays_in_its_own_outcome(store_class: type[Failing]) -> None:
    store = store_class(OSError())
    entries = [StoreEntry("a", "good"), StoreEntry("b", "bad"), StoreEntry("c", "good")]
    for outcomes in (store.write_many(entries), asyncio.run(store.write_many_async(entries))):
        assert outcomes[::2] == [store.reference("a"), store.reference("c")]
        assert isinstance(outcomes[1], StoreUnavailableError)
        assert outcomes[1].__cause__ is store.error


class WrongBatch(InMemoryToolResultStore):
    """A batch by an author who broke the contract."""

    answer: Any = None

    def _put_many(self, items: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [[], [None], [None] * 3, None, 5, ValueError("whole batch")])
def test_a_batch_that_an_author_got_wrong_is_a_failure_of_every_entry(answer: Any) -> None:
    store = WrongBatch()
    store.answer = answer
    entries = [StoreEntry("a", "1"), StoreEntry("b", "2")]
    for outcomes in (store.write_many(entries), asyncio.run(store.write_many_async(entries))):
        assert [isinstance(outcome, StoreError) for outcome in outcomes] == [True, True]


@pytest.mark.parametrize("call", ["write", "read", "read_page", "delete"])
def test_a_synchronous_call_to_an_asynchronous_store_names_the_way_out(call: str) -> None:
    store = AsyncOnlyStore()
    reference = store.reference("key")
    calls: dict[str, Any] = {
        "write": lambda: store.write(key="key", content="content"),
        "read": lambda: store.read(reference),
        "read_page": lambda: store.read_page(reference, limit=5),
        "delete": lambda: store.delete([reference]),
    }
    with pytest.raises(AsyncOnlyStoreError, match=r"AsyncOnlyStore has no synchronous .*`_async`"):
        calls[call]()


def test_a_location_that_leaves_no_room_for_a_name_is_refused() -> None:
    longest = "x" * (MAX_REFERENCE - MAX_NAME)
    assert len(Failing(OSError(), longest).reference("K" * 10_000 + ".0123456789")) == MAX_REFERENCE
    with pytest.raises(ConfigurationError, match="at most 512 characters"):
        Failing(OSError(), longest + "x")


@pytest.mark.parametrize("location", ["a\nb/", "a\x00/", "\ud800/", "\u2028/", "\x1b[31m/"])
def test_a_location_with_control_characters_is_refused(location: str) -> None:
    with pytest.raises(ConfigurationError, match="printable"):
        Failing(OSError(), location)


def test_scopes_nest_until_there_is_no_room_for_a_name() -> None:
    store = InMemoryToolResultStore()
    while len(store.reference("")) + len("@user/") + MAX_NAME <= MAX_REFERENCE + len(encode_name("")):
        store = store.scoped("user")
    assert len(store.reference("K" * 100 + ".0123456789")) <= MAX_REFERENCE
    with pytest.raises(ConfigurationError, match="shorter location or scope"):
        store.scoped("user")
    assert store.read(store.write(key="key", content="content")) == "content"


def test_a_scope_of_any_length_fits_when_it_has_few_parts() -> None:
    store = InMemoryToolResultStore().scoped("u" * 10_000 + "/" + "r" * 10_000)
    assert store.read(store.write(key="key", content="content")) == "content"


@pytest.mark.parametrize("scope", [None, 7, b"user", ("user", "run"), Failing])
def test_what_is_no_string_names_no_scope(scope: Any) -> None:
    with pytest.raises(ConfigurationError, match="A scope is a string"):
        InMemoryToolResultStore().scoped(scope)


def test_hostile_references_reach_no_backend() -> None:
    store = Failing(AssertionError())
    scoped = store.scoped("a")
    foreign = [scoped.reference("key"), InMemoryToolResultStore().reference("key"), store.reference("key")[1:]]
    for reference in [*hostile_references(store.reference("key")), *foreign]:
        for call in (store.read, lambda ref: store.delete([ref]), lambda ref: store.read_page(ref, limit=1)):
            with pytest.raises(InvalidReferenceError):
                call(reference)
    assert store.touched == []


def test_a_string_is_no_list_of_references() -> None:
    store = InMemoryToolResultStore()
    reference = store.write(key="key", content="content")
    with pytest.raises(InvalidReferenceError):
        store.delete(reference)
    assert store.read(reference) == "content"


@pytest.mark.parametrize(
    ("offset", "limit", "page"),
    [
        (0, 4, StorePage("0123", 0, 10)),
        (8, 4, StorePage("89", 8, 10)),
        (10, 4, StorePage("", 10, 10)),
        (99, 4, StorePage("", 10, 10)),
        (-4, 2, StorePage("67", 6, 10)),
        (-99, 2, StorePage("01", 0, 10)),
        (3, 0, StorePage("", 3, 10)),
        (3, -1, StorePage("", 3, 10)),
    ],
)
def test_a_page_is_cut_where_it_was_asked_for(offset: int, limit: int, page: StorePage) -> None:
    store = InMemoryToolResultStore()
    reference = store.write(key="key", content="0123456789")
    assert store.read_page(reference, offset=offset, limit=limit) == page
    assert asyncio.run(store.read_page_async(reference, offset=offset, limit=limit)) == page


def test_content_stays_out_of_representations() -> None:
    assert "secret" not in repr(StoreEntry("key", "secret"))
    assert "secret" not in repr(StorePage("secret", 0, 6))


def test_serialization_keeps_settings_and_scope() -> None:
    store = Located("here/").scoped("user/run")
    data = json.loads(json.dumps(store.to_dict()))
    again = Located.from_dict(data)
    assert data["init_parameters"] == {"location": "here/"}
    assert again.reference("key") == store.reference("key") == "here/@user/@run/key"
    assert again.to_dict() == store.to_dict()


def test_a_form_without_a_scope_is_the_whole_store() -> None:
    data = Located("here/").to_dict()
    del data["scope"]
    assert Located.from_dict(data).reference("key") == "here/key"


@pytest.mark.parametrize("scope", [[".."], ["@../../x"], "@a", [5], None, ["@" + "x" * 80] * 6])
def test_a_serialized_scope_cannot_leave_the_store(scope: Any) -> None:
    with pytest.raises(ConfigurationError):
        Located.from_dict({**Located("here/").to_dict(), "scope": scope})


def test_a_class_without_urls_says_so() -> None:
    with pytest.raises(ConfigurationError, match="Failing cannot be made from a URL"):
        Failing.from_url("failing://user:secret@host")


def test_a_synchronous_store_never_blocks_the_event_loop(tmp_path: Any) -> None:
    async def use() -> None:
        store = SyncOnlyStore(str(tmp_path))  # its file operations would be refused in the event loop's thread
        reference = await store.write_async(key="key", content="content")
        assert await store.read_async(reference) == "content"
        await store.delete_async([reference])

    asyncio.run(use())


def test_a_store_without_entries_is_true_and_counts_them() -> None:
    store = InMemoryToolResultStore()
    assert store
    assert len(store) == 0
    store.scoped("a").write(key="key", content="content")
    assert len(store) == 1
