"""
Following a cluster's redirections.

redis-py's asynchronous client announces a key that is about to move (`ASKING`) on one connection and asks for it on
another, unless the node has only one; then it goes to and fro until it gives up. Its synchronous client does it right.
"""

from typing import Any

import redis.asyncio as aioredis
from redis.asyncio.cluster import PipelineCommand
from redis.exceptions import AskError, MovedError, TryAgainError

from haybaler.effects import Steps
from haybaler_redis.asking import RAW, ask
from haybaler_redis.commands import Command


def followed(client: Any, command: Command, reply: Any) -> Steps[Any]:
    """
    Return what a command comes to where a node sent it elsewhere.

    :param client: A client of a cluster.
    :param command: The command.
    :param reply: What the node answered.
    :returns: `reply`, if it is no redirection; otherwise what came of the command elsewhere.
    """
    if not isinstance(reply, (AskError, TryAgainError)):
        return reply
    try:
        if isinstance(reply, AskError) and not isinstance(reply, MovedError):
            node = client.get_node(host=reply.host, port=reply.port)
            if node is None:  # without slots until now; known after the next look at the cluster
                return reply
            if isinstance(client, aioredis.RedisCluster):
                return (yield from _asked(node, command))
        return (yield from ask(client.execute_command, *command.in_one_piece(), **RAW))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what came of the command
        return error


def _asked(node: Any, command: Command) -> Steps[Any]:
    wanted = PipelineCommand(1, *command.in_one_piece(), **RAW)
    yield from ask(node.execute_pipeline, [PipelineCommand(0, "ASKING"), wanted])
    return wanted.result
