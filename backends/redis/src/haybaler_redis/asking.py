"""Calling a method of a client in the client's own colour."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from redis.client import NEVER_DECODE
from redis.exceptions import ResponseError

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


def permitted(client: Any, *arguments: str, **options: Any) -> Steps[Any]:
    """
    Ask what the store may not be allowed to ask.

    :param client: The client.
    :param arguments: The command.
    :param options: The client's options for it.
    :returns: The reply; None if the server refuses.
    """
    try:
        return (yield from ask(client.execute_command, *arguments, **options))
    except ResponseError:
        return None
