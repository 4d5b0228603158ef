"""The tables, and the same figures as JSON."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.timing import Case

RAW = "the floor"
HAYBALER = "haybaler"
HAYSTACK = "haystack-ai"


@dataclass(frozen=True, slots=True)
class Column:
    """
    A figure in a table.

    :param figure: Its name in the samples.
    :param header: What stands above it.
    :param milliseconds: Whether it is a time, measured in seconds.
    """

    figure: str
    header: str
    milliseconds: bool = True

    def text(self, case: Case) -> str:
        value = case.median(self.figure)
        if value is None:
            return ""
        value = value * 1000 if self.milliseconds else value
        unit = " ms" if self.milliseconds else ""
        return f"{value:,.0f}{unit}" if value >= 100 else f"{value:,.1f}{unit}" if value >= 10 else f"{value:.2f}{unit}"


TIME = Column("seconds", "time")
# The longest time that the event loop stands still, and the most that its own thread does in one go.
LOOP = (Column("stall", "loop stalls"), Column("work", "own work"))
LEGEND = (
    "Medians; the last column is the median ratio of the first figure to the floor's, each within one repetition.\n"
    "loop stalls: the longest time the event loop stands still, whoever is to blame. own work: the most processor\n"
    "time that its own thread spends in one go, which other processes cannot disturb."
)


@dataclass(frozen=True, slots=True)
class Group:
    """
    Cases that stand in one table.

    :param name: How the command line calls it.
    :param title: What is measured.
    :param target: What haybaler has to reach.
    :param columns: The figures; ratios are those of the first.
    :param cases: The rows. Those of one subject stand together, its floor last. Where there are several floors, named
        `RAW` and what they are, the quickest counts.
    """

    name: str
    title: str
    target: str
    columns: Sequence[Column]
    cases: Sequence[Case]

    def floor_of(self, case: Case) -> Case | None:
        """Return what a case is compared to, or None."""
        floors = (other for other in self.cases if other.subject == case.subject and other.who.startswith(RAW))
        return min(floors, key=lambda floor: floor.median(self.columns[0].figure) or 0.0, default=None)


def table(group: Group) -> Table:
    """
    Lay out a group: medians, and where there is a floor the median ratio to it.

    :param group: The group, with its samples.
    :returns: The table.
    """
    laid_out = Table(title=f"{group.title}\n{group.target}", title_justify="left", title_style="bold")
    laid_out.add_column("", no_wrap=True)
    laid_out.add_column("", no_wrap=True)
    for column in group.columns:
        laid_out.add_column(column.header, justify="right")
    with_floor = any(case.who.startswith(RAW) for case in group.cases)
    if with_floor:
        laid_out.add_column("x floor", justify="right")
    for case, following in pairwise([*group.cases, None]):
        assert case is not None
        first = next(other for other in group.cases if other.subject == case.subject) is case
        floor = group.floor_of(case)
        ratio = case.ratio(floor, group.columns[0].figure) if floor is not None and floor is not case else None
        laid_out.add_row(
            case.subject if first else "",
            case.who,
            *(column.text(case) for column in group.columns),
            *(["" if ratio is None else f"{ratio:,.2f}" if ratio < 100 else f"{ratio:,.0f}"] if with_floor else []),
            style="bold" if case.who.startswith(HAYBALER) else None,
            end_section=following is not None and following.subject != case.subject,
        )
    return laid_out


def machine(repetitions: int) -> dict[str, str | int]:
    """
    Say where and with what it was measured.

    :param repetitions: How many samples each case has.
    :returns: What belongs beside the figures.
    """
    return {
        "haybaler": version("haybaler"),
        "haystack-ai": version("haystack-ai"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count() or 0,
        "repetitions": repetitions,
    }


def console() -> Console:
    """Return where tables go; wide enough for them also where the output is a file."""
    terminal = Console()
    return terminal if terminal.is_terminal else Console(width=130)


def write_json(file: Path, groups: Sequence[Group], repetitions: int) -> None:
    """
    Write every sample.

    :param file: Where to.
    :param groups: The groups. Times are in seconds.
    :param repetitions: How many samples each case has.
    """
    content = {
        "machine": machine(repetitions),
        "groups": [
            {
                "name": group.name,
                "title": group.title,
                "target": group.target,
                "cases": [
                    {
                        "subject": case.subject,
                        "who": case.who,
                        "median": {figure: case.median(figure) for figure in case.samples[0]},
                        "samples": case.samples,
                    }
                    for case in group.cases
                ],
            }
            for group in groups
        ],
    }
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
