"""
The conformance kit for stores, and `FaultyStore`. The only part of haybaler that imports pytest.

The author of a store subclasses `StoreConformance` and gets one test for each law, in the synchronous colour, the
asynchronous one and both mixed. A test module with a whole store in it:

```python
from pathlib import Path
from secrets import token_hex

import pytest

from haybaler.stores.base import BaseToolResultStore
from haybaler.testing import MakeStore, StoreConformance


class FolderStore(BaseToolResultStore):
    supports_binary_content = False

    def __init__(self, root: str) -> None:
        super().__init__(location="folder:")
        self.root = Path(root)

    def _settings(self):
        return {"root": str(self.root)}

    def _file(self, path):
        return self.root / path.replace("/", "+")  # no part of a path has a plus sign

    def _put(self, path, content):
        draft = self._file(f"{path}+{token_hex(8)}")
        draft.write_bytes(content.encode("utf-8", "surrogatepass"))
        draft.replace(self._file(path))

    def _get(self, path):
        return self._file(path).read_bytes().decode("utf-8", "surrogatepass")

    def _remove(self, path):
        self._file(path).unlink(missing_ok=True)


class TestFolderStore(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return lambda: FolderStore(str(tmp_path))
```

What a store can and cannot do is stated by the attributes and methods of `StoreContract`. The kit needs no plugin for
asynchronous tests. A store is rebuilt from its `to_dict` in another process, so its class must stand in a module that
can be imported there.
"""

from haybaler.gates import Gate
from haybaler.testing.cancellation import (
    Cancellation,
    cancel_at,
    cancel_at_async,
    each_cancellation,
    each_cancellation_async,
)
from haybaler.testing.conformance import StoreConformance
from haybaler.testing.contract import MakeStore, StoreContract
from haybaler.testing.faults import Fault
from haybaler.testing.faulty import FaultyStore

__all__ = [
    "Cancellation",
    "Fault",
    "FaultyStore",
    "Gate",
    "MakeStore",
    "StoreConformance",
    "StoreContract",
    "cancel_at",
    "cancel_at_async",
    "each_cancellation",
    "each_cancellation_async",
]
