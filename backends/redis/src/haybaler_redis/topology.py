"""Finding out which node of a cluster keeps which keys."""

import random
from typing import Any

import redis.asyncio as aioredis

from haybaler.effects import Steps
from haybaler_redis.asking import ask

# Nodes that one look at the cluster asks, one after another, until one answers. If all of them hang, the whole cluster
# most likely does, and each further one would cost another timeout.
NODES_ASKED = 3


def connected(client: Any) -> Steps[None]:
    """
    Have a cluster's client find out at first, if it has not yet. The synchronous one has when it is made.

    :param client: A client of a cluster.
    """
    if isinstance(client, aioredis.RedisCluster):
        yield from ask(client.initialize)


def look_around(client: Any) -> Steps[list[Any]]:
    """
    Find out anew.

    :param client: A client of a cluster.
    :returns: What stood for nodes until now and does no more. redis-py has told an asynchronous one to disconnect, but
        a request that is under way connects it again; older versions replace even those of nodes that have stayed.
    """
    before = _nodes(client.nodes_manager)
    yield from _asked(client.nodes_manager)
    after = _nodes(client.nodes_manager)
    return [node for key, node in before.items() if key not in after]


def _nodes(manager: Any) -> dict[int, Any]:
    return {id(node): node for node in (*manager.nodes_cache.values(), *manager.startup_nodes.values())}


def _asked(manager: Any) -> Steps[None]:
    # redis-py asks every node that it knows. There is no parameter for fewer, so it is shown some of them meanwhile.
    known = manager.startup_nodes
    if len(known) <= NODES_ASKED:
        yield from ask(manager.initialize)
        return
    chosen = random.sample(list(known), NODES_ASKED)
    shown = manager.startup_nodes = {name: known[name] for name in chosen}
    try:
        yield from ask(manager.initialize)
    finally:
        if manager.startup_nodes is shown and list(shown) == chosen:  # otherwise these are the nodes it has found
            manager.startup_nodes = known
