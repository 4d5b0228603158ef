"""Calling what other people wrote, whichever colours it has."""

import threading
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage
from haystack.hooks.compaction import Compactor as HaystackCompactor

from haybaler.errors import AsyncOnlyError
from haybaler.interop import describe, has_synchronous, method, optional_method


class OnlySync:
    def work(self, value: int, *, plus: int = 0) -> tuple[int, threading.Thread]:
        return value + plus, threading.current_thread()


class OnlyAsync:
    async def work(self, value: int, *, plus: int = 0) -> tuple[int, threading.Thread]:
        return value + plus, threading.current_thread()


class SuffixOnly:
    async def work_async(self, value: int, *, plus: int = 0) -> tuple[int, threading.Thread]:
        return value + plus, threading.current_thread()


class Both(OnlySync, SuffixOnly):
    pass


def test_synchronous_callers_get_the_synchronous_form() -> None:
    for target in (OnlySync(), Both()):
        assert method(target, "work", 1, plus=2).run() == (3, threading.current_thread())


@pytest.mark.parametrize("kind", [OnlyAsync, SuffixOnly])
def test_synchronous_callers_of_an_asynchronous_object_get_a_clear_error(kind: type) -> None:
    with pytest.raises(AsyncOnlyError, match=f"{kind.__name__} has no synchronous `work`.*run_async"):
        method(kind(), "work", 1).run()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [OnlyAsync, SuffixOnly, Both])
async def test_asynchronous_callers_get_the_native_form(kind: type) -> None:
    assert await method(kind(), "work", 1, plus=2).run_async() == (3, threading.current_thread())


@pytest.mark.anyio
async def test_asynchronous_callers_of_a_synchronous_object_get_a_worker_thread() -> None:
    value, thread = await method(OnlySync(), "work", 1, plus=2).run_async()
    assert value == 3
    assert thread is not threading.current_thread()


@pytest.mark.anyio
async def test_haystacks_stand_in_for_an_asynchronous_form_is_not_used() -> None:
    threads: list[threading.Thread] = []

    class Own(HaystackCompactor):
        def compact(self, messages: Any, target_tokens: Any, token_counter: Any) -> list[ChatMessage] | None:
            threads.append(threading.current_thread())
            return None

        def to_dict(self) -> dict[str, Any]:
            return {}

    await method(Own(), "compact", [], 0, None).run_async()
    assert threads[0] is not threading.current_thread()


@pytest.mark.anyio
async def test_an_object_without_the_method_does_nothing_where_that_is_allowed() -> None:
    assert optional_method(object(), "close").run() is None
    assert await optional_method(object(), "close").run_async() is None
    assert optional_method(SuffixOnly(), "work").run() is None


@pytest.mark.parametrize(
    ("kind", "synchronous"), [(OnlySync, True), (OnlyAsync, False), (SuffixOnly, False), (Both, True)]
)
def test_colours_are_told_apart(kind: type, synchronous: bool) -> None:
    assert has_synchronous(kind(), "work") is synchronous
    assert not has_synchronous(kind(), "other")


def test_an_error_is_described_by_type_and_place_never_by_its_text() -> None:
    def fail() -> None:
        raise ValueError("the content of a result")

    with pytest.raises(ValueError, match="content") as caught:
        fail()
    described = describe(caught.value)
    assert described.startswith("ValueError in fail (")
    assert "content of a result" not in described
    assert describe(KeyError("secret")) == "KeyError"
