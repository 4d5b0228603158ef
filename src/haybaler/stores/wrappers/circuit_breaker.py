"""The store that leaves a failing store alone for a while."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from haybaler.effects import Effect, Steps, await_effect
from haybaler.errors import (
    CorruptEntryError,
    ReferenceNotFoundError,
    ScopeFullError,
    StoreFullError,
    is_outage,
)
from haybaler.stores import calling
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import AnyToolResultStore, StoreEntry
from haybaler.stores.wrappers.base import StoreWrapper
from haybaler.stores.wrappers.circuit import Circuit
from haybaler.stores.wrappers.settings import checked_count, checked_number

logger = logging.getLogger(__name__)

R = TypeVar("R")

# What a store can only say after it was reached. Others may have been decided on the way to it.
_ANSWERS = (ReferenceNotFoundError, CorruptEntryError, StoreFullError)


class CircuitBreakerStore(StoreWrapper):
    """
    Asks a store that failed several times in a row no more, until one operation after a while has found it well again.

    Meanwhile everything fails at once with a `StoreCircuitOpenError`, so that a dead server does not cost each step of
    each run its timeout. What counts is only whether the store can be reached: an entry that is absent, damaged or too
    large is no failure, nor is a store that is full. A batch counts once, as failed if no entry of it was stored.

    ```python
    store = CircuitBreakerStore(RedisToolResultStore("redis://localhost:6379/0"))
    ```

    The state belongs to this object and all its scopes, in all threads and event loops of the process.

    :param store: The store. It should have a timeout: an operation that nobody ends is never a failure.
    :param failure_threshold: How many failures in a row open the circuit.
    :param recovery_timeout: Seconds after which one operation is let through.
    :param slow_after: Seconds after which an operation counts as failed if its caller stops waiting for it, for example
        because of a hook's `write_timeout`. One that is given up sooner tells nothing of the store; of several that are
        given up within so many seconds, as by a program that ends, one counts.
    :param clock: Tells the time in seconds. It is not serialized.
    :raises ConfigurationError: If a parameter is not usable.
    """

    store: Any

    def __init__(
        self,
        store: AnyToolResultStore,
        *,
        failure_threshold: int = 5,
        recovery_timeout: float = 30.0,
        slow_after: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(store)
        checked_count("failure_threshold", failure_threshold, lowest=1)
        checked_number("recovery_timeout", recovery_timeout, lowest=0)
        checked_number("slow_after", slow_after, lowest=0)
        self._failure_threshold, self._recovery_timeout = failure_threshold, recovery_timeout
        self._slow_after = slow_after
        self._circuit = Circuit(
            failure_threshold=failure_threshold, recovery_timeout=recovery_timeout, slow_after=slow_after, clock=clock
        )

    def _settings(self) -> dict[str, Any]:
        return {
            "failure_threshold": self._failure_threshold,
            "recovery_timeout": self._recovery_timeout,
            "slow_after": self._slow_after,
        }

    @property
    def is_open(self) -> bool:
        """Whether the store is left alone at the moment."""
        return self._circuit.is_open

    def _through(self, effect: Effect[R]) -> Steps[R]:
        with self._admitted() as results:
            result = yield from await_effect(effect)
            results.append(result)
        return result

    def _write(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        with self._admitted() as results:
            results.extend((yield from await_effect(calling.write(self.store, entries))))
        return results

    @contextmanager
    def _admitted(self) -> Iterator[list[Any]]:
        """Admit an operation, or raise, and take note of its results, or of what it raises."""
        ticket = self._circuit.admit()
        results: list[Any] = []
        try:
            yield results
        except Exception as error:
            self._announce(self._circuit.report(ticket, worked=_worked([error])))
            raise
        except BaseException:
            self._announce(self._circuit.give_up(ticket))
            raise
        self._announce(self._circuit.report(ticket, worked=_worked(results)))

    def _announce(self, has_changed: bool) -> None:
        if has_changed:
            logger.warning(
                "A circuit breaker has changed.",
                extra={"store": type(self.store).__name__, "is_open": self._circuit.is_open},
            )


def _worked(results: Sequence[object]) -> bool | None:
    """Whether the store answered; None if it does not show, since it may have been refused on the way there."""
    if any(map(_is_answer, results)):
        return True
    return False if any(map(is_outage, results)) else None


def _is_answer(result: object) -> bool:
    if not isinstance(result, Exception):
        return True
    return isinstance(result, _ANSWERS) and not isinstance(result, ScopeFullError)  # which may be counted here
