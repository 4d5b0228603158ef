"""An operation of a store that is cancelled anywhere has been done or not; nothing of it stays, the store goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from tests.faults.leftovers import nothing_left, settled
from tests.services.places import Place
from tests.tools.calling import SEARCH, tool

from haybaler.errors import ReferenceNotFoundError
from haybaler.stores.protocol import DeletedScope, StoreEntry
from haybaler.testing import each_cancellation_async
from haybaler.tools import ToolResultToolset

OLD = {"a": "old " * 200, "b": b"\xff old", "c": None}
NEW = "new " * 300
LARGE = "large " * 500_000  # in several round trips to Redis, in a worker to S3

Contents = Mapping[str, str | bytes | None]


@dataclass(frozen=True, slots=True)
class Operation:
    """
    One operation of a store that holds `OLD`.

    :param run: Carries it out on a scope.
    :param after: What it makes of the contents; by default nothing.
    :param answer: What it returns when nothing disturbs it; None for anything.
    """

    run: Callable[[Any], Awaitable[Any]]
    after: Contents | None = None
    answer: Any = None


def entries(*keys: str) -> list[StoreEntry]:
    return [StoreEntry(key, NEW) for key in keys]


async def streamed(scope: Any) -> bytes:
    stream = scope.stream_async(scope.reference("a"), chunk_bytes=300)
    try:
        return b"".join([piece async for piece in stream])
    finally:
        await stream.aclose()


async def at_once(scope: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(scope.write_async(key="a", content=NEW))
        group.create_task(scope.write_many_async(entries("b", "c")))
        group.create_task(scope.read_async(scope.reference("a")))


async def reopened(scope: Any) -> Any:
    await scope.close_async()
    return await scope.read_async(scope.reference("a"))


STREAM = Operation(streamed, answer=str(OLD["a"]).encode())
PAGE = f"[characters 4-14 of {len(str(OLD['a']))}; continue with offset=14]\nold old ol"
OPERATIONS = {
    "write": Operation(lambda scope: scope.write_async(key="a", content=NEW), {"a": NEW}),
    "first write": Operation(lambda scope: scope.write_async(key="c", content=NEW), {"c": NEW}),
    "large write": Operation(lambda scope: scope.write_async(key="a", content=LARGE), {"a": LARGE}),
    "batch": Operation(lambda scope: scope.write_many_async(entries("a", "b", "c")), dict.fromkeys("abc", NEW)),
    "several at once": Operation(at_once, dict.fromkeys("abc", NEW)),
    "read": Operation(lambda scope: scope.read_async(scope.reference("a")), answer=OLD["a"]),
    "page": Operation(lambda scope: scope.read_page_async(scope.reference("a"), offset=4, limit=10)),
    "delete": Operation(
        lambda scope: scope.delete_async([scope.reference("a"), scope.reference("b")]), {"a": None, "b": None}
    ),
    "removal of the scope": Operation(lambda scope: scope.delete_scope_async(), {"a": None, "b": None}),
    "warm-up": Operation(lambda scope: scope.warm_up_async()),
    "close": Operation(lambda scope: scope.close_async()),
    "reopening": Operation(reopened, answer=OLD["a"]),
    "read tool": Operation(
        lambda scope: (
            ToolResultToolset(scope).tools[0].invoke_async(reference=scope.reference("a"), offset=4, limit=10)
        ),
        answer=PAGE,
    ),
    "search tool": Operation(
        lambda scope: tool(ToolResultToolset(scope), SEARCH).invoke_async(reference=scope.reference("a"), pattern="old")
    ),
}


async def contents(scope: Any) -> dict[str, str | bytes | None]:
    found: dict[str, str | bytes | None] = {}
    for key in OLD:
        try:
            found[key] = await scope.read_async(scope.reference(key))
        except ReferenceNotFoundError:
            found[key] = None
    return found


async def prepare(scope: Any, before: Contents) -> None:
    """Give the scope its old contents again, as far as they were changed."""
    changed = [key for key in OLD if before[key] != OLD[key]]
    written = [StoreEntry(key, content) for key in changed if (content := OLD[key]) is not None]
    assert all(isinstance(outcome, str) for outcome in await scope.write_many_async(written))
    await scope.delete_async([scope.reference(key) for key in changed if OLD[key] is None])


async def check_each_cancellation(place: Place, name: str, operation: Operation) -> int:
    """Cancel an operation everywhere, in one event loop and on one store; return how often it was cancelled."""
    scope = place.store.scoped("run")
    after = {**OLD, **(operation.after or {})}
    await prepare(scope, dict.fromkeys(OLD))
    answers: list[Any] = []
    cancelled = 0

    async def run() -> None:
        answers.clear()
        answers.append(await operation.run(scope))

    async for by, step, reached in each_cancellation_async(run):
        await settled()
        where = f"{name} cancelled by {by.value} at suspension {step}"
        found = await contents(scope)
        for key, content in found.items():
            assert content in {OLD[key], after[key]}, where
        assert reached or found == after, where
        if answers and operation.answer is not None:
            assert answers == [operation.answer], where
        cancelled += reached
        await prepare(scope, found)
        assert await contents(scope) == OLD, where
    assert isinstance(await scope.delete_scope_async(), DeletedScope)
    # Neither what was being written, nor what says something of it.
    assert await place.everything() == []
    await place.store.close_async()
    return cancelled


@pytest.mark.parametrize("backend", ["memory", "files", "redis", "s3"])
def test_a_cancelled_operation_has_been_done_or_not_and_leaves_nothing(
    backend: str, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(f"place_in_{backend}")
    operations = {**OPERATIONS, **({"stream": STREAM} if backend == "files" else {})}
    cancelled: dict[str, int] = {}

    async def run() -> None:
        for name, operation in operations.items():
            cancelled[name] = await check_each_cancellation(place, name, operation)

    with nothing_left():
        asyncio.run(run())
    suspending = {"memory": {"several at once", "search tool"}}.get(backend, operations.keys() - {"warm-up", "close"})
    assert {name for name in suspending if not cancelled[name]} == set()
