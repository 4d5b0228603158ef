"""Tools that read the source of Python's standard library: whole files, as careless tools do."""

import sysconfig
from pathlib import Path
from typing import Annotated

from haystack.tools import tool

STDLIB = Path(sysconfig.get_path("stdlib"))


@tool
def list_modules() -> str:
    """List the modules of the standard library that are single files, with their sizes in bytes."""
    return "\n".join(f"{file.stem} {file.stat().st_size}" for file in sorted(STDLIB.glob("[a-z]*.py")))


@tool
def read_module(name: Annotated[str, "The name of a module, as list_modules gives it"]) -> str:
    """Return the whole source of a module of the standard library."""
    file = STDLIB / f"{name}.py"
    if not name.isidentifier() or not file.is_file():
        return f"There is no module {name!r} among those that list_modules gives."
    return file.read_text(encoding="utf-8")
