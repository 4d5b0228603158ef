"""A store in the memory of the process, for tests and for short runs."""

from collections.abc import Sequence
from secrets import token_hex
from typing import Self

from haybaler.errors import ConfigurationError, ReferenceNotFoundError, StoreError
from haybaler.stores.base import BaseToolResultStore
from haybaler.stores.driver import Content, page_of
from haybaler.stores.protocol import DeletedScope, StorePage
from haybaler.stores.url import parse_store_url


class InMemoryToolResultStore(BaseToolResultStore):
    """
    Keeps entries in a dictionary of this process. They are gone with the last copy of the store.

    Its references carry a random part, so that those of another instance are refused.
    """

    def __init__(self) -> None:
        super().__init__(location=f"memory:{token_hex(4)}/")
        self._entries: dict[str, Content] = {}

    @classmethod
    def from_url(cls, url: str) -> Self:
        """
        Build an empty store.

        :param url: `memory://`.
        :returns: The store.
        :raises ConfigurationError: If anything follows.
        """
        parts = parse_store_url(url, schemes=("memory",))
        if parts.authority or parts.path:
            raise ConfigurationError("Nothing may follow in `memory://`.")
        return cls()

    def __len__(self) -> int:
        return len(self._entries)

    def __bool__(self) -> bool:
        return True

    def _put(self, path: str, content: Content) -> None:
        self._entries[path] = content

    def _get(self, path: str) -> Content:
        try:
            return self._entries[path]
        except KeyError:
            raise ReferenceNotFoundError("Nothing is stored under the reference.") from None

    def _remove(self, path: str) -> None:
        self._entries.pop(path, None)

    def _remove_scope(self, folder: str) -> DeletedScope:
        found = (self._entries.pop(path, None) for path in list(self._entries) if path.startswith(folder))
        removed = [content for content in found if content is not None]  # other threads remove entries, too
        return DeletedScope(len(removed), sum(map(_size, removed)))

    # Nothing here waits for anything, so asynchronous callers need no worker thread.

    async def _put_many_async(self, items: Sequence[tuple[str, Content]]) -> list[StoreError | None]:
        return self._put_many(items)

    async def _get_async(self, path: str) -> Content:
        return self._get(path)

    async def _get_page_async(self, path: str, offset: int, limit: int) -> StorePage:
        return page_of(self._get(path), offset, limit)

    async def _remove_many_async(self, paths: Sequence[str]) -> None:
        self._remove_many(paths)

    async def _remove_scope_async(self, folder: str) -> DeletedScope:
        return self._remove_scope(folder)


def _size(content: Content) -> int:
    return len(content) if isinstance(content, bytes) else len(content.encode("utf-8", "surrogatepass"))
