"""Every example runs, as a reader would run it, and says what it is there to say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# For each example, a line of what it prints must contain this.
SAYS = {
    "demo.py": "Totals  peak ",
    "own_compactor.py": "{'day': 0} 3 lines",
    "own_store.py": "sqlite:@user-7/@run-42/report",
    "per_run_store.py": "Grace reads Alan's result: The reference does not belong to this store and scope.",
    "quickstart.py": "Tool result offloaded to text (14008 characters) at '",
    "yaml_pipeline.py": "type: haybaler.compactors.sliding_window.SlidingWindowCompactor",
}


def run(example: str, *arguments: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "TIKTOKEN_"))}
    return subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / example, *arguments],
        cwd=folder,
        env={**inherited, "PYTHONUTF8": "1", **environment},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_every_example_is_listed_here() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("example", SAYS)
def test_an_example_runs_and_says_what_it_shows(example: str, tmp_path: Path) -> None:
    result = run(example, folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert any(SAYS[example] in line for line in result.stdout.splitlines()), result.stdout


@pytest.mark.parametrize("columns", [80, 100])
def test_the_demo_fits_the_terminal_and_keeps_its_files_where_it_is_told(columns: int, tmp_path: Path) -> None:
    result = run(
        "demo.py",
        *("--store", "kept"),
        folder=tmp_path,
        COLUMNS=str(columns),
        TIKTOKEN_CACHE_DIR=os.environ["TIKTOKEN_CACHE_DIR"],
    )
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= columns
    assert "\u2026" not in result.stdout  # nothing is cut
    assert "pickle writes protocol" in result.stdout
    assert list((tmp_path / "kept").glob("compacted_read_module_*.txt"))


def test_the_demo_fails_when_the_conversation_did_not_have_to_be_compacted(tmp_path: Path) -> None:
    code = "import demo, runpy; demo.WINDOW = 10**6; import asyncio, rich.console as c; "
    code += "print(asyncio.run(demo.main(c.Console(), 'kept')))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES), "OPENAI_API_KEY": ""},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "was compacted 0 times, not 3" in result.stdout.replace("\n", " ")
    assert "Nothing was read back" in result.stdout.replace("\n", " ")
