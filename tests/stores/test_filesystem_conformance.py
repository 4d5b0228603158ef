"""The file store keeps every law of the conformance kit."""

from pathlib import Path

import pytest

from haybaler.stores.protocol import ToolResultStore
from haybaler.testing import MakeStore, StoreConformance
from haybaler_filesystem import FileSystemToolResultStore


class FileConformance(StoreConformance):
    def damage(self, store: ToolResultStore, reference: str) -> bool:
        assert isinstance(store, FileSystemToolResultStore)
        path = Path(store.root, reference)
        path.write_bytes(path.read_bytes()[:-1])
        return True


class TestFilesWithAbsoluteReferences(FileConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: FileSystemToolResultStore(tmp_path / "root")


class TestFilesWithRelativeReferencesAndFsync(FileConformance):
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: FileSystemToolResultStore(tmp_path / "root", references="relative", fsync=True)
