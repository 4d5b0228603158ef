"""The kit finds what it is made to find: each broken store fails the test of the law that it breaks."""

import subprocess
import sys
from pathlib import Path

from tests.stores.broken import BROKEN

import haybaler.testing


def test_the_documented_example_passes_the_kit(tmp_path: Path) -> None:
    example = str(haybaler.testing.__doc__).partition("```python\n")[2].partition("```")[0]
    (tmp_path / "test_folder_store.py").write_text(example)
    answer = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-3_000:] + answer.stderr[-3_000:]


def test_every_broken_store_fails_the_test_of_its_law() -> None:
    expected = {f"{suite.__name__}::{test}" for suite, tests in BROKEN.items() for test in tests}
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--tb=no", "-rf", "-p", "no:cacheprovider"),
            *(f"tests/stores/broken.py::{name}" for name in sorted(expected)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line.removeprefix("FAILED ") for line in answer.stdout.splitlines() if line.startswith("FAILED ")]
    found = {name.partition("::")[2].partition(" ")[0].partition("[")[0] for name in failed}
    assert found == expected, answer.stdout[-3_000:] + answer.stderr[-3_000:]
