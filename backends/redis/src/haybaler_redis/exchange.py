"""Carrying out commands on a client of any kind: written once, as steps that either colour performs."""

from collections.abc import Sequence
from typing import Any

import redis
import redis.asyncio as aioredis
from redis.asyncio.cluster import PipelineCommand

from haybaler.effects import Steps
from haybaler_redis.asking import RAW, ask, ask_alone
from haybaler_redis.commands import Command
from haybaler_redis.connections import takes_pieces
from haybaler_redis.failures import is_lost
from haybaler_redis.redirections import followed
from haybaler_redis.topology import connected

Reply = Any  # what the server answered, or the exception that stands for it


def is_cluster(client: object) -> bool:
    """Whether the client is one of a Redis Cluster."""
    return isinstance(client, (redis.RedisCluster, aioredis.RedisCluster))


def exchange(commands: Sequence[Command], client: Any) -> Steps[list[Reply]]:
    """
    Carry out commands in one round trip for each node, without a transaction.

    :param commands: The commands, in any number.
    :param client: The client.
    :returns: Reply i belongs to command i. One that failed, also because its node is gone, harms no other.
    """
    if not is_cluster(client):
        return (yield from _pipelined(client, commands))
    try:
        yield from connected(client)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of each command
        return [error] * len(commands)
    # A cluster's own pipeline fails as a whole when one node is gone, and looks at the cluster anew for each command.
    replies: list[Reply] = [None] * len(commands)
    groups: dict[str, tuple[Any, list[int]]] = {}
    for index, command in enumerate(commands):
        try:
            node = client.get_node_from_key(command.key)
        except redis.exceptions.RedisClusterException as error:
            replies[index] = error
        else:
            groups.setdefault(node.name, (node, []))[1].append(index)
    for node, group in groups.values():
        results = yield from _at_node(client, node, [commands[index] for index in group])
        for index, result in zip(group, results, strict=True):
            replies[index] = yield from followed(client, commands[index], result)
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
    yield from connected(client)
    return [{"target_nodes": node} for node in client.get_primaries()]


def _at_node(client: Any, node: Any, commands: Sequence[Command]) -> Steps[list[Reply]]:
    if not isinstance(client, aioredis.RedisCluster):
        return (yield from _pipelined(client.get_redis_connection(node), commands))
    queue = [PipelineCommand(index, *command.in_one_piece(), **RAW) for index, command in enumerate(commands)]
    try:
        yield from ask(node.execute_pipeline, queue)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of each command
        return [error] * len(commands)
    # A reply that fails to come ends the connection, which is no news from then on.
    lost = next((entry.result for entry in queue if is_lost(entry.result)), None)
    return [lost if is_lost(entry.result) else entry.result for entry in queue]


def _pipelined(client: Any, commands: Sequence[Command]) -> Steps[list[Reply]]:
    packs = takes_pieces(client)
    arguments = [command.arguments if packs else command.in_one_piece() for command in commands]
    try:
        if len(arguments) == 1:
            return [(yield from ask_alone(client, *arguments[0], **RAW))]
        pipeline = client.pipeline(transaction=False)
        for each in arguments:
            pipeline.execute_command(*each, **RAW)
        replies: list[Reply] = yield from ask(pipeline.execute, raise_on_error=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of each command
        return [error] * len(commands)
    return replies
