"""Every fault, and the table of what it did: backend, fault, and each guarantee."""

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial

from rich.table import Table
from tests.faults.injection.faults import Fault, Outcome, try_out
from tests.faults.injection.file_places import FILE_FAULTS
from tests.faults.injection.ladder_places import LADDER_FAULTS
from tests.faults.injection.processes import KILLED, try_killing
from tests.faults.injection.redis_places import REDIS_FAULTS
from tests.faults.injection.s3_places import S3_FAULTS

EXPERIMENTS: dict[Fault, Callable[..., Outcome]] = {
    **{fault: partial(try_out, fault) for fault in (*FILE_FAULTS, *REDIS_FAULTS, *S3_FAULTS, *LADDER_FAULTS)},
    KILLED: try_killing,
}


def table(outcomes: Sequence[Outcome]) -> Table:
    """
    Return the matrix.

    :param outcomes: What came of each fault.
    :returns: A row for each, with the trials, what became of the results, and whether each guarantee held.
    """
    shown = Table(title="Faults in the middle of Agents' runs", title_justify="left")
    for heading in ("backend", "fault"):
        shown.add_column(heading)
    for heading in ("trials", "offloaded", "kept whole", "pages read"):
        shown.add_column(heading, justify="right")
    for heading in (
        "runs that\ndid not go on",
        "entries\nlost",
        "entries\ntorn",
        "longest added\ndelay",
        "longest\nrecovery",
    ):
        shown.add_column(heading, justify="right")
    for outcome in outcomes:
        tally, fault = outcome.tally, outcome.fault
        shown.add_row(
            *(fault.backend, fault.name, str(outcome.trials)),
            *map("{:,}".format, (tally.offloaded, tally.kept, tally.read, tally.unfinished, tally.lost, tally.torn)),
            f"{max(outcome.delays):.2f} of {fault.delay:.0f} s" if fault.place else "-",
            f"{max(outcome.recoveries):.2f} s",
        )
    return shown


def failures(outcome: Outcome) -> list[str]:
    """
    Return what must not be.

    :param outcome: What came of a fault.
    :returns: In words; nothing if each guarantee held. A fault that strikes nothing at all has not been tried.
    """
    nothing = [] if outcome.tally.offloaded else ["not a single result was offloaded"]
    return [*nothing, *outcome.problems, *([f"losses: {outcome.tally.losses}"] if outcome.tally.losses else [])]


def in_silence() -> None:
    """Say nothing of the failures that are wanted."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
