"""What happens to files when the process that writes them is killed."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

from haystack.dataclasses import ChatMessage
from tests.faults.injection.faults import Fault, Outcome
from tests.faults.injection.fleet import LARGE, RESULTS, RUNS, Fleet, Tally, content

from haybaler.errors import ReferenceNotFoundError, StoreError
from haybaler_filesystem import FileSystemToolResultStore

# Writes large files in runs without end, and tells each conversation once it is over.
_WRITER = """
import asyncio, json, sys, warnings
warnings.simplefilter("ignore")
from tests.faults.injection.fleet import Fleet
from haybaler_filesystem import FileSystemToolResultStore
fleet = Fleet(FileSystemToolResultStore(sys.argv[1]))
async def serve():
    for number in range(10_000):
        names = [f"{sys.argv[2]}-{number}-{n}" for n in range(int(sys.argv[3]))]
        for name, result in zip(names, await fleet.run_async(names), strict=True):
            print(json.dumps([name, [message.to_dict() for message in result["messages"]]]), flush=True)
asyncio.run(serve())
"""

KILLED = Fault("files", "the process killed", None, delay=0.0, share=0.5)


def try_killing(*, trials: int, seed: int = 0) -> Outcome:
    """
    Kill a process that writes large files at a random moment, start another one on the same folder, and so on.

    :param trials: How many times.
    :param seed: For the moments.
    :returns: What came of it. A run that was killed did not go on; those that had ended count.
    """
    chance, outcome = Random(f"{KILLED.name}/{seed}"), Outcome(KILLED)
    with tempfile.TemporaryDirectory(prefix="haybaler-") as folder:
        fleet = Fleet(FileSystemToolResultStore(folder))
        for trial in range(KILLED.trials(trials)):
            conversations = list(_killed(folder, f"{LARGE}{trial}", chance))
            names = [name for name, _ in conversations]
            results: list[Any] = [{"messages": list(map(ChatMessage.from_dict, said))} for _, said in conversations]
            outcome.tally.add(fleet.check(names, results))
            outcome.tally.add(_torn(Path(folder), fleet.store))
            outcome.delays.append(0.0)
            begun = monotonic()
            after = fleet.check([f"new-{trial}"], fleet.run_sync([f"new-{trial}"]))
            outcome.tally.add(after)
            outcome.recoveries.append(monotonic() - begun)
            fleet.store.delete_scope()
            outcome.trials += 1
    return outcome


def _killed(folder: str, name: str, chance: Random) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Let a process write and kill it; return the conversations that it has finished."""
    command = [sys.executable, "-c", _WRITER, folder, name, str(RUNS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        sleep(chance.uniform(0, 0.3))
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
    yield from (json.loads(line) for line in lines if line.endswith("\n"))


def _torn(root: Path, store: FileSystemToolResultStore) -> Tally:
    """Read every file that stands in the folder as an entry: none may be there in part."""
    tally = Tally()
    for path in root.glob("@*/[!.]*"):
        run = path.parent.name.removeprefix("@")
        owner = store.scoped(run)
        try:
            found = owner.read(owner.reference(path.name))
        except ReferenceNotFoundError:
            continue  # so it is for everybody
        except StoreError as error:
            tally.torn += 1
            tally.details.append(f"{path}: {error!r}")
        else:
            step = int(path.name.partition("_")[0])
            tally.torn += found not in [content(run, step, number) for number in range(RESULTS)]
    return tally
