"""Another process, built from the serialized form alone, reads what was written; one that is killed spoils nothing."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.stores.wrappers.around import TOWERS, WRAPPERS

from haybaler import ReferenceNotFoundError
from haybaler.testing.corpus import BYTES, TEXTS
from haybaler.testing.processes import write_elsewhere_until_killed
from haybaler_filesystem import FileSystemToolResultStore

pytestmark = pytest.mark.usefixtures("environment")

BUILDS = {**WRAPPERS, **TOWERS}
CONTENTS: list[str | bytes] = [*TEXTS.values(), *BYTES.values()]
# Reads in one process what all wrappers wrote: starting one is what takes time.
READ = """
import asyncio, json, sys
from importlib import import_module

async def read(store, references):
    return [await store.read_async(reference) for reference in references]

for data, references in json.load(sys.stdin):
    module, _, name = data["type"].rpartition(".")
    store = getattr(import_module(module), name).from_dict(data)
    contents = [store.read(reference) for reference in references]
    assert contents == asyncio.run(read(store, references))
    print(json.dumps([[type(c).__name__, c.hex() if isinstance(c, bytes) else c] for c in contents]))
"""


def made(folder: Path, name: str) -> Callable[[str], Any]:
    return lambda part: FileSystemToolResultStore(folder / f"{name}{part}", references="relative")


def test_another_process_reads_what_each_wrapper_wrote(tmp_path: Path) -> None:
    orders = []
    for name, build in BUILDS.items():
        store = build(made(tmp_path, name)).scoped("user/run")
        references = [store.write(key=f"key {number}", content=content) for number, content in enumerate(CONTENTS)]
        orders.append([store.to_dict(), references])
    answer = subprocess.run(
        [sys.executable, "-c", READ], input=json.dumps(orders), capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    expected = [[type(c).__name__, c.hex() if isinstance(c, bytes) else c] for c in CONTENTS]
    assert [json.loads(line) == expected for line in answer.stdout.splitlines()] == [True] * len(BUILDS)


@pytest.mark.parametrize("name", ["two places", "shared"])
def test_a_killed_process_leaves_the_old_entry_or_the_new_one(tmp_path: Path, name: str) -> None:
    store = BUILDS[name](made(tmp_path, name))
    contents = ["old " * 50_000, "new " * 60_000]
    write_elsewhere_until_killed(store, "key", contents, sync=False, moment=0.6)
    assert store.read(store.reference("key")) in contents
    store.delete([store.reference("key")])
    with pytest.raises(ReferenceNotFoundError):
        store.read(store.reference("key"))
