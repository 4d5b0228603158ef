"""One hostile value, what it is called, and what it attacks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pytest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Case(Generic[T]):
    """
    One hostile value.

    :param name: Unique within its corpus.
    :param attacks: What breaks where the value is trusted.
    :param value: The value.
    """

    name: str
    attacks: str
    value: T = field(repr=False)


def corpus(groups: Mapping[str, Mapping[str, T]]) -> tuple[Case[T], ...]:
    """Return the cases of a corpus that is written down as named values for each thing that is attacked."""
    return tuple(Case(name, attacks, value) for attacks, values in groups.items() for name, value in values.items())


def each(cases: Iterable[Case[Any]]) -> pytest.MarkDecorator:
    """Run a test once for each case."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases])
