"""The same store in another process: rebuilt from its serialized settings, read, written, and killed."""

import asyncio
import json
import os
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from haybaler.errors import StoreError
from haybaler.stores.protocol import ToolResultStore
from haybaler.testing.access import COLOURS, Access, drive

Contents = Sequence[str | bytes | None]
Tell = Callable[[Contents], None]
Work = Callable[..., Coroutine[Any, Any, None]]

# Where it can be, the other process is the fork of one that has imported the kit and done nothing else, since that
# import takes longer than most tests.
_METHOD = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"


def read_elsewhere(store: ToolResultStore, references: Sequence[str], *, sync: bool) -> list[str | bytes | None]:
    """
    Read entries in another process.

    :param store: The store; its `to_dict` is all that the other process gets.
    :param references: What to read.
    :param sync: Whether to call the synchronous methods there.
    :returns: Content i belongs to reference i; None where the store raised a `StoreError`.
    """
    with _elsewhere(_read_all, store, references, sync=sync) as told:
        return list(told())


def write_elsewhere_until_killed(
    store: ToolResultStore, key: str, contents: Sequence[str | bytes], *, sync: bool, moment: float
) -> None:
    """
    Write contents in turn under one key in another process, and kill it in the middle of a write.

    :param store: The store; its `to_dict` is all that the other process gets.
    :param key: The key.
    :param contents: What to write, again and again.
    :param sync: Whether to call the synchronous methods there.
    :param moment: When in a write to kill it, as a fraction of the time that the write before took.
    """
    with _elsewhere(_write_for_ever, store, key, contents, sync=sync) as told:
        times = []
        for _ in range(3):
            told()
            times.append(time.monotonic())
        time.sleep(moment * (times[-1] - times[-2]))


class _Order(NamedTuple):
    """What the other process is to do, and where: as things are now, not as they were when the first one was made."""

    work: Work
    arguments: Sequence[Any]
    settings: str
    sync: bool
    environment: dict[str, str]
    folder: str


@contextmanager
def _elsewhere(work: Work, store: ToolResultStore, *arguments: Any, sync: bool) -> Iterator[Callable[[], Contents]]:
    """Have another process work; give what waits for the next that it tells, and kill it in the end."""
    context: Any = get_context(_METHOD)
    context.set_forkserver_preload([__name__])
    here, there = context.Pipe(duplex=False)
    order = _Order(work, arguments, json.dumps(store.to_dict()), sync, {**os.environ}, os.getcwd())  # noqa: PTH109
    process = context.Process(target=_serve, args=(there, order), daemon=True)
    process.start()
    there.close()

    def told() -> Contents:
        failure, contents = here.recv()
        assert failure is None, failure
        return contents  # type: ignore[no-any-return]

    try:
        yield told
    finally:
        process.kill()
        process.join()
        process.close()
        here.close()


def _serve(there: Connection, order: _Order) -> None:
    try:
        os.environ.clear()
        os.environ.update(order.environment)
        os.chdir(order.folder)
        data = json.loads(order.settings)
        module, _, name = data["type"].rpartition(".")
        store: ToolResultStore = getattr(import_module(module), name).from_dict(data)
        called, native, *_ = COLOURS
        access = Access(store, called if order.sync else native)
        run: Any = drive if order.sync else asyncio.run
        run(order.work(access, lambda contents: there.send((None, contents)), *order.arguments))
    except Exception:  # noqa: BLE001 - the test tells it
        there.send((traceback.format_exc(), ()))


async def _read_all(access: Access, tell: Tell, references: Sequence[str]) -> None:
    try:
        tell([await _read(access, reference) for reference in references])
    finally:
        await access.close()


async def _read(access: Access, reference: str) -> str | bytes | None:
    try:
        return await access.read(reference)
    except StoreError:
        return None


async def _write_for_ever(access: Access, tell: Tell, key: str, contents: Sequence[str | bytes]) -> None:
    while True:
        for content in contents:
            await access.write(key, content)
            tell(())
