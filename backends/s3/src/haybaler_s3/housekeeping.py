"""What the store does for whoever looks after it, and how steps are performed, in both colours."""

from typing import TypeVar

from haybaler.effects import Steps, perform, perform_async
from haybaler.stores.driver import StoreDriver
from haybaler.stores.inventory import EntryPage, StoredEntry, SweepReport
from haybaler.stores.protocol import DeletedScope
from haybaler_s3.failures import mapping
from haybaler_s3.listing import Listing, Position
from haybaler_s3.removing import Removing
from haybaler_s3.sweeping import Sweeping

T = TypeVar("T")


class S3Housekeeping(StoreDriver):
    """Telling, listing and removing the objects of a scope."""

    _folder: str
    _listing: Listing
    _removing: Removing
    _sweeping: Sweeping

    def _key(self, path: str) -> str:
        return self._folder + path

    def _perform(self, action: str, steps: Steps[T]) -> T:
        with mapping(action):
            return perform(steps)

    async def _perform_async(self, action: str, steps: Steps[T]) -> T:
        with mapping(action):
            return await perform_async(steps)

    def _stat(self, path: str) -> StoredEntry:
        return self._perform("look at an entry", self._listing.stat(self._key(path)))

    async def _stat_async(self, path: str) -> StoredEntry:
        return await self._perform_async("look at an entry", self._listing.stat(self._key(path)))

    def _list(self, folder: str, after: object) -> EntryPage:
        return self._perform("list entries", self._listing.page(self._key(folder), _position(after)))

    async def _list_async(self, folder: str, after: object) -> EntryPage:
        return await self._perform_async("list entries", self._listing.page(self._key(folder), _position(after)))

    def _sweep(self, folder: str, safe_age: float) -> SweepReport:
        return self._perform("sweep a scope", self._sweeping.sweep(self._key(folder), safe_age))

    async def _sweep_async(self, folder: str, safe_age: float) -> SweepReport:
        return await self._perform_async("sweep a scope", self._sweeping.sweep(self._key(folder), safe_age))

    def _remove_scope(self, folder: str) -> DeletedScope:
        return self._perform("delete a scope", self._removing.remove_folder(self._key(folder)))

    async def _remove_scope_async(self, folder: str) -> DeletedScope:
        return await self._perform_async("delete a scope", self._removing.remove_folder(self._key(folder)))


def _position(after: object) -> Position | None:
    return after if isinstance(after, Position) else None
