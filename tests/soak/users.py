"""What users do: run Agents, write, read and delete by themselves, lose patience, and leave."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from functools import partial
from random import Random
from typing import Any

import anyio
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCallResult
from tests.soak.agents import ANSWER, fetched, task
from tests.soak.contents import Content, Origin
from tests.soak.findings import Findings
from tests.soak.places import Place

from haybaler import (
    RESULT_STORE_CONTEXT_KEY,
    InvalidReferenceError,
    ReferenceNotFoundError,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
)
from haybaler.references import is_offloaded, offloaded_references

ACTIONS = (10, 40)  # of one user before it leaves
LONGEST_PATIENCE = 0.4  # seconds
PATIENCE_WITH_A_SERVER = 30.0  # seconds for what has to succeed in the end


class User:
    """
    One user with a scope of its own.

    :param name: The scope.
    :param place: The store.
    :param shared: The Agent of all users.
    :param findings: Where it notes what it did.
    :param threads: For what it does without an event loop, or with another one.
    """

    def __init__(self, name: str, place: Place, shared: Agent, findings: Findings, threads: Executor) -> None:
        self.name = name
        self.place = place
        self.store = place.store.scoped(name)
        self._agent = shared
        self._findings = findings
        self._threads = threads
        self._random = Random(name)
        # What has to lie under each reference, made anew.
        self._kept: dict[str, Callable[[], Content]] = {}
        self._number = 0
        self._actions: dict[Callable[[], Awaitable[None]], int] = {
            self._run: 30,
            self._run_and_lose_patience: 15,
            self._run_in_a_thread: 5,
            self._write: 10,
            self._write_and_lose_patience: 5,
            self._read: 20,
            self._read_page: 5,
            self._read_and_lose_patience: 5,
            self._read_in_another_loop: 2,
            self._overwrite: 3,
            self._delete: 7,
            self._delete_everything: 2,
        }

    async def live(self, go_on: Callable[[], bool]) -> None:
        """Do this and that until it has had enough, and leave nothing behind."""
        for _ in range(self._random.randint(*ACTIONS)):
            if not go_on():
                break
            (action,) = self._random.choices(list(self._actions), list(self._actions.values()))
            with self._nothing_but(StoreUnavailableError, doing=action.__name__):
                await action()
            await asyncio.sleep(self._random.random() * 0.1)
        await self._leave()

    async def refused_to(self, other: "User") -> None:
        """Have somebody else try to read what this user has written."""
        for reference in list(self._kept)[:1]:
            with other._nothing_but(InvalidReferenceError, doing="read what is somebody else's"):
                await other.store.read_async(reference)
                self._findings.fault(f"{self.place.name}: somebody else's entry was read")
            self._findings.did("references refused to others")

    @contextmanager
    def _nothing_but(self, allowed: type[Exception], *, doing: str) -> Iterator[None]:
        begun = time.monotonic()
        what = f"{self.place.name}: {doing.strip('_').replace('_', ' ')}"
        try:
            yield
        except allowed as error:
            if isinstance(error, StoreUnavailableError) and not self.place.was_disturbed(begun):
                self._findings.fault(f"{what}: unavailable", error)
            else:
                self._findings.did(f"{what}: {type(error).__name__}")
        except Exception as error:  # noqa: BLE001 - all are findings
            if isinstance(error, StoreUnavailableError) and self.place.was_disturbed(begun):
                self._findings.did(f"{what}: {type(error).__name__}")
            else:
                self._findings.fault(f"{what}: {type(error).__name__}", error)
        else:
            self._findings.did(what)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    # Agents

    def _order(self) -> dict[str, Any]:
        self._number += 1
        steps, calls = self._random.randint(1, 8), self._random.choice((1, 1, 2, 4))
        return {
            "messages": [task(self.name, self._number, steps=steps, calls=calls)],
            "hook_context": {RESULT_STORE_CONTEXT_KEY: self.store},
        }

    async def _run(self) -> None:
        await self._check_run(await self._agent.run_async(**self._order()))

    async def _run_in_a_thread(self) -> None:
        order = self._order()
        await self._check_run(await self._in_thread(lambda: self._agent.run(**order)))

    async def _run_and_lose_patience(self) -> None:
        await self._lose_patience(self._agent.run_async(**self._order()))

    async def _check_run(self, result: dict[str, Any]) -> None:
        assert result["last_message"].text == ANSWER
        for message in result["messages"]:
            for tool_result in message.tool_call_results:
                if tool_result.origin.tool_name == "fetch":
                    assert tool_result.origin.arguments["user"] == self.name
                    await self._check_result(message, tool_result)

    async def _check_result(self, message: ChatMessage, result: ToolCallResult) -> None:
        if not is_offloaded(message):
            assert result.result == fetched(result), "a result was changed"
            return
        (reference,) = offloaded_references(message)
        self._kept[reference] = partial(fetched, result)
        await self._check_entry(reference)

    # Entries

    def _entries(self) -> list[tuple[str, Callable[[], Content]]]:
        self._number += 1
        large = self._random.random() < 0.03
        count = 1 if large else self._random.choice((1, 1, 2, 10, 100))
        origins = [Origin(self.name, self._number, 0, place) for place in range(count)]
        return [(f"{origin.number}/{origin.place}", partial(origin.content, large=large)) for origin in origins]

    async def _write(self) -> None:
        await self._write_entries(self._entries())

    async def _overwrite(self) -> None:
        entries = self._entries()
        await self._write_entries(entries)
        await self._write_entries([(key, partial(_reversed, content)) for key, content in entries])

    async def _write_entries(self, entries: list[tuple[str, Callable[[], Content]]]) -> None:
        for key, _ in entries:
            self._kept.pop(self.store.reference(key), None)
        outcomes = await self.store.write_many_async([StoreEntry(key, content()) for key, content in entries])
        assert len(outcomes) == len(entries)
        failed: StoreError | None = None
        for (key, content), outcome in zip(entries, outcomes, strict=True):
            if isinstance(outcome, str):
                assert outcome == self.store.reference(key)
                self._kept[outcome] = content
            else:
                failed = outcome
        if failed is not None:
            raise failed

    async def _write_and_lose_patience(self) -> None:
        entries = self._entries()
        await self._lose_patience(self.store.write_many_async([StoreEntry(key, content()) for key, content in entries]))
        # Whole or absent, each by itself.
        for key, content in self._random.sample(entries, min(3, len(entries))):
            try:
                assert await self.store.read_async(self.store.reference(key)) == content(), "half an entry"
            except ReferenceNotFoundError:
                self._findings.did("entries of cancelled writes that are absent")
            else:
                self._findings.did("entries of cancelled writes that are whole")

    def _some(self, most: int) -> list[str]:
        return self._random.sample(list(self._kept), min(most, len(self._kept)))

    async def _read(self) -> None:
        for reference in self._some(5):
            await self._check_entry(reference)

    async def _check_entry(self, reference: str) -> None:
        content = self._kept[reference]
        self._compare(await self.store.read_async(reference), content())

    def _compare(self, content: Content, expected: Content) -> None:
        if content == expected:
            self._findings.did("entries read back whole")
        else:
            self._findings.fault(f"{self.place.name}: an entry is not what was written: {content[:80]!r}")

    async def _read_page(self) -> None:
        for reference in self._some(1):
            content = self._kept[reference]()
            offset = self._random.randrange(len(content))
            page = await self.store.read_page_async(reference, offset=offset, limit=1_000)
            self._compare(page.content, content[offset : offset + 1_000])

    async def _read_and_lose_patience(self) -> None:
        references = self._some(20)

        async def read() -> None:
            for reference in references:
                await self._check_entry(reference)

        await self._lose_patience(read())

    async def _read_in_another_loop(self) -> None:
        """As `asyncio.run` in a thread: the store's clients end with that loop."""
        kept = self._some(3)

        async def read() -> None:
            await asyncio.gather(*(self._check_entry(reference) for reference in kept))

        await self._in_thread(lambda: asyncio.run(read()))

    async def _delete(self) -> None:
        references = self._some(10)
        for reference in references:  # whether one is gone after a failure, nobody knows
            del self._kept[reference]
        await self.store.delete_async(references)
        for reference in references[:2]:
            await self._gone(reference)

    async def _gone(self, reference: str) -> None:
        try:
            await self.store.read_async(reference)
        except ReferenceNotFoundError:
            self._findings.did("entries gone after a delete")
        else:
            self._findings.fault(f"{self.place.name}: an entry was there after it was deleted")

    async def _delete_everything(self) -> None:
        references, self._kept = self._some(3), {}
        await self.store.delete_scope_async()
        for reference in references:
            await self._gone(reference)

    async def _leave(self) -> None:
        deadline = time.monotonic() + PATIENCE_WITH_A_SERVER
        while True:
            try:
                await self._delete_everything()
            except StoreUnavailableError as error:
                if time.monotonic() > deadline:
                    self._findings.fault(f"{self.place.name}: a scope could not be deleted", error)
                    return
                await asyncio.sleep(0.2)
            else:
                self._findings.did(f"{self.place.name}: users that left")
                return

    async def _lose_patience(self, work: Awaitable[object]) -> None:
        """Cancel something at any moment, in the way of asyncio or in that of anyio."""
        patience = self._random.random() * LONGEST_PATIENCE
        if self._random.random() < 0.5:
            with anyio.move_on_after(patience) as scope:
                await work
            cancelled = scope.cancelled_caught
        else:
            task_of_its_own = asyncio.ensure_future(work)
            _, pending = await asyncio.wait([task_of_its_own], timeout=patience)
            cancelled = bool(pending)
            task_of_its_own.cancel()
            with suppress(asyncio.CancelledError):
                await task_of_its_own
        self._findings.did("cancelled" if cancelled else "done before it was cancelled")


def _reversed(content: Callable[[], Content]) -> Content:
    return content()[::-1]
