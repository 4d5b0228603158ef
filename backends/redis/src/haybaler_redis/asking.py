"""Calling a method of a client in the client's own colour."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from redis.client import NEVER_DECODE

from haybaler.effects import Effect, Steps, await_effect

# Whatever `decode_responses` says, replies stay bytes.
RAW: Mapping[str, Any] = {NEVER_DECODE: []}


def ask(method: Any, *args: Any, **kwargs: Any) -> Steps[Any]:
    """
    Call a method of a client: one that returns, or one whose result is awaited.

    :param method: The method.
    :param args: Its positional arguments.
    :param kwargs: Its keyword arguments.
    :returns: What it returned.
    """
    call = partial(method, *args, **kwargs)
    return (yield from await_effect(Effect(call, call)))
