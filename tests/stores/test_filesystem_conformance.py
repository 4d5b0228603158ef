"""The file store keeps every law of the conformance kit."""

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest

from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import MakeStore, StoreConformance
from haybaler_filesystem import FileSystemToolResultStore


class FileConformance(StoreConformance):
    ttl = 1000.0
    settings: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        self._root = tmp_path / "root"
        return self._store

    def _store(self, name: str = "", **limits: Any) -> FileSystemToolResultStore:
        return FileSystemToolResultStore(f"{self._root}{name}", **self.settings, **limits)

    def limited(self, **limits: Any) -> ToolResultStore | None:
        return self._store(**limits)

    def pass_time(self, store: ToolResultStore, seconds: float) -> None:
        self._pass_time_below(self._root, seconds)

    def _pass_time_below(self, root: Path, seconds: float) -> None:
        for path in root.rglob("*"):
            if path.is_file() and ".seals" not in path.parts:
                used = path.stat().st_mtime - seconds
                os.utime(path, (used, used))

    def damage(self, store: ToolResultStore, reference: str) -> bool:
        assert isinstance(store, FileSystemToolResultStore)
        path = Path(store.root, reference)
        path.write_bytes(path.read_bytes()[:-1])
        return True


class TestFilesWithAbsoluteReferences(FileConformance):
    """The defaults."""


class TestFilesWithRelativeReferencesAndFsync(FileConformance):
    settings: ClassVar[dict[str, Any]] = {"references": "relative", "fsync": True}
