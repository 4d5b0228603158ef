"""The tables."""

from collections.abc import Sequence

from rich.table import Table
from tests.soak.findings import Findings
from tests.soak.resources import Row


def activities(findings: Findings) -> Table:
    """
    Lay out what went on, faults first.

    :param findings: What was noted.
    :returns: The table.
    """
    table = Table(title="What went on", title_justify="left")
    table.add_column("", overflow="fold")
    table.add_column("times", justify="right")
    for what, times in sorted(findings.faults.items()):
        table.add_row(f"FAULT {what}", f"{times:,}", style="bold red")
    for what, times in sorted(findings.done.items()):
        table.add_row(what, f"{times:,}")
    return table


def comparison(rows: Sequence[Row]) -> Table:
    """
    Lay out what was held.

    :param rows: The comparisons.
    :returns: The table.
    """
    table = Table(title="What is held", title_justify="left")
    for header in ("", "", "before", "after", "may grow by", ""):
        table.add_column(header, justify="left" if not header else "right")
    for row in rows:
        table.add_row(
            row.when,
            row.figure,
            f"{row.before:,.0f}",
            f"{row.after:,.0f}",
            str(row.tolerance),
            "" if row.is_fine else "TOO MUCH",
            style=None if row.is_fine else "bold red",
        )
    return table
