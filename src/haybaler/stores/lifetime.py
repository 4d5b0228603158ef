"""A store as a context manager, in both colours."""

from types import TracebackType
from typing import Self


class StoreLifetime:
    """Warms a store up at the beginning of a `with` block, and closes it at its end."""

    def warm_up(self) -> None:
        """Open what can be opened early. The base class has nothing to open."""

    async def warm_up_async(self) -> None:
        """Open what can be opened early, for the running event loop. The base class has nothing to open."""

    def close(self) -> None:
        """Release what synchronous callers opened. The base class holds nothing."""

    async def close_async(self) -> None:
        """Release what was opened for the running event loop. The base class holds nothing."""

    def __enter__(self) -> Self:
        self.warm_up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self.warm_up_async()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_async()
