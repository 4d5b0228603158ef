"""Laws 1 and 2: references are pure and short, and what is read is what was written."""

import pytest

from haybaler.errors import StoreError
from haybaler.testing.access import Access
from haybaler.testing.contract import Check, MakeStore, StoreContract
from haybaler.testing.corpus import BYTES, KEYS, TEXTS


class _Text(str):
    __slots__ = ()


class ContentLaws(StoreContract):
    """Laws 1 and 2."""

    def test_a_write_returns_the_reference_that_was_known_before(self, check: Check) -> None:
        async def law(access: Access) -> None:
            reference = access.store.reference("key")
            assert await access.write("key", "content") == reference
            assert access.store.reference("key") == reference

        check(law)

    def test_a_reference_is_a_short_printable_string(self, make_store: MakeStore) -> None:
        store = make_store()
        for key in KEYS:
            reference = store.reference(key)
            assert type(reference) is str
            assert 0 < len(reference) <= 512
            assert reference.isprintable()

    @pytest.mark.parametrize("name", TEXTS)
    def test_text_comes_back_as_that_text(self, check: Check, name: str) -> None:
        async def law(access: Access) -> None:
            content = await access.read(await access.write("key.txt", TEXTS[name]))
            assert type(content) is str
            assert content == TEXTS[name]

        check(law)

    @pytest.mark.parametrize("name", BYTES)
    def test_bytes_come_back_as_those_bytes_or_are_refused(self, check: Check, name: str) -> None:
        async def law(access: Access) -> None:
            if not access.store.supports_binary_content:
                with pytest.raises(StoreError):
                    await access.write("key", BYTES[name])
                return
            content = await access.read(await access.write("key.txt", BYTES[name]))
            assert type(content) is bytes
            assert content == BYTES[name]

        check(law)

    def test_an_instance_of_a_subclass_comes_back_as_plain_text(self, check: Check) -> None:
        async def law(access: Access) -> None:
            content = await access.read(await access.write(_Text("key"), _Text("content")))
            assert type(content) is str
            assert content == "content"

        check(law)

    def test_writing_again_replaces_content_and_type(self, check: Check) -> None:
        async def law(access: Access) -> None:
            contents: list[str | bytes] = ["a long first content", "short", ""]
            if access.store.supports_binary_content:
                contents += [b"short", b"", "short"]
            for content in contents:
                read = await access.read(await access.write("key", content))
                assert (type(read), read) == (type(content), content)

        check(law)
