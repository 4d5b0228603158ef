"""The same store in another process: rebuilt from its serialized settings, read, written, and killed."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from haybaler.errors import StoreError
from haybaler.stores.protocol import ToolResultStore
from haybaler.testing.access import COLOURS, Access, drive

_COMMAND = [sys.executable, "-c", "from haybaler.testing.processes import serve; serve()"]


def read_elsewhere(store: ToolResultStore, references: Sequence[str], *, sync: bool) -> list[str | bytes | None]:
    """
    Read entries in another process.

    :param store: The store; its `to_dict` is all that the other process gets.
    :param references: What to read.
    :param sync: Whether to call the synchronous methods there.
    :returns: Content i belongs to reference i; None where the store raised a `StoreError`.
    """
    order = {"store": store.to_dict(), "sync": sync, "read": list(references)}
    answer = subprocess.run(_COMMAND, input=json.dumps(order), capture_output=True, text=True, env=_env(), check=False)
    assert answer.returncode == 0, answer.stderr
    return [_decoded(content) for content in json.loads(answer.stdout)]


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
    order = {"store": store.to_dict(), "sync": sync, "key": key, "write": [_encoded(content) for content in contents]}
    with subprocess.Popen(
        _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_env()
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(json.dumps(order))
            process.stdin.close()
            times = []
            for _ in range(3):
                assert process.stdout.readline(), process.stderr.read()
                times.append(time.monotonic())
            time.sleep(moment * (times[-1] - times[-2]))
        finally:
            process.kill()


def serve() -> None:
    """Carry out in this process what stands on its standard input."""
    order = json.load(sys.stdin)
    module, _, name = order["store"]["type"].rpartition(".")
    store: ToolResultStore = getattr(import_module(module), name).from_dict(order["store"])
    sync, native, *_ = COLOURS
    access = Access(store, sync if order["sync"] else native)
    run: Any = drive if order["sync"] else asyncio.run
    if "read" in order:
        json.dump(run(_read_all(access, order["read"])), sys.stdout)
    else:
        run(_write_for_ever(access, order["key"], [_decoded(content) for content in order["write"]]))


async def _read_all(access: Access, references: Sequence[str]) -> list[Any]:
    try:
        return [await _read(access, reference) for reference in references]
    finally:
        await access.close()


async def _read(access: Access, reference: str) -> Any:
    try:
        return _encoded(await access.read(reference))
    except StoreError:
        return None


async def _write_for_ever(access: Access, key: str, contents: Sequence[Any]) -> None:
    while True:
        for content in contents:
            await access.write(key, content)
            sys.stdout.write("written\n")
            sys.stdout.flush()


def _encoded(content: str | bytes) -> Any:
    return {"hex": content.hex()} if isinstance(content, bytes) else content


def _decoded(content: Any) -> Any:
    return bytes.fromhex(content["hex"]) if isinstance(content, dict) else content


def _env() -> dict[str, str]:
    # The other process finds the same modules, also a store that stands in a test module.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}  # noqa: PTH109
