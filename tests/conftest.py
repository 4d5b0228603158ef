"""Settings of the whole test run."""

import gc
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


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections, which many tests ask for: they live to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def left_in_memory() -> Iterator[None]:
    """Leave what outlives a module out of the collections that later tests ask for; what nobody needs goes before."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def session_guard() -> Iterator[BlockBuster]:
    """Make what watches event loops once: that takes longer than most tests."""
    with blockbuster_ctx() as guard:
        yield guard


@pytest.fixture(autouse=True)
def loop_guard(session_guard: BlockBuster) -> BlockBuster:
    """Raise where anything blocks a running event loop, in any test that starts one, whatever the test before did."""
    session_guard.activate()
    return session_guard
