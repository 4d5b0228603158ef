"""Calling a method of a client in the client's own colour."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from redis.client import NEVER_DECODE
from redis.exceptions import ResponseError

from haybaler.effects import Effect, Steps, await_effect
from haybaler_redis.connections import caches, keeps_one

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


def ask_alone(client: Any, *arguments: Any, **options: Any) -> Steps[Any]:
    """
    Have one server carry out one command, on a connection that nobody else uses meanwhile.

    :param client: The client, or a node of a cluster.
    :param arguments: The command.
    :param options: The client's options for it.
    :returns: The reply.
    """
    # A pipeline of one takes a third more of the processor's time.
    if not (keeps_one(client) or caches(client)):
        return (yield from ask(client.execute_command, *arguments, **options))
    pipeline = client.pipeline(transaction=False)
    pipeline.execute_command(*arguments, **options)
    (reply,) = yield from ask(pipeline.execute, raise_on_error=False)
    if isinstance(reply, Exception):
        raise reply
    return reply


def command(client: Any, *arguments: Any, target_nodes: Any = None, **options: Any) -> Steps[Any]:
    """
    Have a command carried out, by one server and without another look at its cluster where that one is gone.

    :param client: The client.
    :param arguments: The command.
    :param target_nodes: The node of a cluster that is to carry it out.
    :param options: The client's options for it.
    :returns: The reply.
    """
    server = client
    if target_nodes is not None:
        own = hasattr(target_nodes, "execute_command")  # in a cluster's asynchronous client, nodes have connections
        server = target_nodes if own else client.get_redis_connection(target_nodes)
    return (yield from ask_alone(server, *arguments, **options))


def permitted(client: Any, *arguments: str, **options: Any) -> Steps[Any]:
    """
    Ask what the store may not be allowed to ask.

    :param client: The client.
    :param arguments: The command.
    :param options: The client's options for it.
    :returns: The reply; None if the server refuses.
    """
    try:
        return (yield from command(client, *arguments, **options))
    except ResponseError:
        return None
