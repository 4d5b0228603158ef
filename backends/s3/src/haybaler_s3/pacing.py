"""How requests are started so that other work gets its turn on the event loop."""

import anyio


class StartGate:
    """
    Lets one request start in each turn of the event loop.

    Preparing and signing a request takes the client a millisecond or two of the loop's thread. Fifty of them started in
    one turn would keep everybody else waiting for a tenth of a second.
    """

    def __init__(self) -> None:
        self._lock = anyio.Lock(fast_acquire=True)

    async def passed(self) -> None:
        """Wait for one's own turn."""
        async with self._lock:
            await anyio.sleep(0)
