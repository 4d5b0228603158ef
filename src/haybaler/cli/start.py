"""Where the script `haybaler` begins."""

import sys

from haybaler.cli.exits import Exit


def main() -> None:
    """Run the command line, or say what it lacks."""
    try:
        from haybaler.cli.commands import run  # noqa: PLC0415 - it needs what may not be installed
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        sys.stderr.write("haybaler: The command line needs its extra: pip install 'haybaler[cli]'\n")
        sys.exit(Exit.USAGE)
    sys.exit(run())
