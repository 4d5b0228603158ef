"""Nobody without the key reads, changes or swaps anything, and nothing tells the key."""

import asyncio
import base64
import json
import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from haystack.utils import Secret
from tests.stores.examples import AsyncOnlyStore
from tests.stores.wrappers.around import ENVIRONMENT, NEW_KEY, OLD_KEY, encrypted, noting_threads
from tests.stores.wrappers.conftest import Check

from haybaler import CorruptEntryError, EncryptedStore, InMemoryToolResultStore, StoreEntry, StoreError
from haybaler.errors import (
    ConfigurationError,
    InvalidReferenceError,
    NotSerializableError,
    ReferenceNotFoundError,
    StoreConfigurationError,
    StoreUnavailableError,
)
from haybaler.testing.access import ASYNC, Access, run_law

pytestmark = pytest.mark.usefixtures("environment")

NEW, OLD = Secret.from_env_var(NEW_KEY), Secret.from_env_var(OLD_KEY)
HEADER = 6 + 1 + 8 + 32 + 12 + 1 + 4  # mark, kind of record, key id, salt, nonce, text or bytes, checksum


@pytest.mark.parametrize(
    "content", ["", "secret text", b"", b"secret bytes", "é" * 300_000], ids=["", "text", "b", "bytes", "long"]
)
def test_nothing_of_a_content_is_in_the_store_and_it_comes_back_as_it_was(check: Check, content: str | bytes) -> None:
    inner = InMemoryToolResultStore()

    async def law(access: Access) -> None:
        reference = await access.write("key", content)
        assert reference == inner.reference("key")
        stored = inner.read(reference)
        assert isinstance(stored, bytes)
        data = content.encode() if isinstance(content, str) else content
        assert len(stored) == HEADER + len(data) + 16
        assert not data or data[:6] not in stored
        read = await access.read(reference)
        assert (type(read), read) == (type(content), content)

    check(encrypted(inner), law)


def test_equal_contents_never_look_equal_and_no_nonce_is_used_twice_with_a_key() -> None:
    inner = InMemoryToolResultStore()
    store = encrypted(inner)
    references = store.write_many([StoreEntry(str(number), "equal") for number in range(2_000)])
    stored = [bytes(inner.read(str(reference))) for reference in references]  # type: ignore[arg-type]
    assert len({record[15:59] for record in stored}) == 2_000  # salt and nonce
    assert len({record[15:47] for record in stored}) == 2_000  # the salt alone, and so the key of the entry
    assert len({record[HEADER:] for record in stored}) == 2_000


def test_a_change_of_any_byte_is_damage(check: Check) -> None:
    inner = InMemoryToolResultStore()

    async def law(access: Access) -> None:
        reference = await access.write("key", "secret")
        good = inner.read(reference)
        assert isinstance(good, bytes)
        for index in range(len(good)):
            for bit in (1, 128):
                inner.write(key="key", content=good[:index] + bytes([good[index] ^ bit]) + good[index + 1 :])
                with pytest.raises(CorruptEntryError):
                    await access.read(reference)
        for length in range(len(good)):
            inner.write(key="key", content=good[:length])
            with pytest.raises(CorruptEntryError):
                await access.read(reference)
        for spoiled in (good + b"\x00", good[:HEADER] + good, "secret", b"secret", "hb:e1:", b"hb:e1:=tsecret"):
            inner.write(key="key", content=spoiled)
            with pytest.raises(CorruptEntryError):
                await access.read(reference)
        inner.write(key="key", content=good)
        assert await access.read(reference) == "secret"

    check(encrypted(inner), law)


def test_entries_cannot_be_put_in_each_others_places(check: Check) -> None:
    inner = InMemoryToolResultStore()
    store = encrypted(inner)

    async def law(access: Access) -> None:
        places = [(store.scoped(scope), inner.scoped(scope), key) for scope in ("a", "b") for key in ("k", "l")]
        for number, (own, _, key) in enumerate(places):
            await access.to(own).write(key, f"content {number}")
        stored = [under.read(under.reference(key)) for _, under, key in places]
        for number, (own, under, key) in enumerate(places):
            for other in range(len(places)):
                under.write(key=key, content=stored[other])
                if other == number:
                    assert await access.to(own).read(own.reference(key)) == f"content {number}"
                else:
                    with pytest.raises(CorruptEntryError):
                        await access.to(own).read(own.reference(key))

    check(store, law)


