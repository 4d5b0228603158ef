"""
How long a request may take in all.

The client library's timeouts are for each wait, so a server that sends a byte now and then would hold a caller for
ever. A fixed limit would fail large entries on slow lines. So what there is to transfer counts.
"""

import time

from haybaler_s3.settings import Settings

# What the client library waits at most between its attempts: twice as long each time, up to this.
_LONGEST_WAIT = 20.0


def request_seconds(settings: Settings, size: int) -> float:
    """
    Return how long a request may take, with all attempts that the client library makes of it.

    :param settings: The timeouts, the slowest rate, and the number of attempts.
    :param size: The bytes that are sent, or that the server has to work on.
    :returns: Seconds.
    """
    waits = sum(min(2.0**number, _LONGEST_WAIT) for number in range(min(settings.attempts - 1, 5)))
    waits += _LONGEST_WAIT * max(settings.attempts - 6, 0)
    return settings.attempts * (settings.connect_timeout + body_seconds(settings, size)) + waits


def body_seconds(settings: Settings, size: int) -> float:
    """
    Return how long the transfer of a body may take.

    :param settings: The timeouts and the slowest rate.
    :param size: Its bytes.
    :returns: Seconds.
    """
    return 2 * settings.read_timeout + size / settings.min_bytes_per_second


class Deadline:
    """
    The end of a body that a synchronous caller receives piece by piece.

    :param seconds: How long it may take.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def check(self) -> None:
        """
        Refuse to go on.

        :raises TimeoutError: If time has run out.
        """
        if time.monotonic() > self._end:
            raise TimeoutError
