"""Settings of the whole test run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from tests.vocabulary import fill_vocabulary

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["TIKTOKEN_CACHE_DIR"] = str(fill_vocabulary(Path(__file__).parents[1] / ".vocabulary"))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def loop_guard() -> Iterator[BlockBuster]:
    """Raise where anything blocks a running event loop, in any test that starts one."""
    with blockbuster_ctx() as guard:
        yield guard
