"""Which entries of a batch a scope has room for, before anything is written."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress

from haybaler.effects import Effect, Steps, await_effect, computed
from haybaler.errors import ScopeFullError, StoreError
from haybaler.stores.driver import Content, StoreDriver
from haybaler.stores.inventory import EntryPage
from haybaler.stores.limits import size_of
from haybaler.stores.quota import ScopeCount, Sizes, room_of

Item = tuple[str, Content]
Outcome = StoreError | None
Put = Callable[[Sequence[Item]], Effect[list[Outcome]]]

# How often a scope is counted for one batch that it seems to have no room for: others may have begun the first count
# before room was made.
_RECOUNTS = 2
# Characters whose bytes are counted on the event loop.
_INLINE = 256 * 1024


class StoreAdmission(StoreDriver):
    """Writes what fits into a scope, and refuses the rest."""

    _max_scope_bytes: int | None
    _scope_count: ScopeCount

    def _admitted(self, folder: str, items: Sequence[Item], put: Put) -> Steps[list[Outcome]]:
        """
        Write those entries of a batch that the scope has room for.

        :param folder: What the paths of the scope begin with.
        :param items: Paths, all different, and contents.
        :param put: Writes some of them.
        :returns: Outcome i belongs to item i: None, or why it was not stored.
        """
        if self._max_scope_bytes is None or not items:
            return (yield from await_effect(put(items)))
        sizes = yield from _sizes(items)
        room = yield from self._room(folder, dict(zip((path for path, _ in items), sizes, strict=True)))
        taken = room_of(room.values())
        try:
            chosen = [item for item in items if item[0] in room]
            written = iter((yield from await_effect(put(chosen))) if chosen else ())
            outcomes = [
                next(written) if path in room else self._no_room(size)
                for (path, _), size in zip(items, sizes, strict=True)
            ]
            failed = [path for (path, _), outcome in zip(items, outcomes, strict=True) if path in room and outcome]
            if failed:
                yield from self._scope_count.refund(folder, sum(room[path] for path in failed))
        finally:
            if room:
                self._scope_count.settle(folder, taken)
        return outcomes

    def _room(self, folder: str, sizes: dict[str, int]) -> Steps[dict[str, int]]:
        """
        Take room for what fits.

        :param folder: What the paths of the scope begin with.
        :param sizes: The sizes of the entries by their paths.
        :returns: For each entry that fits, by how many bytes it lets the scope grow.
        """
        listing = partial(self._listed_sizes, folder)
        room: dict[str, int] = {}

        def take(found: Sizes) -> Steps[None]:
            growth = {path: size - found.get(path, 0) for path, size in sizes.items() if path not in room}
            fits = yield from self._scope_count.take(folder, list(growth.values()), self._max_scope_bytes or 0)
            room.update(compress(growth.items(), fits))

        yield from take((yield from self._scope_count.prepare(folder, listing)) or {})
        for _ in range(_RECOUNTS):
            if len(room) == len(sizes):
                break
            found = yield from self._scope_count.recount(folder, listing)
            if found is None:
                break
            yield from take(found)
        return room

    def _listed_sizes(self, folder: str) -> Steps[dict[str, int]]:
        """
        List the entries of one scope, without those of the scopes inside it.

        :param folder: What the paths of the scope begin with.
        :returns: The bytes of each entry by its path.
        """
        page, sizes = None, dict[str, int]()
        while page is None or page.after is not None:
            page = yield from await_effect(self._page(folder, page and page.after))
            found = {entry.reference: entry.bytes for entry in page.entries}
            sizes |= {path: size for path, size in found.items() if "/" not in path.removeprefix(folder)}
        return sizes

    def _page(self, folder: str, after: object) -> Effect[EntryPage]:
        return Effect(lambda: self._list(folder, after), lambda: self._list_async(folder, after))

    def _no_room(self, size: int) -> ScopeFullError:
        return ScopeFullError(
            f"The entry has {size} bytes; of {self._max_scope_bytes}, the scope has not as many left."
        )


def _sizes(items: Sequence[Item]) -> Steps[list[int]]:
    contents = [content for _, content in items]
    wide = sum(len(content) for content in contents if isinstance(content, str) and not content.isascii())
    return (yield from computed(_sizes_of, contents, size=wide, inline=_INLINE))


def _sizes_of(contents: Sequence[Content]) -> list[int]:
    return list(map(size_of, contents))
