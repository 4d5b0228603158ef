"""The store that tries again what failed for a passing reason."""

import logging
import time
from collections.abc import Callable, Sequence
from threading import BoundedSemaphore
from typing import Any, TypeVar

import anyio
from tenacity import (
    DoAttempt,
    DoSleep,
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
    wait_random,
)

from haybaler.deadlines import WaitedTooLong, run_within
from haybaler.effects import Effect, Steps, await_effect
from haybaler.errors import StoreTimeoutError, is_outage
from haybaler.stores import calling
from haybaler.stores.outcomes import Outcome
from haybaler.stores.protocol import AnyToolResultStore, StoreEntry
from haybaler.stores.wrappers.base import StoreWrapper
from haybaler.stores.wrappers.settings import checked_count, checked_number
from haybaler.workers import WORKERS

logger = logging.getLogger(__name__)

R = TypeVar("R")


class RetryingStore(StoreWrapper):
    """
    Tries again what failed because the store could not be reached or did not answer in time, and nothing else.

    ```python
    store = RetryingStore(OwnStore(), attempts=4, timeout=5.0)
    ```

    In a batch, only the entries that failed so are written again. A store that is full, and a circuit breaker that is
    open, are not tried again. haybaler's own Redis and S3 stores try again by themselves.

    :param store: The store.
    :param attempts: How often an operation is tried in all.
    :param timeout: Seconds for one try; a batch is one operation. None to wait as long as the store does. What has
        timed out may still happen: a write may arrive after the next one of the same key.
    :param wait_initial: Seconds before the second try, doubled for each further one. Up to as many are added at random,
        so that those who failed together do not come back together.
    :param wait_max: The most seconds between two tries, before that.
    :raises ConfigurationError: If a parameter is not usable.
    """

    store: Any

    def __init__(
        self,
        store: AnyToolResultStore,
        *,
        attempts: int = 3,
        timeout: float | None = 30.0,
        wait_initial: float = 0.1,
        wait_max: float = 5.0,
    ) -> None:
        super().__init__(store)
        checked_count("attempts", attempts, lowest=1)
        if timeout is not None:
            checked_number("timeout", timeout, lowest=0.001)
        checked_number("wait_initial", wait_initial, lowest=0)
        checked_number("wait_max", wait_max, lowest=0)
        self._attempts, self._timeout, self._wait_initial, self._wait_max = attempts, timeout, wait_initial, wait_max
        # tenacity has the policy; what it decides is carried out as effects, so that both colours share it.
        self._policy = Retrying(
            stop=stop_after_attempt(attempts),
            wait=wait_exponential(multiplier=wait_initial, max=wait_max) + wait_random(0, wait_initial),
            retry=retry_if_exception(is_outage) | retry_if_result(_is_unfinished),
            before_sleep=_announce,
            retry_error_callback=lambda call: call.outcome and call.outcome.result(),
        )
        self._threads = BoundedSemaphore(WORKERS)

    def _settings(self) -> dict[str, Any]:
        return {
            "attempts": self._attempts,
            "timeout": self._timeout,
            "wait_initial": self._wait_initial,
            "wait_max": self._wait_max,
        }

    def _through(self, effect: Effect[R]) -> Steps[R]:
        return (yield from self._tried(lambda: await_effect(self._within(effect))))

    def _write(self, entries: Sequence[StoreEntry]) -> Steps[list[Outcome]]:
        batch = _Batch(entries)

        def attempt() -> Steps[_Batch]:
            try:
                outcomes = yield from await_effect(self._within(calling.write(self.store, batch.remaining)))
            except StoreTimeoutError as error:
                outcomes = [error] * len(batch.remaining)
            batch.take(outcomes)
            return batch

        yield from self._tried(attempt)
        return batch.outcomes

    def _tried(self, attempt: Callable[[], Steps[R]]) -> Steps[R]:
        policy = self._policy.copy()  # it keeps the state of one operation
        policy.begin()
        call = RetryCallState(policy, None, (), {})
        try:
            while True:
                action = policy.iter(call)
                if isinstance(action, DoAttempt):
                    try:
                        call.set_result((yield from attempt()))
                    except Exception as error:  # noqa: BLE001 - the policy raises it if it is the last
                        call.set_exception((type(error), error, error.__traceback__))
                elif isinstance(action, DoSleep):
                    call.prepare_for_next_attempt()
                    yield from await_effect(_pause(action))
                else:
                    result: R = action
                    return result
        finally:
            del call  # it holds the error, whose traceback holds this frame

    def _within(self, effect: Effect[R]) -> Effect[R]:
        seconds = self._timeout
        if seconds is None:
            return effect

        def run() -> R:
            try:
                return run_within(effect.run, seconds, room=self._threads)
            except WaitedTooLong:
                raise _timed_out() from None

        async def run_async() -> R:
            with anyio.move_on_after(seconds):
                return await effect.run_async()
            raise _timed_out()

        return Effect(run, run_async)


class _Batch:
    """What remains to be written of a batch, and the outcomes so far."""

    def __init__(self, entries: Sequence[StoreEntry]) -> None:
        self._entries = entries
        self._open = list(range(len(entries)))
        self.outcomes: list[Outcome] = [""] * len(entries)

    @property
    def remaining(self) -> list[StoreEntry]:
        return [self._entries[index] for index in self._open]

    def take(self, outcomes: Sequence[Outcome]) -> None:
        for index, outcome in zip(self._open, outcomes, strict=True):
            self.outcomes[index] = outcome
        self._open = [index for index in self._open if is_outage(self.outcomes[index])]


def _is_unfinished(result: object) -> bool:
    return isinstance(result, _Batch) and bool(result.remaining)


def _announce(call: RetryCallState) -> None:
    logger.info(
        "An operation of a store failed and is tried again.",
        extra={"attempt": call.attempt_number, "seconds": call.upcoming_sleep},
    )


def _pause(seconds: float) -> Effect[None]:
    return Effect(lambda: time.sleep(seconds), lambda: anyio.sleep(seconds))


def _timed_out() -> StoreTimeoutError:
    return StoreTimeoutError("The store did not answer in time.")
