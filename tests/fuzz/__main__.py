"""Feed each property in turn, in a process of its own; end with 1 if one of them is broken."""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, settings

PROPERTIES = "tests.hostile.test_fuzz"
ROUND = 1_000  # examples between two looks at the clock
FOUND = Path(".fuzz")  # what leads to code that was not reached before, kept for the next time

# The properties have the settings of the profile that is loaded when they are imported.
settings.register_profile("fuzz", max_examples=ROUND, deadline=None, suppress_health_check=list(HealthCheck))


def properties(module: ModuleType) -> dict[str, Any]:
    """Return the properties of a module by name."""
    return {name: value for name, value in vars(module).items() if hasattr(value, "hypothesis")}


def feed(name: str, seconds: float) -> None:
    """Feed one property; guided by the code that it reaches if atheris is installed, otherwise at random."""
    settings.load_profile("fuzz")
    if find_spec("atheris") is None:
        _feed_at_random(properties(import_module(PROPERTIES))[name], seconds)
        return
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["haybaler", "haybaler_filesystem", "haybaler_redis", "haybaler_s3"]):
        module = import_module(PROPERTIES)
    place = FOUND / name
    place.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={max(int(seconds), 1)}", "-max_len=4096", f"-artifact_prefix={place}/", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(place)], properties(module)[name].hypothesis.fuzz_one_input)
    atheris.Fuzz()


def _feed_at_random(test: Callable[[], None], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        test()


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for all properties together (default 5)")
    parser.add_argument("--only", help="one property, by name; in this process")
    given = parser.parse_args()
    if given.only:
        feed(given.only, given.minutes * 60)
        return 0
    names = list(properties(import_module(PROPERTIES)))
    broken = []
    for name in names:
        print(f"{name} ...", flush=True)  # noqa: T201 - a command
        command = [sys.executable, "-m", "tests.fuzz", "--only", name, "--minutes", str(given.minutes / len(names))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            broken.append(name)
            print(done.stdout[-4_000:], done.stderr[-4_000:], flush=True)  # noqa: T201
    print(f"{len(names) - len(broken)} of {len(names)} properties held", *broken, sep="\n  ")  # noqa: T201
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
