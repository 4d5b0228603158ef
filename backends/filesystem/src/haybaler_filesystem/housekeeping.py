"""What a file store does for whoever looks after it, in both colours."""

from threading import Event

from haybaler.stores.driver import StoreDriver
from haybaler.stores.inventory import EntryPage, StoredEntry, SweepReport
from haybaler.stores.protocol import DeletedScope
from haybaler_filesystem.clearing import clear_scope
from haybaler_filesystem.entries import EntryFolder, Writing
from haybaler_filesystem.listing import Walk, page_of_walk
from haybaler_filesystem.pool import WorkerPool
from haybaler_filesystem.sweeping import Sweep


class FileHousekeeping(StoreDriver):
    """Telling, listing and removing what is in the folders of a scope."""

    root: str
    _scope: tuple[str, ...]
    _writing: Writing
    _pool: WorkerPool

    def _stat(self, path: str) -> StoredEntry:
        with EntryFolder(self.root, self._scope, self._writing) as folder:
            return folder.described(path)

    async def _stat_async(self, path: str) -> StoredEntry:
        return await self._pool.run(self._stat, path, stop=Event())

    def _list(self, folder: str, after: object) -> EntryPage:
        walk = after if isinstance(after, Walk) else Walk.of(tuple(folder.split("/")[:-1]))
        return page_of_walk(self.root, walk, self._writing.lifetime)

    async def _list_async(self, folder: str, after: object) -> EntryPage:
        return await self._pool.run(self._list, folder, after, stop=Event())

    def _sweep(self, folder: str, safe_age: float) -> SweepReport:  # noqa: ARG002 - the scope says the same
        return self._swept(safe_age, Event())

    async def _sweep_async(self, folder: str, safe_age: float) -> SweepReport:  # noqa: ARG002 - the scope says the same
        stop = Event()
        return await self._pool.run(self._swept, safe_age, stop, stop=stop)

    def _swept(self, safe_age: float, stop: Event) -> SweepReport:
        return Sweep(self._writing.lifetime, safe_age, stop.is_set).run(self.root, self._scope)

    def _remove_scope(self, folder: str) -> DeletedScope:  # noqa: ARG002 - the scope says the same
        return clear_scope(self.root, self._scope)

    async def _remove_scope_async(self, folder: str) -> DeletedScope:
        return await self._pool.run(self._remove_scope, folder, stop=Event())
