"""How long entries live: a file's time of modification is that of its last use."""

import os
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lifetime:
    """
    How long an entry lives.

    :param seconds: From its last write or read on; None for ever.
    """

    seconds: float | None = None

    def is_over(self, status: os.stat_result) -> bool:
        """
        Whether an entry has expired.

        :param status: The status of its file.
        :returns: False also for a file from the future: the clock was put back, and a sweep will date it anew.
        """
        return self.seconds is not None and time.time() - status.st_mtime > self.seconds
