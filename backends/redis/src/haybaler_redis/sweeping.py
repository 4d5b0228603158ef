"""Sweeping a scope: what writers that were killed have staged, where the server would keep it for ever."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from haybaler.effects import Steps
from haybaler.stores.inventory import SweepReport
from haybaler_redis.attempts import answered, carried_out
from haybaler_redis.clients import Clients
from haybaler_redis.commands import FLUSH_COMMANDS, Command, size_of, unlink
from haybaler_redis.counting import SUFFIX
from haybaler_redis.exchange import nodes
from haybaler_redis.failures import mapped
from haybaler_redis.scanning import pattern_of, scan, sorted_out


@dataclass(frozen=True, slots=True)
class Sweeping:
    """
    How scopes are swept. Entries with a time to live are removed by the server itself, and so is what is staged, but
    for one moment: a writer without a time to live takes the stage's away right before the entry appears.

    :param clients: The clients.
    :param retries: The most further attempts of each round trip.
    """

    clients: Clients
    retries: int

    def sweep(self, start: bytes, safe_age: float) -> Steps[SweepReport]:
        """
        Remove what was staged for entries of a scope, will not expire, and was left behind.

        :param start: How the keys of the entries begin.
        :param safe_age: Seconds that nobody has touched it.
        :returns: What was removed. Where the server does not tell what was touched when, for it counts how often, that
            is nothing.
        :raises StoreError: Of the kind that fits.
        """
        report = SweepReport()
        for node in (yield from self._asked(nodes)):
            cursor, going_on = 0, True
            while going_on:
                cursor, found = yield from self._asked(partial(scan, node, cursor, pattern_of(start)))
                staged = [key for key in sorted_out(found, start)[1] if not key.endswith(SUFFIX)]
                for first in range(0, len(staged), FLUSH_COMMANDS):
                    report += yield from self._removed(staged[first : first + FLUSH_COMMANDS], safe_age)
                going_on = bool(cursor)
        return report

    def _removed(self, staged: Sequence[bytes], safe_age: float) -> Steps[SweepReport]:
        expiries = yield from self._replies([Command(key, ("PTTL", key)) for key in staged])
        lasting = [key for key, expiry in zip(staged, expiries, strict=True) if expiry == -1]
        idle = yield from self._replies([Command(key, ("OBJECT", "IDLETIME", key)) for key in lasting])
        left = [key for key, age in zip(lasting, idle, strict=True) if isinstance(age, int) and age >= safe_age]
        sizes = yield from self._replies([size_of(key) for key in left])
        gone = yield from self._replies([unlink([key]) for key in left])
        for reply in gone:
            if isinstance(reply, Exception):
                raise mapped(reply, action="sweep a scope")
        freed = [size for size, removed in zip(sizes, gone, strict=True) if removed and isinstance(size, int)]
        return SweepReport(leftovers=sum(gone), bytes=sum(freed))

    def _replies(self, commands: Sequence[Command]) -> Steps[list[Any]]:
        return (yield from carried_out(self.clients, commands, retries=self.retries)) if commands else []

    def _asked(self, request: Any) -> Steps[Any]:
        effect = self.clients.request(request)
        return (yield from answered(self.clients, effect, retries=self.retries, action="sweep a scope"))
