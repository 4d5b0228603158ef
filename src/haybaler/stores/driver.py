"""What the author of a store fills in: a few private methods over paths, in one colour or in both."""

from collections.abc import Hashable, Sequence
from typing import ClassVar

from haybaler.errors import AsyncOnlyStoreError, StoreError, store_error
from haybaler.stores.inventory import EntryPage, StoredEntry, SweepReport
from haybaler.stores.protocol import DeletedScope, StorePage
from haybaler.workers import map_bounded, run_in_worker

Content = str | bytes


class StoreDriver:
    """
    The author's side of a store. Each method receives *paths*, never keys, references or scopes.

    A path is a short portable string (see `haybaler.stores.names`), different for every different pair of scope and
    key; it cannot leave the place where the store keeps its entries.

    - With only the synchronous methods `_put`, `_get` and `_remove`, asynchronous callers are served by worker threads.
    - With only `_put_async`, `_get_async` and `_remove_async`, synchronous callers get an `AsyncOnlyStoreError`.
    - The batches and pages have working defaults; override them where the backend can do better.

    A single put must be atomic by itself: whoever is stopped in the middle leaves the old entry, the new one or none.
    Errors of the tree in `haybaler.errors` pass through; any other is mapped by `haybaler.errors.store_error`.
    """

    max_concurrency: ClassVar[int] = 16  # single calls in flight for one batch, where the author wrote no batch

    def _put(self, path: str, content: Content) -> None:  # noqa: ARG002 - for the author
        """Store `content` at `path`, whole or not at all."""
        raise AsyncOnlyStoreError(f"{type(self).__name__} has no synchronous writes; use the `_async` methods.")

    async def _put_async(self, path: str, content: Content) -> None:
        # A thread cannot be stopped. What it still writes for a cancelled caller is not taken back: that would take
        # away what stood there before, or what somebody has put there since.
        await run_in_worker(self._put, path, content, abandon=True)

    def _get(self, path: str) -> Content:  # noqa: ARG002 - for the author
        """Return what is stored at `path`, or raise `ReferenceNotFoundError` or `CorruptEntryError`."""
        raise AsyncOnlyStoreError(f"{type(self).__name__} has no synchronous reads; use the `_async` methods.")

    async def _get_async(self, path: str) -> Content:
        return await run_in_worker(self._get, path)

    def _remove(self, path: str) -> None:  # noqa: ARG002 - for the author
        """Remove what is stored at `path`; nothing there is no error."""
        raise AsyncOnlyStoreError(f"{type(self).__name__} has no synchronous deletes; use the `_async` methods.")

    async def _remove_async(self, path: str) -> None:
        await run_in_worker(self._remove, path)

    def _put_many(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        """
        Store a batch.

        :param items: Paths, all different, and contents.
        :returns: Outcome i belongs to item i: None, or why it was not stored.
        """
        outcomes: list[StoreError | None] = []
        for path, content in items:
            try:
                self._put(path, content)
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
                outcomes.append(write_failure(error))
            else:
                outcomes.append(None)
        return outcomes

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        async def put(item: tuple[str, Content]) -> StoreError | None:
            try:
                await self._put_async(*item)
            except Exception as error:  # noqa: BLE001 - whatever it is, it concerns its own entry only
                return write_failure(error)
            return None

        return await map_bounded(put, items, limit=self.max_concurrency)

    def _servers_of(self, paths: Sequence[str]) -> Sequence[Hashable]:
        """
        Return what stands for the servers that keep `paths`, known without asking; server i belongs to path i.

        For group commit: entries of different servers share no batch, so that one server in trouble holds up no other.
        By default there is only one.
        """
        return [None] * len(paths)

    def _remove_many(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._remove(path)

    async def _remove_many_async(self, paths: Sequence[str]) -> None:
        await map_bounded(self._remove_async, paths, limit=self.max_concurrency)

    def _get_page(self, path: str, offset: int, limit: int) -> StorePage:
        return page_of(self._get(path), offset, limit)

    async def _get_page_async(self, path: str, offset: int, limit: int) -> StorePage:
        return page_of(await self._get_async(path), offset, limit)

    def _remove_scope(self, folder: str) -> DeletedScope:  # noqa: ARG002 - for the author
        """Remove every path that begins with `folder`; optional. `folder` is empty, or ends with `/`."""
        raise StoreError(f"{type(self).__name__} cannot remove a whole scope; delete its references.")

    async def _remove_scope_async(self, folder: str) -> DeletedScope:
        return await run_in_worker(self._remove_scope, folder)

    def _stat(self, path: str) -> StoredEntry:  # noqa: ARG002 - for the author
        """Tell what is stored at `path`, or raise `ReferenceNotFoundError`; optional."""
        raise StoreError(f"{type(self).__name__} cannot tell what it holds without reading it.")

    async def _stat_async(self, path: str) -> StoredEntry:
        return await run_in_worker(self._stat, path)

    def _list(self, folder: str, after: object) -> EntryPage:  # noqa: ARG002 - for the author
        """
        Return some of the entries whose path begins with `folder`, in a bounded number; optional.

        :param folder: Empty, or ends with `/`.
        :param after: None to begin, else the `after` of the page before.
        :returns: The next page.
        """
        raise StoreError(f"{type(self).__name__} cannot list what it holds.")

    async def _list_async(self, folder: str, after: object) -> EntryPage:
        return await run_in_worker(self._list, folder, after)

    def _sweep(self, folder: str, safe_age: float) -> SweepReport:  # noqa: ARG002 - for the author
        """
        Remove what has expired or was left behind under paths that begin with `folder`; optional.

        :param folder: Empty, or ends with `/`.
        :param safe_age: Seconds after which what looks unfinished is taken for left behind.
        :returns: What was removed.
        """
        raise StoreError(f"{type(self).__name__} cannot sweep what it holds.")

    async def _sweep_async(self, folder: str, safe_age: float) -> SweepReport:
        return await run_in_worker(self._sweep, folder, safe_age)


def write_failure(error: Exception) -> StoreError:
    """
    Return the outcome of a failed write, with its cause chained.

    :param error: What the write raised.
    :returns: A member of the tree whose `__cause__` is `error`, unless it is `error`.
    """
    outcome = store_error(error, action="write an entry", missing_means_absent=False)
    if outcome is not error:
        outcome.__cause__ = error
    return outcome


def page_of(content: Content, offset: int, limit: int) -> StorePage:
    """
    Cut a page out of a whole entry.

    :param content: The entry.
    :param offset: Where the page begins; negative counts from the end. Beyond either end means that end.
    :param limit: The most characters or bytes in the page.
    :returns: The page.
    """
    start = page_start(offset, len(content))
    return StorePage(content[start : start + max(limit, 0)], start, len(content))


def page_start(offset: int, total: int) -> int:
    """
    Resolve an offset that may be negative or beyond an end.

    :param offset: Where to begin; negative counts from the end.
    :param total: The size of the whole.
    :returns: A position from 0 to `total`.
    """
    return min(max(offset + total, 0) if offset < 0 else offset, total)
