"""When a store that keeps failing is left alone, and when it is asked again. Nothing here waits."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from haybaler.errors import StoreCircuitOpenError


@dataclass(frozen=True, slots=True)
class Ticket:
    """
    What an operation has that was admitted.

    :param round: The last decision before it.
    :param begun: When it was admitted.
    """

    round: int
    begun: float


class Circuit:
    """
    The state of a circuit breaker, for any number of threads and event loops.

    Closed: everything is admitted. After some failures in a row it opens: nothing is. After a time one operation, the
    probe, is; if it works, the circuit closes, otherwise it stays open for as long again.

    :param failure_threshold: How many failures in a row open it.
    :param recovery_timeout: Seconds until a probe is admitted.
    :param slow_after: Seconds after which an operation that is given up counts as failed.
    :param clock: Tells the time in seconds.
    """

    def __init__(
        self, *, failure_threshold: int, recovery_timeout: float, slow_after: float, clock: Callable[[], float]
    ) -> None:
        self._failure_threshold = failure_threshold
        self._recovery_timeout = recovery_timeout
        self._slow_after = slow_after
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._opened_at: float | None = None
        self._given_up_at = -math.inf
        self._is_probing = False
        self._round = 0  # begins anew whenever something is decided

    @property
    def is_open(self) -> bool:
        """Whether the store is left alone, but for a probe."""
        return self._opened_at is not None

    def admit(self) -> Ticket:
        """
        Ask whether an operation may begin.

        :returns: A ticket, to be given to `report` or `give_up` when the operation is over.
        :raises StoreCircuitOpenError: If it may not.
        """
        with self._lock:
            now = self._clock()
            if self._opened_at is None:
                return Ticket(self._round, now)
            if self._is_probing or now - self._opened_at < self._recovery_timeout:
                raise StoreCircuitOpenError("The store failed again and again lately and is left alone for a while.")
            self._is_probing = True
            self._round += 1
            return Ticket(self._round, now)

    def report(self, ticket: Ticket, *, worked: bool | None) -> bool:
        """
        Take note of how an operation ended. One that began before the last decision has no say any more.

        :param ticket: What `admit` returned for it.
        :param worked: Whether the store answered; None if that is not known.
        :returns: Whether the circuit has opened or closed.
        """
        with self._lock:
            return self._judge(ticket, worked)

    def give_up(self, ticket: Ticket) -> bool:
        """
        Take note that nobody waits for an operation any more, which is a failure if it was slow.

        Many that are given up together may all be cancelled for a reason that has nothing to do with the store, and
        slow because the process is busy. So within the time that makes an operation slow, only one of them counts.

        :param ticket: What `admit` returned for it.
        :returns: Whether the circuit has opened.
        """
        with self._lock:
            now = self._clock()
            if ticket.round != self._round or now - max(ticket.begun, self._given_up_at) < self._slow_after:
                return self._judge(ticket, None)
            self._given_up_at = now
            return self._judge(ticket, worked=False)

    def _judge(self, ticket: Ticket, worked: bool | None) -> bool:
        if ticket.round != self._round:
            return False
        was_open = self.is_open
        self._is_probing = False
        if worked:
            self._failures = 0
            self._opened_at = None
        elif worked is not None:
            self._failures += 1
            if was_open or self._failures >= self._failure_threshold:
                self._opened_at = self._clock()
        if self.is_open is was_open:
            return False
        self._round += 1
        return True
