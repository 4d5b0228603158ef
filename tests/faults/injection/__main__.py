"""The command line: `python -m tests.faults.injection [--trials N] [--only TEXT]`."""

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from rich.console import Console
from tests.faults.injection.matrix import EXPERIMENTS, failures, in_silence, table
from tests.services.s3_servers import ENVIRONMENT


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.injection", description="Break stores in the middle of Agents' runs."
    )
    parser.add_argument("--trials", type=int, default=100, help="of each fault, fewer of slow ones; default 100")
    parser.add_argument("--seed", type=int, default=0, help="for the moments at which faults strike")
    jobs = 2 * (os.cpu_count() or 1)  # mostly they wait
    parser.add_argument("--jobs", type=int, default=jobs, help=f"how many faults at the same time; default {jobs}")
    parser.add_argument("--only", default="", help="the faults with this text in their backend or name")
    options = parser.parse_args()

    os.environ.update(ENVIRONMENT)
    chosen = [
        experiment for fault, experiment in EXPERIMENTS.items() if options.only in f"{fault.backend} {fault.name}"
    ]
    # Each in a process of its own, whose limits and user it may change.
    with ProcessPoolExecutor(
        max_tasks_per_child=1, initializer=in_silence, mp_context=get_context("spawn")
    ) as processes:
        futures = [processes.submit(experiment, trials=options.trials, seed=options.seed) for experiment in chosen]
        outcomes = [future.result() for future in futures]
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table(outcomes))
    broken = [(outcome.fault, failure) for outcome in outcomes for failure in failures(outcome)]
    for fault, failure in broken:
        console.print(f"{fault.backend}, {fault.name}: {failure}", markup=False, highlight=False)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
