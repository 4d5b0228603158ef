"""What the store does for whoever looks after it, in both colours."""

from abc import abstractmethod

from haybaler.effects import perform, perform_async
from haybaler.stores.driver import StoreDriver
from haybaler.stores.inventory import EntryPage, StoredEntry, SweepReport
from haybaler.stores.protocol import DeletedScope
from haybaler_redis.listing import Listing, Position
from haybaler_redis.removing import Removing
from haybaler_redis.sweeping import Sweeping


class RedisHousekeeping(StoreDriver):
    """Telling, listing and removing what is under the keys of a scope."""

    _listing: Listing
    _removing: Removing
    _sweeping: Sweeping

    @abstractmethod
    def _key(self, path: str) -> bytes:
        """Return the key of a path, or what the keys of a folder begin with."""

    def _stat(self, path: str) -> StoredEntry:
        return perform(self._listing.stat(self._key(path)))

    async def _stat_async(self, path: str) -> StoredEntry:
        return await perform_async(self._listing.stat(self._key(path)))

    def _list(self, folder: str, after: object) -> EntryPage:
        return perform(self._listing.page(self._key(folder), after if isinstance(after, Position) else None))

    async def _list_async(self, folder: str, after: object) -> EntryPage:
        return await perform_async(
            self._listing.page(self._key(folder), after if isinstance(after, Position) else None)
        )

    def _sweep(self, folder: str, safe_age: float) -> SweepReport:
        return perform(self._sweeping.sweep(self._key(folder), safe_age))

    async def _sweep_async(self, folder: str, safe_age: float) -> SweepReport:
        return await perform_async(self._sweeping.sweep(self._key(folder), safe_age))

    def _remove_scope(self, folder: str) -> DeletedScope:
        return perform(self._removing.remove_folder(self._key(folder)))

    async def _remove_scope_async(self, folder: str) -> DeletedScope:
        return await perform_async(self._removing.remove_folder(self._key(folder)))
