"""No test downloads a vocabulary."""

from pathlib import Path
from typing import Any

import pytest
import tiktoken.load
from tests.vocabulary import NAMES, fill_vocabulary
from tiktoken_ext import openai_public  # type: ignore[import-untyped]


def _refuse(address: str) -> bytes:
    raise AssertionError(f"tiktoken wanted to download {address}")


@pytest.mark.parametrize("encoding", NAMES)
def test_tiktoken_accepts_the_shipped_vocabulary(
    encoding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiktoken.load, "read_file", _refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(fill_vocabulary(tmp_path / "vocabulary")))
    settings: dict[str, Any] = getattr(openai_public, encoding)()
    assert tiktoken.Encoding(**settings).encode("haybaler") != []


def test_filling_the_folder_again_replaces_only_what_is_missing(tmp_path: Path) -> None:
    first, second = (fill_vocabulary(tmp_path) / name for name in NAMES.values())
    first.write_bytes(b"kept")
    second.unlink()
    fill_vocabulary(tmp_path)
    assert first.read_bytes() == b"kept"
    assert {file.name for file in tmp_path.iterdir()} == set(NAMES.values())
