"""Looking after a store: telling, listing and sweeping what it holds. Optional for a backend."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

from haybaler.errors import ConfigurationError, mapped
from haybaler.stores.driver import StoreDriver
from haybaler.stores.inventory import StoredEntry, SweepReport
from haybaler.stores.place import StorePlace

# Seconds after which what an unfinished write has left is certainly nobody's any more.
SAFE_AGE = 3600.0


class StoreHousekeeping(StoreDriver, StorePlace):
    """
    What administrators and the command line need, and runs do not.

    Where a backend cannot do it, each method raises a `StoreError`.
    """

    def stat(self, reference: str) -> StoredEntry:
        """
        Tell what stands under a reference, without reading it. Its time to live is not renewed.

        :param reference: A reference of this store and scope.
        :returns: Its size in bytes, when it was written, and its kind.
        :raises ReferenceNotFoundError: If nothing is stored under it, or it has expired.
        :raises StoreError: As `read`, or if the backend cannot.
        """
        path = self._path(reference)
        with mapped("look at an entry"):
            return self._stat(path).at(self._location)

    async def stat_async(self, reference: str) -> StoredEntry:
        """
        Tell what stands under a reference, as `stat` does.

        :param reference: A reference of this store and scope.
        :returns: Its size in bytes, when it was written, and its kind.
        :raises StoreError: As `stat`.
        """
        path = self._path(reference)
        with mapped("look at an entry"):
            return (await self._stat_async(path)).at(self._location)

    def list(self, scope: str | None = None) -> Iterator[StoredEntry]:
        """
        List the entries of a scope and of the scopes inside it, one page after another, in no order.

        What stands there from beginning to end is listed; what is written, replaced or removed meanwhile, perhaps. An
        iterator that is given up holds nothing open. `scope_of` gives the store that reads what is listed.

        :param scope: A scope inside this store's, as for `scoped`; None for this store's own.
        :returns: The entries; references of inner scopes belong to the stores of those.
        :raises StoreError: While iterating, if the backend cannot be reached, or cannot list.
        """
        return self._listed(self._folder_of(scope))

    def list_async(self, scope: str | None = None) -> AsyncIterator[StoredEntry]:
        """
        List the entries of a scope, as `list` does.

        :param scope: A scope inside this store's; None for this store's own.
        :returns: The entries, for `async for`.
        :raises StoreError: As `list`.
        """
        return self._listed_async(self._folder_of(scope))

    def _folder_of(self, scope: str | None) -> str:
        return self._scope_path if scope is None else self.scoped(scope)._scope_path  # noqa: SLF001 - its own kind

    def _listed(self, folder: str) -> Iterator[StoredEntry]:
        page = None
        while page is None or page.after is not None:
            with mapped("list entries"):
                page = self._list(folder, page and page.after)
            yield from page.at(self._location)

    async def _listed_async(self, folder: str) -> AsyncIterator[StoredEntry]:
        page = None
        while page is None or page.after is not None:
            with mapped("list entries"):
                page = await self._list_async(folder, page and page.after)
            for entry in page.at(self._location):
                yield entry

    def sweep(self, *, safe_age: float | timedelta = SAFE_AGE) -> SweepReport:
        """
        Remove the expired entries of this scope and of those inside it, and what writers that were killed left there.

        It may run beside readers, writers and other sweeps, and be stopped at any moment; the next one goes on. Nothing
        calls it by itself: a server does now and then, or `haybaler stores sweep` in a timer of the system.

        :param safe_age: Seconds after which what looks unfinished is taken for left behind.
        :returns: What was removed.
        :raises ConfigurationError: If `safe_age` is negative.
        :raises StoreError: If the backend cannot, or failed in the middle.
        """
        seconds = checked_age(safe_age)
        with mapped("sweep a scope"):
            return self._sweep(self._scope_path, seconds)

    async def sweep_async(self, *, safe_age: float | timedelta = SAFE_AGE) -> SweepReport:
        """
        Remove what has expired and what was left behind, as `sweep` does.

        :param safe_age: Seconds after which what looks unfinished is taken for left behind.
        :returns: What was removed.
        :raises ConfigurationError: If `safe_age` is negative.
        :raises StoreError: As `sweep`.
        """
        seconds = checked_age(safe_age)
        with mapped("sweep a scope"):
            return await self._sweep_async(self._scope_path, seconds)


def checked_age(age: float | timedelta) -> float:
    """
    Check a `safe_age`.

    :param age: Seconds, or a time.
    :returns: Seconds.
    :raises ConfigurationError: If it is negative.
    """
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    if not seconds >= 0:
        raise ConfigurationError(f"`safe_age` must not be negative; it is {age!r}.")
    return seconds
