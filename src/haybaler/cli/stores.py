"""`haybaler stores`: what a store holds, for whoever looks after it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

import typer

from haybaler.cli.exits import Exit
from haybaler.cli.output import Progress, complain, line_of, of_entry, printable, say, say_json, to_its_end, write_raw
from haybaler.cli.places import place_of
from haybaler.errors import StoreError
from haybaler.stores.housekeeping import SAFE_AGE

stores = typer.Typer(no_args_is_help=True, help="Look after a store of tool results.")

Url = Annotated[
    str,
    typer.Argument(
        help="The store, for example file:///var/lib/results or redis://localhost; or env:NAME for an environment "
        "variable with the URL, so that no password is seen in the list of processes.",
        show_default=False,
    ),
]
Scope = Annotated[str, typer.Option("--scope", help="A scope inside the store, for example user-7/run-42.")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON, one value a line.")]
References = Annotated[
    list[str], typer.Argument(help="References, as `ls` shows them.", metavar="REFERENCE...", show_default=False)
]


@stores.command("ls")
def list_entries(url: Url, scope: Scope = "", as_json: AsJson = False) -> None:
    """List the entries of a scope and of the scopes inside it: size in bytes, time in UTC, kind, reference."""
    with _opened(url, scope, "list") as store, Progress("Listing", unless_shown=True) as progress:
        for entry in store.list():
            progress.count()
            if as_json:
                say_json(of_entry(entry))
            else:
                say(line_of(entry))


@stores.command("stat")
def tell(url: Url, references: References, scope: Scope = "", as_json: AsJson = False) -> None:
    """Tell size, time and kind of entries, without reading them; their time to live is not renewed."""
    with _opened(url, scope, "stat") as store:
        for reference in references:
            entry = _owner(store, reference).stat(reference)
            if as_json:
                say_json(of_entry(entry))
            else:
                say(line_of(entry))


@stores.command("cat")
def write_out(url: Url, references: References, scope: Scope = "") -> None:
    """Write the contents of entries to the output, one after another: text in UTF-8, binary content as it is."""
    with _opened(url, scope) as store, Progress("Reading"):
        for reference in references:
            content = _owner(store, reference).read(reference)
            write_raw(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)


@stores.command("rm")
def remove(
    url: Url,
    references: Annotated[
        list[str] | None,
        typer.Argument(help="References to remove; without any, the whole scope is.", metavar="[REFERENCE...]"),
    ] = None,
    scope: Scope = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a whole scope is removed.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove entries, or everything of a scope and of the scopes inside it. What is not there counts as removed."""
    if references:
        with _opened(url, scope, "delete") as store:
            for owner, reference in [(_owner(store, reference), reference) for reference in references]:
                owner.delete([reference])
        if as_json:
            say_json({"references": references})
        return
    if not yes:
        _confirm(f"Remove everything in scope '{printable(scope)}'?" if scope else "Remove everything in the store?")
    with _opened(url, scope, "delete_scope") as store, Progress("Removing"):
        deleted = store.delete_scope()
    if as_json:
        say_json(asdict(deleted))
    else:
        say(f"Removed {deleted.entries} entries, {deleted.bytes} bytes.")


@stores.command("sweep")
def sweep(
    url: Url,
    scope: Scope = "",
    safe_age: Annotated[
        float, typer.Option(help="Seconds after which what looks unfinished is taken for left behind.", min=0)
    ] = SAFE_AGE,
    as_json: AsJson = False,
) -> None:
    """Remove what has expired, by the `ttl` in the URL, and what killed writers left. For timers; may overlap."""
    with _opened(url, scope, "sweep") as store, Progress("Sweeping"):
        report = store.sweep(safe_age=safe_age)
    if as_json:
        say_json(asdict(report))
        return
    say(f"Removed {report.expired} expired entries and {report.leftovers} leftovers, {report.bytes} bytes.")
    if report.elsewhere:
        say("Another sweep of the scope is at work, and goes on.")


@contextmanager
def _opened(url: str, scope: str, *needs: str) -> Iterator[Any]:
    """Open the scope of a store that has some methods; typed as anything, since a store may be anybody's."""
    with place_of(url, scope) as store, to_its_end():
        for name in needs:
            if not hasattr(store, name):
                raise StoreError(f"A {type(store).__name__} has no `{name}`.")
        yield store


def _owner(store: Any, reference: str) -> Any:
    return store.scope_of(reference) if hasattr(store, "scope_of") else store


def _confirm(question: str) -> None:
    if not sys.stdin.isatty():
        complain(f"{question} Say so with --yes.")
        raise typer.Exit(Exit.USAGE)
    if not typer.confirm(question, err=True):
        complain("Nothing was removed.")
        raise typer.Exit(Exit.UNCONFIRMED)
