"""What a language model gave a tool as arguments: converted where the meaning is clear, otherwise refused in words."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from haybaler.errors import ToolArgumentError
from haybaler.framing import json_framed, shortened

# Beyond any entry's size, and small enough for the arithmetic of every backend.
_FARTHEST = 10**15
_DIGITS = 20
_QUOTED_CHARS = 120
_FLAGS = {"true": True, "false": False}


class Arguments:
    """
    The arguments of one call.

    Models write numbers as strings and leave optional arguments out as null or as an empty string; all of that is
    taken. The errors are sentences for the model, in which its own input is quoted and shortened.

    :param given: What the model gave.
    :param names: The arguments that the tool has.
    :raises ToolArgumentError: If there are others.
    """

    def __init__(self, given: Mapping[str, Any], names: Collection[str]) -> None:
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ToolArgumentError(f"There is no argument {quoted(unknown[0])}. The arguments are {', '.join(names)}.")
        self._given = {name: value for name, value in given.items() if value is not None and value != ""}

    def text(self, name: str, *, longest: int) -> str:
        """
        Return a required string.

        :param name: The argument's name.
        :param longest: The most characters allowed.
        :returns: The string, as given.
        :raises ToolArgumentError: If it is missing, of another type or too long.
        """
        value = self._given.get(name)
        if not isinstance(value, str):
            raise ToolArgumentError(f"`{name}` must be given, as a string.")
        if len(value) > longest:
            raise ToolArgumentError(f"`{name}` must not be longer than {longest} characters; this has {len(value)}.")
        return value

    def number(self, name: str, default: int, *, lowest: int = -_FARTHEST, highest: int = _FARTHEST) -> int:
        """
        Return a whole number.

        :param name: The argument's name.
        :param default: What stands for a missing one.
        :param lowest: The least that is allowed.
        :param highest: What greater numbers are cut down to.
        :returns: The number.
        :raises ToolArgumentError: If it is not a whole number, or too small.
        """
        value = self._given.get(name, default)
        number = _whole(value)
        if number is None:
            raise ToolArgumentError(f"`{name}` must be a whole number, not {quoted(value)}.")
        if number < lowest and lowest > -_FARTHEST:
            raise ToolArgumentError(f"`{name}` must be at least {lowest}.")
        return min(max(number, lowest), highest)

    def flag(self, name: str, *, default: bool) -> bool:
        """
        Return a truth value.

        :param name: The argument's name.
        :param default: What stands for a missing one.
        :returns: The value.
        :raises ToolArgumentError: If it is neither true nor false.
        """
        value = self._given.get(name, default)
        flag = (
            value if isinstance(value, bool) else _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
        )
        if flag is None:
            raise ToolArgumentError(f"`{name}` must be true or false, not {quoted(value)}.")
        return flag


def quoted(value: object) -> str:
    """
    Quote what a model wrote, so that nothing in it can pass for a sentence of the tool.

    :param value: Anything.
    :returns: A JSON string on one line, shortened.
    """
    text = value if isinstance(value, str) else str(value) if isinstance(value, (bool, float)) else type(value).__name__
    return json_framed(shortened(text, _QUOTED_CHARS))


def _whole(value: object) -> int | None:
    if isinstance(value, str) and len(value.strip()) <= _DIGITS:
        try:
            value = float(value) if "." in value or "e" in value.lower() else int(value)
        except ValueError:
            return None
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
