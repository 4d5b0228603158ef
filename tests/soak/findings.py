"""What went on, and what went wrong."""

import logging
import sys
import threading
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

MOST_SHOWN = 20


class Findings:
    """Collects both; one object for the whole soak, used by all threads of it."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._details: list[str] = []

    def did(self, what: str) -> None:
        """Count something that went as it should."""
        self.done[what] += 1

    def fault(self, what: str, error: BaseException | None = None) -> None:
        """
        Note something that must not happen.

        :param what: Its kind, in a few words.
        :param error: What was raised, if anything was.
        """
        self.faults[what] += 1
        if len(self._details) < MOST_SHOWN:
            raised = "".join(traceback.format_exception(error)[-8:]) if error else ""
            self._details.append(f"{what}\n{raised}")

    @property
    def details(self) -> str:
        """The first faults at length."""
        return "\n".join(self._details)


@contextmanager
def watch(findings: Findings) -> Iterator[None]:
    """Note what goes wrong where nobody can catch it, and count the warnings in the log."""

    class Counting(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            findings.did(f"logged by {record.name}: {record.getMessage()}")

    log, counting = logging.getLogger(), Counting(logging.WARNING)
    log.addHandler(counting)
    unraisable, in_thread = sys.unraisablehook, threading.excepthook
    sys.unraisablehook = lambda hooked: findings.fault(f"unraisable: {hooked.err_msg}", hooked.exc_value)
    threading.excepthook = lambda hooked: findings.fault("a thread failed", hooked.exc_value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ResourceWarning)
            warnings.simplefilter("error", RuntimeWarning)
            yield
    finally:
        sys.unraisablehook, threading.excepthook = unraisable, in_thread
        log.removeHandler(counting)
