import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybaler.errors import ConfigurationError
from haybaler.stores.names import MAX_NAME, SCOPE_MARK, checked_scope, encode_name, encode_names, encode_scope, is_name
from haybaler.testing.corpus import KEYS, SCOPES

# Anything at all, and what is nearly portable: the mistakes are found between the two.
any_text = st.text(st.characters(exclude_categories=()), max_size=200)
near_names = st.text(alphabet="aAzZ09_-.~@/ \n", max_size=90)
devices = st.builds(
    "{}{}".format,
    st.sampled_from(["con", "prn", "aux", "nul", "com0", "com9", "lpt1"]),
    st.sampled_from(["", ".", ".x"]),
)
keys = st.one_of(any_text, near_names, devices, st.sampled_from(KEYS), any_text.map(encode_name))

PORTABLE = re.compile(r"[a-z0-9_.~-]+")
DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}


@given(keys)
def test_a_name_is_portable_short_and_recognised(key: str) -> None:
    name = encode_name(key)
    assert PORTABLE.fullmatch(name)
    assert 1 <= len(name) <= MAX_NAME
    assert name == name.casefold()
    assert not name.startswith((".", "-"))
    assert not name.endswith((".", " "))
    assert is_name(name)


@given(keys)
def test_a_name_is_never_a_windows_device(key: str) -> None:
    assert encode_name(key).split(".")[0] not in DEVICES


@given(keys, keys)
def test_different_keys_have_different_names(one: str, other: str) -> None:
    assert (encode_name(one) == encode_name(other)) is (one == other)


few_keys = st.sampled_from(["a", "a.b", "con", "a\nb", "\n", "", "x" * 80])


@given(st.lists(keys, max_size=5) | st.lists(few_keys, max_size=5))
def test_many_keys_have_the_names_that_each_has_alone(many: list[str]) -> None:
    assert encode_names(many) == list(map(encode_name, many))


def test_the_hostile_keys_have_different_names() -> None:
    assert len({encode_name(key) for key in KEYS}) == len(set(KEYS)) == len(KEYS)


@given(st.text(alphabet="abcxyz019_", min_size=1, max_size=MAX_NAME))
def test_an_ordinary_key_is_its_own_name(key: str) -> None:
    assert key.startswith(("com", "con", "lpt", "nul", "aux", "prn")) or encode_name(key) == key


@pytest.mark.parametrize("key", ["0_search_call-1.txt", "a", "_", "a.tar.gz", "con_", "x" * 80])
def test_a_portable_key_is_its_own_name(key: str) -> None:
    assert encode_name(key) == key


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("Report Final.PDF", r"report-final~[0-9a-f]{32}\.pdf"),
        ("../../etc/passwd", r"etc-passwd~[0-9a-f]{32}"),
        ("", r"~[0-9a-f]{32}"),
        ("con", r"con~[0-9a-f]{32}"),
        ("x" * 81 + ".json", r"x{36}~[0-9a-f]{32}\.json"),
    ],
)
def test_another_key_keeps_a_readable_stem_and_its_suffix(key: str, name: str) -> None:
    assert re.fullmatch(name, encode_name(key))


def test_a_key_that_looks_like_a_derived_name_is_derived_again() -> None:
    derived = encode_name("A")
    assert encode_name(derived) not in {derived, encode_name("A")}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-rf",
        "a.",
        "a\n",
        "A",
        "a/b",
        "a\\b",
        "@a",
        "é",
        "con",
        "aux.txt",
        "x" * 81,
        "~",
        "a~b",
        f"aux.~{'0' * 32}",
        f"..~{'0' * 32}",
        f"a~{'0' * 32}\n",
        f"a~{'0' * 31}",
        f"a~{'g' * 32}",
        f"A~{'0' * 32}",
        f"a~{'0' * 32}.",
        f"{'x' * 37}~{'0' * 32}",
        "٣",  # a digit, though not an ASCII one
    ],
)
def test_what_encode_name_never_gives_is_no_name(text: str) -> None:
    assert not is_name(text)


@given(any_text)
def test_a_name_is_what_encode_name_leaves_alone_or_derives(text: str) -> None:
    assert not is_name(text) or encode_name(text) == text or "~" in text


@given(st.lists(keys, min_size=1, max_size=4))
def test_a_scope_is_checked_and_nests(parts: list[str]) -> None:
    names = encode_scope("/".join(parts))
    assert checked_scope(list(names)) == names
    assert names == tuple(name for part in parts for name in encode_scope(part))
    assert all(name.startswith(SCOPE_MARK) and not is_name(name) for name in names)


@given(keys, keys)
def test_different_scopes_have_different_names(one: str, other: str) -> None:
    assert (encode_scope(one) == encode_scope(other)) is (one == other)


def test_the_hostile_scopes_have_different_names() -> None:
    assert len({encode_scope(scope) for scope in SCOPES}) == len(SCOPES)


@pytest.mark.parametrize(
    "names", [["a"], ["@.."], ["@a/../b"], ["@"], ["@a", "@a\n"], [5], [None], "@a", None, 5, {"@a"}]
)
def test_a_serialized_scope_of_another_form_is_refused(names: object) -> None:
    with pytest.raises(ConfigurationError):
        checked_scope(names)
