"""A server that is started again in the middle of a scan."""

from collections.abc import Callable
from typing import Any

from tests.services.redis_servers import RedisServer

from haybaler.effects import Steps, in_worker
from haybaler_redis import scanning

Scan = Callable[[dict[str, Any], int, bytes, Any], Steps[tuple[int, list[bytes]]]]


def scan_with_a_restart(server: RedisServer) -> Scan:
    """
    Return what `haybaler_redis.scanning.scan` is to be replaced by.

    :param server: The server; it is killed and started again before the third step.
    :returns: The function.
    """
    steps = 0

    def scan(node: dict[str, Any], cursor: int, pattern: bytes, client: Any) -> Steps[tuple[int, list[bytes]]]:
        nonlocal steps
        steps += 1
        if steps == 3:
            yield from in_worker(restart)
        return (yield from scanning.scan(node, cursor, pattern, client))

    def restart() -> None:
        server.process.kill()
        server.process.start()

    return scan
