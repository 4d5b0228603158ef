"""When a store that keeps failing is left alone, and when it is asked again. Nothing here waits."""

from collections.abc import Callable
from threading import Lock

from haybaler.errors import StoreCircuitOpenError


class Circuit:
    """
    The state of a circuit breaker, for any number of threads and event loops.

    Closed: everything is admitted. After some failures in a row it opens: nothing is. After a time one operation, the
    probe, is; if it works, the circuit closes, otherwise it stays open for as long again.

    :param failure_threshold: How many failures in a row open it.
    :param recovery_timeout: Seconds until a probe is admitted.
    :param clock: Tells the time in seconds.
    """

    def __init__(self, *, failure_threshold: int, recovery_timeout: float, clock: Callable[[], float]) -> None:
        self._failure_threshold = failure_threshold
        self._recovery_timeout = recovery_timeout
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._opened_at: float | None = None
        self._is_probing = False
        self._round = 0  # begins anew whenever something is decided

    @property
    def is_open(self) -> bool:
        """Whether the store is left alone, but for a probe."""
        return self._opened_at is not None

    def admit(self) -> int:
        """
        Ask whether an operation may begin.

        :returns: A ticket, to be given to `report` when the operation is over.
        :raises StoreCircuitOpenError: If it may not.
        """
        with self._lock:
            if self._opened_at is None:
                return self._round
            if self._is_probing or self._clock() - self._opened_at < self._recovery_timeout:
                raise StoreCircuitOpenError("The store failed again and again lately and is left alone for a while.")
            self._is_probing = True
            self._round += 1
            return self._round

    def report(self, ticket: int, *, worked: bool | None) -> bool:
        """
        Take note of how an operation ended. One that began before the last decision has no say any more.

        :param ticket: What `admit` returned for it.
        :param worked: Whether the store answered; None if that is not known.
        :returns: Whether the circuit has opened or closed.
        """
        with self._lock:
            if ticket != self._round:
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
