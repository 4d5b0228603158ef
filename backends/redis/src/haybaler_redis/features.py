"""What a store asks a server about once: which commands it knows, and whether it throws entries away."""

from dataclasses import dataclass
from typing import Any

from haybaler.effects import Steps
from haybaler_redis.asking import RAW, permitted
from haybaler_redis.exchange import is_cluster, nodes


@dataclass(frozen=True, slots=True)
class Features:
    """
    What is known about a server.

    :param mset: Whether one command can set many keys; not in a cluster, where they belong to several servers.
    :param msetex: Whether one command can set many keys with an expiry.
    :param eviction: The policy by which it removes keys when its memory is full; None if it removes none, or if the
        store may not ask.
    """

    mset: bool
    msetex: bool
    eviction: str | None


def probe(client: Any) -> Steps[Features]:
    """
    Ask a server, or one node of a cluster, for its features.

    :param client: The client.
    :returns: The features. What the store may not ask for counts as absent.
    """
    target = (yield from nodes(client))[0]
    # Under its whole name, the client passes the reply on as it is.
    known = yield from permitted(client, "COMMAND INFO", "MSETEX", **RAW, **target)
    info = yield from permitted(client, "INFO", **target)
    if not isinstance(info, dict):
        info = {}
    # Some versions take such a command for any keys, and leave them where no client of the cluster looks for them.
    alone = not is_cluster(client) and not info.get("cluster_enabled")
    policy = info.get("maxmemory_policy") if info.get("maxmemory") else None
    return Features(
        mset=alone, msetex=alone and bool(known) and bool(known[0]), eviction=policy if policy != "noeviction" else None
    )
