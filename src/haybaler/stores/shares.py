"""What callers have waiting, and what of it is written together: the values behind group commit. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from haybaler.errors import StoreError
from haybaler.stores.driver import Content

Item = tuple[str, Content]
Outcome = StoreError | None
ServersOf = Callable[[Sequence[str]], Sequence[Hashable]]  # what stands for the servers that keep paths
Key = tuple[Hashable, bool]  # of a lane: what stands for the server, and whether each item fills a group alone

_MAX_CHARACTER_BYTES = 4


@dataclass(slots=True, eq=False)
class Call:
    """
    One caller's batch.

    :param items: Paths, all different, and contents.
    :param outcomes: Outcome i belongs to item i, once it has one.
    :param unsettled: How many items have none yet.
    :param shares: What it has in each lane.
    :param groups: The groups with items of this call that are being written.
    :param alarm: Wakes the caller; None while it is awake.
    """

    items: Sequence[Item]
    outcomes: list[Outcome]
    unsettled: int
    shares: "dict[Key, Share]" = field(default_factory=dict)
    groups: "set[Group]" = field(default_factory=set)
    alarm: Callable[[], object] | None = None

    @property
    def waiting(self) -> int:
        """How many items are in no group yet."""
        return sum(share.waiting for share in self.shares.values())

    def rouse(self) -> None:
        """Wake the caller, if it sleeps."""
        if self.alarm is not None:
            alarm, self.alarm = self.alarm, None
            alarm()


@dataclass(slots=True, eq=False)
class Lane:
    """
    Where items stand that may share a group.

    :param key: What they have in common.
    :param turns: The shares that have something to go, the next one first.
    :param shares: How many shares there are.
    :param groups: How many groups are being written.
    """

    key: Key
    turns: "OrderedDict[Share, None]" = field(default_factory=OrderedDict)
    shares: int = 0
    groups: int = 0


@dataclass(slots=True, eq=False)
class Share:
    """
    What one call has in one lane.

    :param call: The call.
    :param lane: The lane.
    :param ready: The items that may go or have gone, by their index in the call, in order.
    :param ends: Where each of them would end if all stood in one piece, after a leading 0, so that a search tells how
        many fit.
    :param gone: How many of them have gone.
    :param held: The items that wait for another one of their path, by their index.
    :param groups: How many groups with some of them are being written.
    """

    call: Call
    lane: Lane
    ready: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])
    gone: int = 0
    held: set[int] = field(default_factory=set)
    groups: int = 0

    @property
    def waiting(self) -> int:
        """How many items are in no group yet."""
        return len(self.ready) - self.gone + len(self.held)

    def add(self, indexes: Iterable[int], sizes: Iterable[int]) -> None:
        """Make items ready; size i is that of item i of these."""
        self.ready.extend(indexes)
        self.ends.extend(accumulate(sizes, initial=self.ends.pop()))


@dataclass(slots=True, eq=False)
class Group:
    """
    What is written in one batch.

    :param lane: Where it comes from.
    :param parts: Which of the ready items of each share. All paths are different.
    :param members: The calls that wait for it.
    """

    lane: Lane
    parts: dict[Share, slice] = field(default_factory=dict)
    members: set[Call] = field(default_factory=set)


def most_bytes(contents: Sequence[Content]) -> list[int]:
    """
    Return the most bytes that contents can have, without encoding them.

    :param contents: Texts or bytes.
    :returns: Number i belongs to content i.
    """
    texts = [content for content in contents if isinstance(content, str)]
    if len(texts) == len(contents) and all(map(str.isascii, texts)):
        return list(map(len, texts))
    return [
        len(content) if isinstance(content, bytes) or content.isascii() else _MAX_CHARACTER_BYTES * len(content)
        for content in contents
    ]


def fit(contents: Sequence[Content], *, each: int, together: int) -> bool:
    """
    Whether contents have at most so many bytes, without encoding them.

    :param contents: Texts or bytes.
    :param each: The most bytes of one.
    :param together: The most bytes of all.
    :returns: False also if they might have more.
    """
    lengths = list(map(len, contents))
    if _MAX_CHARACTER_BYTES * max(lengths) <= each and _MAX_CHARACTER_BYTES * sum(lengths) <= together:
        return True
    sizes = most_bytes(contents)
    return max(sizes) <= each and sum(sizes) <= together
