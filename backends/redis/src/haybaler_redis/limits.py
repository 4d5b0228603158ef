"""
How large a value a server takes: up to its `proto-max-bulk-len`, which is 512 MB unless somebody has lowered it.

A server that is sent a larger one ends the connection, and with it everything else that was sent at the same time. So
whoever writes has to know beforehand.
"""

from collections.abc import MutableMapping, Sequence
from typing import Any

from haybaler.effects import Steps
from haybaler_redis.asking import permitted
from haybaler_redis.exchange import is_cluster, nodes

# No server can be told to take less, so nobody needs to ask for the sake of smaller values.
LOWEST = 1024 * 1024
UNKNOWN = 2**63  # what a server is taken to allow that may not be asked

_NAME = "proto-max-bulk-len"


def largest(keys: Sequence[bytes], known: MutableMapping[str, int], client: Any) -> Steps[list[int]]:
    """
    Ask each server that keeps one of the keys how large a value it takes.

    :param keys: The keys.
    :param known: What has been asked already, by the name of the node; added to.
    :param client: The client.
    :returns: The most bytes of the value under each key.
    """
    clustered = is_cluster(client)
    if clustered:
        yield from nodes(client)  # from then on it knows which node keeps a key
    limits = []
    for key in keys:
        target: dict[str, Any] = {"target_nodes": client.get_node_from_key(key)} if clustered else {}
        name = target["target_nodes"].name if clustered else ""
        if name not in known:
            known[name] = _limit((yield from permitted(client, "CONFIG GET", _NAME, **target)))
        limits.append(known[name])
    return limits


def _limit(reply: Any) -> int:
    value = reply.get(_NAME) if isinstance(reply, dict) else None
    return int(value) if value is not None else UNKNOWN
