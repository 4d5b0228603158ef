"""A store of your own: three methods over paths. References, scopes, batches and errors come from the base class."""

import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from haybaler import BaseToolResultStore, GroupCommit, ReferenceNotFoundError, StoreError
from haybaler.testing import MakeStore, StoreConformance
from haybaler.workers import run_in_worker


class SQLiteToolResultStore(BaseToolResultStore):
    """Keeps results in a table, text as UTF-8 bytes, since SQLite's own text has no lone surrogates."""

    def __init__(self, file: str) -> None:
        # What many runs write at the same time goes into one transaction.
        super().__init__(location="sqlite:", group_commit=GroupCommit(in_flight=1, entries=500))
        self._file = file

    def _settings(self) -> dict[str, str]:
        return {"file": self._file}

    def _execute(self, statement: str, rows: Sequence[Sequence[object]]) -> list[tuple[str, bytes]]:
        connection = sqlite3.connect(self._file, timeout=60)
        try:
            connection.execute("PRAGMA synchronous = OFF")  # survives a crash of the process, not a loss of power
            with connection:  # one transaction
                connection.execute("CREATE TABLE IF NOT EXISTS results (path TEXT PRIMARY KEY, kind TEXT, data BLOB)")
                return [found for row in rows for found in connection.execute(statement, row)]
        finally:
            connection.close()

    def _put(self, path: str, content: str | bytes) -> None:
        self._put_many([(path, content)])

    def _get(self, path: str) -> str | bytes:
        for kind, data in self._execute("SELECT kind, data FROM results WHERE path = ?", [(path,)]):
            return data.decode("utf-8", "surrogatepass") if kind == "str" else data
        raise ReferenceNotFoundError("Nothing is stored under the reference.")

    def _remove(self, path: str) -> None:
        self._execute("DELETE FROM results WHERE path = ?", [(path,)])

    # Batches have a default, entry by entry. SQLite does better: one transaction for all.

    def _put_many(self, items: Sequence[tuple[str, str | bytes]]) -> list[StoreError | None]:
        rows = [
            (path, type(c).__name__, c.encode("utf-8", "surrogatepass") if isinstance(c, str) else c)
            for path, c in items
        ]
        self._execute("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", rows)
        return [None] * len(items)

    async def _put_many_async(self, items: Sequence[tuple[str, str | bytes]]) -> list[StoreError | None]:
        return await run_in_worker(self._put_many, items)


class TestSQLiteToolResultStore(StoreConformance):
    """Every law of a store, in the synchronous colour, the asynchronous one and both mixed: `pytest own_store.py`."""

    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda: SQLiteToolResultStore(str(tmp_path / "results.db"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteToolResultStore(f"{folder}/results.db").scoped("user-7/run-42")
        reference = store.write(key="report", content="Revenue grew.")
        print(reference, store.read(reference), sep="\n")
