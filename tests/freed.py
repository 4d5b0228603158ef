"""Whether anybody still refers to an object, once all that were at work have let go of it."""

import gc
from collections.abc import Sequence
from typing import Any
from weakref import ref

from tests.services.redis_servers import until


def are_freed(references: "Sequence[ref[Any]]") -> bool:
    """Collect garbage, and tell whether all objects are gone."""
    gc.collect()
    return all(reference() is None for reference in references)


def until_freed(references: "Sequence[ref[Any]]") -> None:
    """Wait until all objects are gone. A worker thread refers to what it did last until it runs once more."""
    until(lambda: are_freed(references))
