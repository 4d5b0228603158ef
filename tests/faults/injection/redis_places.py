"""What can happen to Redis servers, to one and to a cluster."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from random import Random

import redis
from tests.faults.injection.faults import Fault, Place
from tests.services.ports import LOOPBACK, free_port
from tests.services.redis_servers import RedisServer, redis_cluster, redis_server, until

from haybaler_redis import RedisToolResultStore

TIMEOUT = 0.5  # seconds of one request

Strike = Callable[[RedisServer, Random], object]
Heal = Callable[[RedisServer], object]


@contextmanager
def _one(strike: Strike, heal: Heal = lambda server: None) -> Iterator[Place]:
    with redis_server(lasting=True) as server:
        store = RedisToolResultStore(server.url, timeout=TIMEOUT, connect_timeout=TIMEOUT)
        yield Place(store, lambda chance: strike(server, chance), lambda: heal(server))


def _killed(server: RedisServer, chance: Random) -> None:
    server.process.kill()
    time.sleep(chance.uniform(0, 0.1))
    server.process.start()


def _stopped(server: RedisServer, chance: Random) -> None:
    server.process.send(signal.SIGSTOP)
    time.sleep(chance.uniform(0, 0.4))
    server.process.send(signal.SIGCONT)


def _stopped_and_killed(server: RedisServer, chance: Random) -> None:
    server.process.send(signal.SIGSTOP)
    time.sleep(chance.uniform(0, 0.4))
    _killed(server, chance)


def _full(server: RedisServer, chance: Random) -> None:
    server.client.config_set("maxmemory", server.client.info("memory")["used_memory"] + chance.choice([1, 200_000]))


def _roomy(server: RedisServer) -> None:
    server.client.config_set("maxmemory", 0)


def _demoted(server: RedisServer, chance: Random) -> None:
    server.client.replicaof(LOOPBACK, free_port())  # of a primary that is not there


def _promoted(server: RedisServer) -> None:
    server.client.replicaof("NO", "ONE")


def _cut(server: RedisServer, chance: Random) -> None:
    for _ in range(chance.randint(1, 5)):
        server.client.client_kill_filter(_type="normal", skipme=True)
        time.sleep(chance.uniform(0, 0.01))


@contextmanager
def _cluster_with_replica() -> Iterator[Place]:
    with redis_cluster(replicas=1) as (first, *others, replica):
        hosts = ",".join(f"{LOOPBACK}:{server.port}" for server in (first, *others))
        store = RedisToolResultStore(f"redis://{hosts}", cluster=True, timeout=TIMEOUT, connect_timeout=TIMEOUT)
        primary, standby = first, replica

        def fail_over(_: Random) -> None:
            nonlocal primary, standby
            until(lambda: standby.client.info("replication")["master_link_status"] == "up")
            standby.client.execute_command("CLUSTER FAILOVER")
            primary, standby = standby, primary

        def settled() -> None:
            until(lambda: primary.client.info("replication")["role"] == "master")
            until(lambda: standby.client.info("replication")["role"] == "slave")

        yield Place(store, fail_over, settled)


@contextmanager
def _cluster_with_moving_slots() -> Iterator[Place]:
    with redis_cluster() as servers:
        hosts = ",".join(f"{LOOPBACK}:{server.port}" for server in servers)
        store = RedisToolResultStore(f"redis://{hosts}", cluster=True, timeout=TIMEOUT, connect_timeout=TIMEOUT)
        ids = [server.client.execute_command("CLUSTER MYID") for server in servers]

        def move(chance: Random) -> None:
            """Move the slots of some keys that have just been written, while others are being written."""
            for _ in range(10):
                source, target = chance.sample(range(len(servers)), 2)
                key = servers[source].client.randomkey()
                if key is not None:
                    _move_slot(servers, ids, servers[source].client.cluster("KEYSLOT", key), source, target)

        yield Place(store, move)


def _move_slot(servers: list[RedisServer], ids: list[bytes], slot: int, source: int, target: int) -> None:
    old, new = servers[source].client, servers[target].client
    new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source])
    old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target])
    while keys := old.execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
        with suppress(redis.ResponseError):  # one of them was deleted meanwhile
            old.execute_command("MIGRATE", LOOPBACK, servers[target].port, "", 0, 5000, "KEYS", *keys)
    for server in (servers[target], servers[source], *servers):
        server.client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target])


# A request that hangs is given up after `TIMEOUT` and tried once more, in each of the steps that meet the fault.
REDIS_FAULTS = [
    Fault("Redis", "killed and restarted", partial(_one, _killed), delay=4.0),
    Fault("Redis", "stopped for a while", partial(_one, _stopped), delay=4.0),
    Fault("Redis", "stopped, then killed and restarted", partial(_one, _stopped_and_killed), delay=5.0),
    Fault("Redis", "out of memory", partial(_one, _full, _roomy), delay=4.0),
    Fault("Redis", "a read-only replica", partial(_one, _demoted, _promoted), delay=5.0),
    Fault("Redis", "connections cut", partial(_one, _cut), delay=3.0),
    Fault("Redis Cluster", "failover", _cluster_with_replica, delay=6.0, share=0.2),
    Fault("Redis Cluster", "slots that move", _cluster_with_moving_slots, delay=5.0, share=0.5),
]