def test_a_page_is_that_of_the_content_and_never_of_one_that_was_changed(check: Check) -> None:
    inner = InMemoryToolResultStore()
    store = encrypted(inner)

    async def law(access: Access) -> None:
        reference = await access.write("key", "0123456789" * 10)
        page = await access.call(
            access.colour.reads,
            lambda: store.read_page(reference, offset=-3, limit=2),
            lambda: store.read_page_async(reference, offset=-3, limit=2),
        )
        assert (page.content, page.offset, page.total) == ("78", 97, 100)
        good = inner.read(reference)
        assert isinstance(good, bytes)
        inner.write(key="key", content=good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(CorruptEntryError):
            await access.call(
                access.colour.reads,
                lambda: store.read_page(reference, limit=1),
                lambda: store.read_page_async(reference, limit=1),
            )

    check(store, law)


def test_the_first_key_encrypts_and_any_of_them_decrypts(check: Check) -> None:
    inner = InMemoryToolResultStore()
    before, during, after = (EncryptedStore(inner, keys=keys) for keys in ([OLD], [NEW, OLD], [NEW]))

    async def law(access: Access) -> None:
        old = await access.to(before).write("old", "of the old key")
        new = await access.to(during).write("new", "of the new key")
        assert [await access.to(during).read(reference) for reference in (old, new)] == [
            "of the old key",
            "of the new key",
        ]
        assert await access.to(after).read(new) == "of the new key"
        for store, reference in ((before, new), (after, old)):
            with pytest.raises(StoreConfigurationError) as caught:
                await access.to(store).read(reference)
            assert not isinstance(caught.value, (CorruptEntryError, ReferenceNotFoundError, StoreUnavailableError))
        await access.to(during).write("old", "of the old key")  # is how an entry changes its key
        assert await access.to(after).read(old) == "of the old key"

    check(before, law)


def test_another_key_with_the_same_id_does_not_exist_by_accident() -> None:
    made = {EncryptedStore.generate_key() for _ in range(200)}
    assert {len(base64.urlsafe_b64decode(key)) for key in made} == {32}
    stores = [EncryptedStore(InMemoryToolResultStore(), keys=[Secret.from_token(key)]) for key in made]
    assert len({key_id for store in stores for key_id in store._ring._keys}) == 200


def test_nothing_that_is_shown_logged_or_serialized_tells_a_key(caplog: pytest.LogCaptureFixture) -> None:
    inner = InMemoryToolResultStore()
    store = encrypted(inner)
    reference = store.write(key="key", content="secret content")
    with caplog.at_level(logging.DEBUG):
        other = EncryptedStore(inner, keys=[OLD])
        shown = [repr(store), str(store), str(vars(store)), str(vars(store._ring)), json.dumps(store.to_dict())]
        calls: list[Callable[[], Any]] = [
            lambda: other.read(reference),
            lambda: store.read("nonsense"),
            lambda: store.read(inner.write(key="x", content="x")),
        ]
        for call in calls:
            with pytest.raises(StoreError) as caught:
                call()
            shown.append("".join(traceback.format_exception(caught.value)))
        shown.append(caplog.text)
    for secret in ENVIRONMENT.values():
        if secret.endswith("="):
            raw = base64.urlsafe_b64decode(secret)
            for form in (secret, raw.decode(), raw.hex(), repr(raw)[2:-1]):
                assert all(form not in text for text in shown)


@pytest.mark.parametrize(
    "value", ["", "short", "x" * 43, "A" * 44, base64.b64encode(b"k" * 31).decode(), "ü" * 44, "not base64 !!"]
)
def test_what_is_no_key_is_refused_without_being_repeated(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HAYBALER_TEST_KEY", value)
    with pytest.raises(ConfigurationError) as caught:
        EncryptedStore(InMemoryToolResultStore(), keys=[Secret.from_env_var("HAYBALER_TEST_KEY")])
    shown = "".join(traceback.format_exception(caught.value))
    assert not value or value not in shown.replace("import base64", "")


@pytest.mark.parametrize("keys", [[], ["a text"], [None], [Secret.from_env_var("HAYBALER_TEST_ABSENT")]], ids=str)
def test_keys_that_are_missing_or_no_secrets_are_refused(keys: list[Any]) -> None:
    with pytest.raises(ConfigurationError):
        EncryptedStore(InMemoryToolResultStore(), keys=keys)


def test_only_keys_from_the_environment_are_serialized() -> None:
    store = encrypted(InMemoryToolResultStore())
    again = EncryptedStore.from_dict(json.loads(json.dumps(store.to_dict())))
    assert again.read(again.write(key="key", content="content")) == "content"
    assert again.to_dict() == store.to_dict()
    token = Secret.from_token(EncryptedStore.generate_key())
    with pytest.raises(NotSerializableError):
        EncryptedStore(InMemoryToolResultStore(), keys=[token]).to_dict()


def test_a_store_that_only_holds_text_holds_encrypted_text() -> None:
    inner = AsyncOnlyStore()

    async def law(access: Access) -> None:
        reference = await access.write("key", "secret")
        stored = inner.server.entries["key"]
        assert stored.startswith("hb:e1;")
        assert stored.isascii()
        assert await access.read(reference) == "secret"
        for spoiled in ("secret", "hb:e1:", "hb:e1:?", "hb:e1;", "hb:e1;?", stored[:-4]):
            inner.server.entries["key"] = spoiled
            with pytest.raises(CorruptEntryError):
                await access.read(reference)

    run_law(law, encrypted(inner), ASYNC)


class Own:
    """A store of somebody else's, which makes up its references when it writes."""

    supports_binary_content = False

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    def write(self, *, key: str, content: str) -> str:
        reference = f"own:{len(self.entries)}"
        self.entries[reference] = content
        return reference

    def read(self, reference: str) -> str:
        try:
            return self.entries[reference]
        except KeyError:
            raise FileNotFoundError from None

    def delete(self, references: list[str]) -> None:
        for reference in references:
            self.entries.pop(reference, None)


def test_an_entry_of_a_store_that_tells_no_reference_beforehand_is_bound_as_well(check: Check) -> None:
    inner: Any = Own()
    store = encrypted(inner)
    assert not hasattr(store, "reference")

    async def law(access: Access) -> None:
        one, two = [str(await access.write("key", content)) for content in ("1", "2")]
        assert [await access.read(reference) for reference in (one, two)] == ["1", "2"]
        inner.entries["own:0"], inner.entries["own:1"] = inner.entries["own:1"], inner.entries["own:0"]
        for reference in (one, two):
            with pytest.raises(CorruptEntryError):
                await access.read(reference)
        for foreign in ("own", "", None, 5):
            with pytest.raises(InvalidReferenceError):
                await access.read(foreign)  # type: ignore[arg-type]
        await access.delete([one])
        with pytest.raises(ReferenceNotFoundError):
            await access.read(one)

    check(store, law)


def test_a_store_that_breaks_its_word_about_a_reference_is_an_outcome_not_a_loss(check: Check) -> None:
    class Fickle(InMemoryToolResultStore):
        def reference(self, key: str) -> str:
            return super().reference(key) + "x"

    async def law(access: Access) -> None:
        (outcome,) = await access.write_many([StoreEntry("key", "secret")])
        assert isinstance(outcome, StoreError)

    check(encrypted(Fickle()), law)


def test_a_content_that_the_wrapped_store_would_refuse_never_reaches_it_in_the_clear(check: Check) -> None:
    inner: Any = Own()
    store = encrypted(inner)
    bad: list[Any] = [StoreEntry("key", bytearray(b"secret")), StoreEntry("key", b"secret"), StoreEntry("key", None)]  # type: ignore[arg-type]

    async def law(access: Access) -> None:
        assert all(isinstance(outcome, StoreError) for outcome in await access.write_many(bad))
        assert inner.entries == {}

    check(store, law)


def test_long_contents_are_encrypted_off_the_event_loop_and_piece_by_piece() -> None:
    threads: list[str] = []
    store = noting_threads(EncryptedStore, threads)(InMemoryToolResultStore(), keys=[NEW])
    content = bytes(range(256)) * 10_000

    async def use() -> None:
        assert await store.read_async(await store.write_async(key="key", content=content)) == content
        assert "MainThread" not in threads
        await store.read_async(await store.write_async(key="key", content="short"))
        assert set(threads[2:]) == {"MainThread"}

    asyncio.run(use())


def test_an_older_content_of_the_same_place_is_accepted_as_documented() -> None:
    inner = InMemoryToolResultStore()
    store = encrypted(inner)
    reference = store.write(key="key", content="old")
    old = inner.read(reference)
    store.write(key="key", content="new")
    inner.write(key="key", content=old)
    assert store.read(reference) == "old"
