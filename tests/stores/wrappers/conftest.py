"""What the tests of several wrappers share."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.stores.wrappers.around import ENVIRONMENT

from haybaler.testing.access import ASYNC, SYNC, Colour, Law, run_law

Check = Callable[[Any, Law], None]


@pytest.fixture(params=(SYNC, ASYNC), ids=lambda colour: colour.name)
def colour(request: pytest.FixtureRequest) -> Colour:
    colour: Colour = request.param
    return colour


@pytest.fixture
def check(colour: Colour) -> Check:
    """Check a law of a store, in the colour of this run of the test."""
    return lambda store, law: run_law(law, store, colour)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys for stores that encrypt, and leave to load haybaler's classes."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
