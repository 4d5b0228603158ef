"""
The conformance kit for stores, and `FaultyStore`. The only part of haybaler that imports pytest.

The author of a store subclasses `StoreConformance` and gets one test for each law, in the synchronous colour, the
asynchronous one and both mixed:

```python
import pytest

from haybaler.testing import MakeStore, StoreConformance
from my_package import MyStore


class TestMyStore(StoreConformance):
    @pytest.fixture
    def make_store(self, tmp_path) -> MakeStore:
        return lambda: MyStore(tmp_path)
```

What a store can and cannot do is stated by the attributes and methods of `StoreContract`. The kit needs no plugin for
asynchronous tests.
"""

from haybaler.testing.cancellation import Cancellation, cancel_at, each_cancellation
from haybaler.testing.conformance import StoreConformance
from haybaler.testing.contract import MakeStore, StoreContract
from haybaler.testing.faults import Fault, Gate
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
    "each_cancellation",
]
