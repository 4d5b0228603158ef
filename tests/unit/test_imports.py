"""The core stays light: a client library or pytest is loaded only by whoever uses it."""

import json
import pkgutil
import subprocess
import sys

import haybaler

CLIENTS = {
    "aioboto3",
    "aiobotocore",
    "aiofiles",
    "boto3",
    "botocore",
    "cryptography",
    "haybaler_filesystem",
    "hypothesis",
    "pytest",
    "redis",
    "tiktoken",
    "typer",
}


def loaded_by(statement: str) -> set[str]:
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return set(json.loads(answer.stdout))


def test_importing_the_core_loads_no_client() -> None:
    assert loaded_by("import haybaler") & CLIENTS == set()


def test_importing_every_module_of_the_core_loads_no_client() -> None:
    modules = [
        module.name
        for module in pkgutil.walk_packages(haybaler.__path__, "haybaler.")
        if not module.name.startswith(("haybaler.testing", "haybaler.cli"))
    ]
    assert "haybaler.stores.registry" in modules
    assert loaded_by("\n".join(f"import {name}" for name in modules)) & CLIENTS == set()


def test_making_a_store_from_a_url_loads_no_client() -> None:
    statement = "from haybaler.stores.registry import store_from_url; store_from_url('memory://')"
    assert loaded_by(statement) & CLIENTS == set()
