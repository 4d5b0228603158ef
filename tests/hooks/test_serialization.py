"""Hooks and their parts on the way to a dictionary and back."""

import json
from typing import Any

import pytest
from haystack.core.errors import DeserializationError
from haystack.core.serialization import allow_deserialization_module, default_from_dict, default_to_dict
from tests.hooks.parts import CountingCounter, DropOldest, SyncStore

from haybaler import (
    AlwaysOffload,
    ApproximateTokenCounter,
    CompactionHook,
    InMemoryToolResultStore,
    NeverOffload,
    OffloadOverChars,
    OffloadOverTokens,
    SlidingWindowCompactor,
    TiktokenCounter,
    ToolResultOffloadCompactor,
    ToolResultOffloadHook,
    ToolResultPruningCompactor,
)
from haybaler.errors import NotSerializableError

allow_deserialization_module("haybaler*")
allow_deserialization_module("tests*")

COMPACTORS: dict[str, Any] = {
    "sliding window": SlidingWindowCompactor(min_keep_steps=3, omission_note="{num_removed} gone"),
    "no note": SlidingWindowCompactor(omission_note=None),
    "pruning": ToolResultPruningCompactor(
        min_keep_steps=2, min_tokens=7, placeholder="{tool_name}", skip_meta_keys=("a",)
    ),
    "offloading": ToolResultOffloadCompactor(
        InMemoryToolResultStore().scoped("a"), min_keep_steps=4, min_tokens=9, preview_chars=3, write_timeout=1.5
    ),
    "somebody's own": DropOldest(5),
}
COUNTERS: dict[str, Any] = {
    "default": None,
    "approximate": ApproximateTokenCounter(chars_per_token=2.5, tokens_per_image=7, tokens_per_file=8),
    "tiktoken": TiktokenCounter("cl100k_base", tokens_per_image=1),
    "somebody's own": CountingCounter(3),
}


def through_json(data: dict[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = json.loads(json.dumps(data))
    return restored


@pytest.mark.parametrize("counter", COUNTERS.values(), ids=COUNTERS)
@pytest.mark.parametrize("compactor", COMPACTORS.values(), ids=COMPACTORS)
def test_a_compaction_hook_comes_back_as_it_was(compactor: Any, counter: Any) -> None:
    hook = CompactionHook(compactor, context_window=123, compact_at=0.9, compact_to=0.1, token_counter=counter)
    data = through_json(hook.to_dict())
    restored = CompactionHook.from_dict(through_json(data))
    assert restored.to_dict() == data
    assert type(restored.compactor) is type(compactor)
    assert type(restored.token_counter) is type(hook.token_counter)
    assert (restored.context_window, restored.compact_at, restored.compact_to) == (123, 0.9, 0.1)


def test_an_offload_hook_comes_back_as_it_was() -> None:
    strategies: dict[str | tuple[str, ...], Any] = {
        "search": AlwaysOffload(),
        ("read", "list"): OffloadOverChars(40),
        ("one",): NeverOffload(),
        "github__*": OffloadOverTokens(50),
        "[ab]*": NeverOffload(),
        "[1]": NeverOffload(),
        "null": NeverOffload(),
        "12": NeverOffload(),
        '"quoted"': NeverOffload(),
        "*": AlwaysOffload(),
    }
    hook = ToolResultOffloadHook(
        SyncStore(),
        strategies,
        preview_chars=3,
        token_counter=CountingCounter(4),
        offload_errors=True,
        write_timeout=2.5,
    )
    data = through_json(hook.to_dict())
    restored = ToolResultOffloadHook.from_dict(through_json(data))
    assert restored.to_dict() == data
    assert {key: type(policy) for key, policy in restored.offload_strategies.items()} == {
        key: type(policy) for key, policy in strategies.items()
    }
    assert list(restored.offload_strategies) == list(strategies)
    assert (restored.preview_chars, restored.offload_errors, restored.write_timeout) == (3, True, 2.5)


def test_a_minimal_serialized_hook_gets_the_defaults() -> None:
    data = CompactionHook(SlidingWindowCompactor(), context_window=10).to_dict()
    for name in ("compact_at", "compact_to", "token_counter"):
        del data["init_parameters"][name]
    restored = CompactionHook.from_dict(data)
    assert (restored.compact_at, restored.compact_to) == (0.7, 0.4)
    assert isinstance(restored.token_counter, ApproximateTokenCounter)


class NoToDict:
    """A part that cannot be serialized."""


class ReturnsNone(DropOldest):
    def to_dict(self) -> Any:
        """As a protocol's empty body does."""


class NoType(DropOldest):
    def to_dict(self) -> dict[str, Any]:
        return {"keep": self.keep}


class Forgetful:
    """Has an argument that the inherited `to_dict` leaves out."""

    def __init__(self, bucket: str, *, region: str) -> None:
        self.bucket = bucket
        self.region = region

    def to_dict(self) -> dict[str, Any]:
        return default_to_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Forgetful":
        return default_from_dict(cls, data)


UNUSABLE = [
    (NoToDict(), "NoToDict"),
    (ReturnsNone(), "ReturnsNone"),
    (NoType(), "NoType"),
    (Forgetful("b", region="r"), "bucket, region"),
]


@pytest.mark.parametrize(("part", "named"), UNUSABLE, ids=[named for _, named in UNUSABLE])
def test_a_part_that_cannot_be_serialized_is_named(part: Any, named: str) -> None:
    """Neither a `TypeError` about None, nor a dictionary without the arguments."""
    holders: dict[str, Any] = {
        "compactor": CompactionHook(part, context_window=10),
        "token counter": CompactionHook(DropOldest(), context_window=10, token_counter=part),
        "store": ToolResultOffloadHook(part, {}),
        "offload policy": ToolResultOffloadHook(SyncStore(), {"*": part}),
    }
    for role, hook in holders.items():
        with pytest.raises(NotSerializableError, match=rf"(?s){role}.*{named}"):
            hook.to_dict()
    with pytest.raises(NotSerializableError, match=rf"store.*{named}"):
        CompactionHook(ToolResultOffloadCompactor(part), context_window=10).to_dict()


def test_a_part_that_cannot_be_serialized_still_works() -> None:
    CompactionHook(NoType(), context_window=10, token_counter=CountingCounter())


def test_an_unknown_type_is_refused_by_haystack() -> None:
    data = CompactionHook(SlidingWindowCompactor(), context_window=10).to_dict()
    data["init_parameters"]["compactor"]["type"] = "somewhere.else.Compactor"
    with pytest.raises((DeserializationError, ImportError, ValueError), match=r"somewhere\.else"):
        CompactionHook.from_dict(data)
