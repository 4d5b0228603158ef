"""Carrying out commands on a client of any kind: written once, as steps that either colour performs."""

from collections.abc import Sequence
from typing import Any

import redis
import redis.asyncio as aioredis

from haybaler.effects import Steps
from haybaler_redis.asking import RAW, ask
from haybaler_redis.commands import Command
from haybaler_redis.connections import takes_pieces
from haybaler_redis.redirections import followed

Reply = Any  # what the server answered, or the exception that stands for it


def is_cluster(client: object) -> bool:
    """Whether the client is one of a Redis Cluster."""
    return isinstance(client, (redis.RedisCluster, aioredis.RedisCluster))


def exchange(commands: Sequence[Command], client: Any) -> Steps[list[Reply]]:
    """
    Carry out commands in one pipeline for each node, without a transaction.

    :param commands: The commands, in any number.
    :param client: The client.
    :returns: Reply i belongs to command i. One that failed, also because its node is gone, harms no other.
    """
    replies: list[Reply] = [None] * len(commands)
    try:
        groups = yield from _by_node(commands, client)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of each command
        return [error] * len(commands)
    own = isinstance(client, aioredis.RedisCluster)
    packs = takes_pieces(client)
    options = {"raise_on_error": False, **({"allow_redirections": False} if own else {})}
    for group in groups:
        pipeline = client.pipeline(transaction=False)
        for index in group:
            command = commands[index]
            pipeline.execute_command(*(command.arguments if packs else command.in_one_piece()), **RAW)
        try:
            results = yield from ask(pipeline.execute, **options)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of each command
            results = [error] * len(group)
        for index, result in zip(group, results, strict=True):
            replies[index] = (yield from followed(client, commands[index], result)) if own else result
    return replies


def node_of(key: bytes, client: Any) -> str | None:
    """
    Name the node of a cluster that keeps a key, without asking anybody.

    :param key: The key.
    :param client: A client of a cluster.
    :returns: The name of the node; None if the client does not know it yet.
    """
    try:
        name: str = client.get_node_from_key(key).name
    except redis.exceptions.RedisClusterException:
        return None
    return name


def nodes(client: Any) -> Steps[list[dict[str, Any]]]:
    """
    Return what addresses each server that holds keys.

    :param client: The client.
    :returns: For each of them the keyword arguments with which `execute_command` reaches it.
    """
    if not is_cluster(client):
        return [{}]
    yield from _initialized(client)
    return [{"target_nodes": node} for node in client.get_primaries()]


def _by_node(commands: Sequence[Command], client: Any) -> Steps[list[list[int]]]:
    # A cluster's own pipeline fails as a whole when one node is gone.
    if not is_cluster(client):
        return [list(range(len(commands)))]
    yield from _initialized(client)
    groups: dict[str, list[int]] = {}
    for index, command in enumerate(commands):
        groups.setdefault(client.get_node_from_key(command.key).name, []).append(index)
    return list(groups.values())


def _initialized(client: Any) -> Steps[None]:
    if isinstance(client, aioredis.RedisCluster):
        yield from ask(client.initialize)
