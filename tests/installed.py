"""What only an installation from wheels can show; `make wheel-check` runs it outside the source tree."""

import sys
from importlib.metadata import distribution, entry_points
from pathlib import Path

import pytest

DISTRIBUTIONS = {
    "haybaler": "haybaler",
    "haybaler-filesystem": "haybaler_filesystem",
    "haybaler-redis": "haybaler_redis",
    "haybaler-s3": "haybaler_s3",
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_distribution_is_installed_and_not_linked_to_a_source_tree(name: str) -> None:
    initial = Path(str(distribution(name).locate_file(f"{DISTRIBUTIONS[name]}/__init__.py")))
    assert initial.is_file()
    assert initial.is_relative_to(sys.prefix)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_wheel_carries_types_license_and_description(name: str) -> None:
    wheel = distribution(name)
    files = {str(file) for file in wheel.files or ()}
    assert f"{DISTRIBUTIONS[name]}/py.typed" in files
    assert any(file.endswith("/licenses/LICENSE") for file in files)
    assert wheel.metadata["License-Expression"] == "Apache-2.0"
    assert wheel.metadata.json["description"]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_wheel_carries_nothing_but_its_package(name: str) -> None:
    scripts = {script.name for script in distribution(name).entry_points.select(group="console_scripts")}
    tops = {file.parts[0] for file in distribution(name).files or () if file.name not in scripts}
    assert {top for top in tops if not top.endswith(".dist-info")} == {DISTRIBUTIONS[name]}


def test_the_stores_are_found_through_their_entry_points() -> None:
    stores = {entry.name: entry.load().__name__ for entry in entry_points(group="haybaler.stores")}
    assert stores == {
        "memory": "InMemoryToolResultStore",
        "file": "FileSystemToolResultStore",
        "redis": "RedisToolResultStore",
        "rediss": "RedisToolResultStore",
        "unix": "RedisToolResultStore",
        "s3": "S3ToolResultStore",
    }
