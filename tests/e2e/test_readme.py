"""The documents tell the truth: their code runs, their links lead somewhere, their first screen has what it must."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.services.redis_servers import redis_server
from tests.services.s3_servers import SEAWEEDFS, s3_server

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("backends/*/README.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("examples/*/README.md")),
]
SERVED = [ROOT / "backends/redis/README.md", ROOT / "backends/s3/README.md"]
FIRST_SCREEN = 40
LONGEST_EXAMPLE = 20


def blocks_of(document: Path) -> Iterator[tuple[int, str]]:
    """Yield the first line's number and the code of each Python block."""
    text = document.read_text(encoding="utf-8")
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, block.start(1)) + 1, block.group(1)


BLOCKS = [
    pytest.param(document, line, code, id=f"{document.relative_to(ROOT)}:{line}")
    for document in DOCUMENTS
    if document not in SERVED
    for line, code in blocks_of(document)
]


@pytest.mark.filterwarnings("ignore::haystack.utils.experimental.ExperimentalWarning")  # of Haystack's own classes
@pytest.mark.parametrize(("document", "line", "code"), BLOCKS)
def test_every_python_block_runs_by_itself(
    document: Path, line: int, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    # What a block allows to be deserialized is not allowed to any other test.
    monkeypatch.setattr("haystack.core.serialization_security._extra_allowed_modules", [])
    # The empty lines before it make the numbers in a traceback those of the document.
    exec(compile("\n" * (line - 1) + code, document, "exec"), {"__name__": "__main__"})


def run_blocks(document: Path, replacements: Mapping[str, str]) -> None:
    """Run the blocks of a document one after another, as one program."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line, code in blocks_of(document):
        for written, meant in replacements.items():
            code = code.replace(written, meant)  # noqa: PLW2901
        exec(compile("\n" * (line - 1) + code, document, "exec"), namespace)


def test_the_code_for_redis_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    with redis_server() as server:
        monkeypatch.setenv("REDIS_URL", server.url)
        monkeypatch.setenv("REDIS_PASSWORD", "not asked for")
        run_blocks(SERVED[0], {"redis://localhost:6379/0": server.url})


def test_the_code_for_s3_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server(SEAWEEDFS) as server:
        for name, value in server.credentials.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("MY_KEY", server.credentials["AWS_ACCESS_KEY_ID"])
        monkeypatch.setenv("MY_SECRET", server.credentials["AWS_SECRET_ACCESS_KEY"])
        server.client.create_bucket(Bucket="my-bucket")
        run_blocks(SERVED[1], {})


def test_the_first_screen_has_installation_both_commands_and_a_short_example() -> None:
    readme = ROOT / "README.md"
    screen = readme.read_text(encoding="utf-8").splitlines()[: FIRST_SCREEN - 1]
    for needed in ('pip install "haybaler[filesystem]"', "make demo", "make test"):
        assert any(needed in line for line in screen), needed
    line, code = next(blocks_of(readme))
    length = len(code.splitlines())
    assert length <= LONGEST_EXAMPLE
    assert line + length < FIRST_SCREEN


def test_the_first_example_is_the_one_in_the_examples() -> None:
    _, code = next(blocks_of(ROOT / "README.md"))
    example = (ROOT / "examples/quickstart.py").read_text(encoding="utf-8").partition('"""\n\n')[2]
    assert [line for line in code.splitlines() if line] == [line for line in example.splitlines() if line]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_every_place_that_the_guarantees_name_has_tests() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Guarantees")[2].partition("**Not")[0]
    places = set(re.findall(r"`((?:tests|src)/[\w/.]+)`", section))
    assert places
    assert [place for place in places if not (ROOT / place).exists()] == []
    folders = [ROOT / place for place in places if place.startswith("tests/") and not place.endswith(".py")]
    assert [folder for folder in folders if not list(folder.glob("test_*.py"))] == []
