"""Whether anybody still refers to an object, once all that were at work have let go of it."""

import gc
import time
from collections.abc import Sequence
from typing import Any
from weakref import ref

# Seconds. A worker thread refers to the last thing that it did until it runs again after telling the outcome.
PATIENCE = 20


def are_freed(references: "Sequence[ref[Any]]") -> bool:
    """Collect garbage, and tell whether all objects are gone."""
    gc.collect()
    return all(reference() is None for reference in references)


def until_freed(references: "Sequence[ref[Any]]") -> None:
    """Wait until all objects are gone."""
    deadline = time.monotonic() + PATIENCE
    while not are_freed(references):
        assert time.monotonic() < deadline, f"{sum(one() is not None for one in references)} objects are not freed"
        time.sleep(0.01)
