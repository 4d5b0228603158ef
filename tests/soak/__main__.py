"""The command line: `python -m tests.soak [--minutes N] [--stores files,redis,s3] [--users N]`."""

import argparse
import asyncio
import os
import sys
from contextlib import ExitStack

from rich.console import Console
from tests.services.s3_servers import ENVIRONMENT
from tests.soak.findings import Findings, watch
from tests.soak.places import PLACES
from tests.soak.report import activities, comparison
from tests.soak.resources import CLOSED, OPEN, compared, held, open_files
from tests.soak.soaking import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Many users of real stores, for a while.")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long; default 5")
    parser.add_argument("--stores", default=",".join(PLACES), help=f"which; default {','.join(PLACES)}")
    parser.add_argument("--users", type=int, default=20, help="of each store at once; default 20")
    parser.add_argument("--seed", type=int, default=0, help="for what they do")
    options = parser.parse_args()

    os.environ.update(ENVIRONMENT)
    findings = Findings()
    with ExitStack() as stack:
        places = [stack.enter_context(PLACES[name]()) for name in options.stores.split(",")]
        stack.enter_context(watch(findings))
        asyncio.run(asyncio.sleep(0))  # what the interpreter opens once is open then
        before = held(places)
        warm, end = asyncio.run(soak(places, findings, options.minutes * 60, options.users, options.seed))
        after, left = held(places), [*open_files(), *(entry for place in places for entry in place.entries())]
    rows = [
        *compared("while the stores are open", warm, end, OPEN),
        *compared("when all is closed", before, after, CLOSED),
    ]

    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(activities(findings))
    console.print(comparison(rows))
    if not all(row.is_fine for row in rows):
        console.print("Left at the end:", *left, sep="\n", markup=False, highlight=False)
    if findings.faults:
        console.print("The first faults:", findings.details, sep="\n", markup=False, highlight=False)
    return int(bool(findings.faults) or not all(row.is_fine for row in rows))


sys.exit(main())
