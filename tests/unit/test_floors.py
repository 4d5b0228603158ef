"""The versions that `make test-floor` installs are the ones that the distributions promise to work with."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]


def _tested() -> set[tuple[str, Version]]:
    lines = (ROOT / "tests/floors.txt").read_text().splitlines()
    return {(name, Version(version)) for name, version in (line.split("==") for line in lines if "==" in line)}


def _requirements() -> Iterator[Requirement]:
    for project in (ROOT / "pyproject.toml", *ROOT.glob("backends/*/pyproject.toml")):
        settings = tomllib.loads(project.read_text())
        groups = [settings["project"].get("dependencies", [])]
        groups += settings["project"].get("optional-dependencies", {}).values()
        groups += [
            settings.get("dependency-groups", {}).get(name, []) for name in ("demo", "server", "hayhooks", "test")
        ]
        yield from (Requirement(line) for group in groups for line in group if isinstance(line, str))


def test_each_promised_version_is_the_one_that_is_tested() -> None:
    promised = {
        (requirement.name, Version(specifier.version))
        for requirement in _requirements()
        for specifier in requirement.specifier
        if specifier.operator == ">="
    }
    assert promised == _tested()


def test_each_dependency_names_its_lowest_version() -> None:
    assert [
        str(requirement)
        for requirement in _requirements()
        if not requirement.name.startswith("haybaler")
        and not any(specifier.operator in {">=", "=="} for specifier in requirement.specifier)
    ] == []
