"""Checks of the numbers that wrappers are set up with."""

import math

from haybaler.errors import ConfigurationError


def checked_number(name: str, value: object, *, lowest: float) -> None:
    """
    Check a number.

    :param name: The parameter's name, for the error.
    :param value: Its value.
    :param lowest: The lowest value that is allowed.
    :raises ConfigurationError: If the value is no finite number, or lower.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not lowest <= value < math.inf:
        raise ConfigurationError(f"`{name}` must be a number of at least {lowest:g}, not {value!r}.")


def checked_count(name: str, value: object, *, lowest: int, highest: float = math.inf) -> None:
    """
    Check a whole number.

    :param name: The parameter's name, for the error.
    :param value: Its value.
    :param lowest: The lowest value that is allowed.
    :param highest: The highest value that is allowed.
    :raises ConfigurationError: If the value is no whole number, or out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        bounds = f"at least {lowest}" if highest == math.inf else f"{lowest} to {highest}"
        raise ConfigurationError(f"`{name}` must be a whole number of {bounds}, not {value!r}.")
