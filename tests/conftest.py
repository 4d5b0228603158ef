"""Settings of the whole test run."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import HealthCheck, settings
from tests.vocabulary import fill_vocabulary

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
os.environ["TIKTOKEN_CACHE_DIR"] = str(fill_vocabulary(Path(__file__).parents[1] / ".vocabulary"))

# How long an example takes is the business of the benchmarks, not of a test on a busy machine.
settings.register_profile("haybaler", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("haybaler")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def loop_guard() -> Iterator[BlockBuster]:
    """Raise where anything blocks a running event loop, in any test that starts one."""
    with blockbuster_ctx() as guard:
        yield guard
