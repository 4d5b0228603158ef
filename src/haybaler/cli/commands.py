"""The whole command line: its commands, and how each run of it ends."""

from collections.abc import Sequence
from importlib.metadata import version

import typer

from haybaler.cli.exits import Exit, exit_of
from haybaler.cli.output import complain, say, to_its_end, without_urls
from haybaler.cli.stores import stores
from haybaler.errors import HaybalerError

# No traceback shows the values of variables: one of them is a URL.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Tools around haybaler's stores.")
app.add_typer(stores, name="stores")


@app.callback(invoke_without_command=True)
def main(show_version: bool = typer.Option(False, "--version", help="Show the version and exit.")) -> None:
    """Look after what haybaler has stored."""
    if show_version:
        say(version("haybaler"))
        raise typer.Exit(Exit.OK)


def run(arguments: Sequence[str] | None = None) -> int:
    """
    Run one command.

    :param arguments: What follows the program's name; None for the arguments of the process.
    :returns: The exit code.
    """
    try:
        with to_its_end():
            code = typer.main.get_command(app).main(arguments, "haybaler", standalone_mode=False)
    except typer.Exit as ended:
        code = ended.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = Exit.INTERRUPTED
    except HaybalerError as error:
        complain(str(error))
        return exit_of(error)
    except Exception as error:  # noqa: BLE001 - somebody else's text may repeat a URL
        return _ended_by(error)
    if code == Exit.INTERRUPTED:  # some versions of typer say so, others raise
        complain("Interrupted.")
    return code if isinstance(code, int) else Exit.OK


def _ended_by(error: Exception) -> int:
    # What typer raises for a mistake on the command line; where it stands depends on typer's version.
    if hasattr(error, "format_message"):
        # Up to where it repeats what was too much, which may be a part of a URL.
        text = without_urls(error.format_message().partition(" (")[0]).rstrip(".")
        if text:  # or it was the help that was shown
            complain(f"{text}. Try --help.")
        return Exit.USAGE
    complain(f"Unexpected {type(error).__name__}.")
    return Exit.FAILED
