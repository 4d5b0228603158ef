"""The command line: `python -m benchmarks [GROUP ...] [--repetitions N] [--quick] [--json FILE]`."""

import argparse
import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

from haystack.utils.experimental import ExperimentalWarning
from tests.vocabulary import fill_vocabulary

from benchmarks.agents import agents, growth
from benchmarks.compaction import compaction, loading
from benchmarks.counting import counts, steps
from benchmarks.files import files
from benchmarks.group_commit import group_commit
from benchmarks.neighbours import neighbours
from benchmarks.offload_step import one_step
from benchmarks.redis import redis
from benchmarks.replay import replay
from benchmarks.report import LEGEND, Group, console, machine, table, write_json
from benchmarks.runs import many_runs
from benchmarks.s3 import s3
from benchmarks.write_behind import one_call, one_run

GROUPS: dict[str, Callable[..., Awaitable[Group]]] = {
    "step": one_step,
    "runs": many_runs,
    "agents": agents,
    "growth": growth,
    "compaction": compaction,
    "loading": loading,
    "neighbours": neighbours,
    "steps": steps,
    "counts": counts,
    "replay": replay,
    "files": files,
    "redis": redis,
    "s3": s3,
    "behind": one_call,
    "behind-run": one_run,
    "groups": group_commit,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure haybaler beside haystack-ai's own classes and the raw operations.",
    )
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"what to measure: {', '.join(GROUPS)}; default all")
    parser.add_argument("--repetitions", type=int, help="samples of each case; default 7, or 3 with --quick")
    parser.add_argument("--quick", action="store_true", help="smaller inputs, fewer samples: half a minute in all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample to a file, times in seconds")
    options = parser.parse_args()
    unknown = set(options.groups) - set(GROUPS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(GROUPS)}")
    repetitions = options.repetitions or (3 if options.quick else 7)

    os.environ["TIKTOKEN_CACHE_DIR"] = str(fill_vocabulary(Path(__file__).parents[1] / ".vocabulary"))
    warnings.simplefilter("ignore", ExperimentalWarning)
    asyncio.run(_measure(options.groups or list(GROUPS), repetitions, options))


async def _measure(names: list[str], repetitions: int, options: argparse.Namespace) -> None:
    output = console()
    output.print(" · ".join(f"{name} {value}" for name, value in machine(repetitions).items()))
    output.print(LEGEND)
    measured = []
    for name in names:
        group = await GROUPS[name](repetitions=repetitions, quick=options.quick)
        output.print()
        output.print(table(group))
        measured.append(group)
    if options.json:
        write_json(options.json, measured, repetitions)


if __name__ == "__main__":  # not in the processes that some of the groups start
    main()
