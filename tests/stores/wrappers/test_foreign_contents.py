"""Whatever somebody puts into the wrapped stores, reading it ends in a content or in an error of the tree."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.stores.wrappers.around import TOWERS, WRAPPERS, Build

from haybaler import EncryptedStore, InMemoryToolResultStore, StoreEntry, StoreError

BUILDS: dict[str, Build] = {**WRAPPERS, **TOWERS}
CONTENTS: list[str | bytes] = ["", "short", "é\ud800", "hb:z1:s", "content " * 200, "other " * 200, b"", b"\xff\0" * 30]
MARKS = [f"hb:{kind}1{end}" for kind in "zetc" for end in ":;"]
# A tag and a header that claims an enormous, a negative or no size, in front of anything.
HEADS = ["", "=", "=t", "l", "s", "a", "st" + "\xff" * 8, "zb" + "\x7f" + "\xff" * 7, "zt" + "\0" * 8]


class TextOnly(InMemoryToolResultStore):
    supports_binary_content = False


def put(value: Any, like: Any) -> Any:
    """Return text or bytes as the one or the other."""
    if isinstance(like, bytes):
        return value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, str) else value.decode("latin-1")


def spoilt(random: Random, stored: Any, others: list[Any]) -> Any:
    start = random.randint(0, len(stored))
    match random.choice(["another", "changed", "cut", "longer", "marked"]):
        case "another":
            return random.choice(others)
        case "changed":
            return stored[:start] + put(random.randbytes(2), stored) + stored[start + 1 :]
        case "cut":
            return stored[:start]
        case "longer":
            return stored + put(random.randbytes(random.randint(1, 9)), stored)
        case _:
            head = random.choice(MARKS) + random.choice(HEADS)
            return put(head.encode("latin-1"), stored) + stored[start:]


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize(
    ("kind", "seed"), [(kind, seed) for kind in (InMemoryToolResultStore, TextOnly) for seed in range(3)]
)
@pytest.mark.parametrize("name", [*WRAPPERS, *TOWERS])
def test_whatever_becomes_of_what_is_stored_it_is_a_content_or_an_error(
    name: str, kind: type[InMemoryToolResultStore], seed: int
) -> None:
    random = Random(seed)
    bottoms: list[InMemoryToolResultStore] = []

    def make(_: str) -> InMemoryToolResultStore:
        bottoms.append(kind())
        return bottoms[-1]

    store = BUILDS[name](make)
    shares = name in {"shared", "content-addressed"}
    contents = [content for content in CONTENTS if isinstance(content, str) or store.supports_binary_content]
    entries = [StoreEntry(f"key {number}", content) for number, content in enumerate(contents)]
    references = store.write_many(entries)
    stored = [held.content for bottom in bottoms for held in bottom._entries.values()]
    for bottom in bottoms:
        for held in bottom._entries.values():
            held.content = spoilt(random, held.content, stored)
    for reference, content in zip(references, contents, strict=True):
        for read in (store.read, lambda one: store.read_page(one, offset=0, limit=1_000_000).content):
            try:
                found = read(reference)
            except StoreError:
                continue
            assert isinstance(found, (str, bytes))
            # What is encrypted is what was written there, or an error.
            assert found == content or not isinstance(store, EncryptedStore)
    # Nor does it keep anybody from writing, reading and deleting the same entries again. Damage to a content that
    # entries share is only found by who reads one of them, or removes another one of which it was made.
    for _ in range(3 * shares):
        for outcome in store.write_many(entries):
            with suppress(StoreError):
                store.read(outcome)
    assert store.write_many(entries) == references
    assert [store.read(reference) for reference in references] == contents
    store.delete(references)
    assert shares or not any(map(len, bottoms))
