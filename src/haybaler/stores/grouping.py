"""
Whose turn it is to be written, and with whom: the queue behind group commit. Pure: nothing here waits or writes.

Callers take turns, and contribute a part of a group each time. Of one path, one item is written at a time, in the order
in which they came. What must not hold up the rest stands in a lane of its own: the items of another server, and those
that fill a group alone.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Sequence
from math import ceil

from haybaler.errors import StoreError
from haybaler.stores.group_commit import GroupCommit
from haybaler.stores.shares import Call, Group, Item, Key, Lane, Outcome, ServersOf, Share, fit, most_bytes

# Into how many turns a group is divided. A batch of ordinary size goes in one.
_TURNS = 8
# In how many groups a caller may have items at once: one is prepared while the other is on its way.
_AHEAD = 2
# Lanes that are kept while nothing stands in them. Servers come and go.
_KEPT_LANES = 8


class Queue:
    """
    What the callers of one event loop have to write.

    Wherever there is a place for a group and something to go, one of the callers with items there is awake and about to
    take it.

    :param bounds: The bounds.
    """

    def __init__(self, bounds: GroupCommit) -> None:
        self._bounds = bounds
        self._lanes: dict[Key, Lane] = {}
        self._paths: set[str] = set()  # of items that are ready or being written
        self._held: dict[str, deque[tuple[Share, int]]] = {}  # what waits for them, in the order in which it came

    def pass_by(self, items: Sequence[Item], servers_of: ServersOf) -> Lane | None:
        """
        Let a batch through that can go at once, as one group; a larger one where nothing else is being written.

        :param items: Paths, all different, and contents.
        :param servers_of: Tells what stands for the servers that keep paths.
        :returns: The lane, for `passed`; None if the batch has to be admitted.
        """
        bounds, paths = self._bounds, [path for path, _ in items]
        servers = set(servers_of(paths))
        lane = self._lane((servers.pop(), False))
        groups = 1 if lane.groups else bounds.undivided
        if (
            lane.groups < bounds.in_flight
            and not (servers or lane.turns)
            and len(items) <= bounds.entries * groups
            and fit([content for _, content in items], each=bounds.size, together=bounds.size * groups)
            and self._paths.isdisjoint(paths)
        ):
            self._paths.update(paths)
            lane.groups += 1
            return lane
        self._tidy(lane)
        return None

    def passed(self, lane: Lane, items: Sequence[Item]) -> None:
        """
        Give back the place of a batch that was let through.

        :param lane: What `pass_by` returned.
        :param items: The batch.
        """
        self._free([path for path, _ in items])
        lane.groups -= 1
        self._summon(lane)
        self._tidy(lane)

    def admit(self, items: Sequence[Item], servers_of: ServersOf) -> Call:
        """
        Add a caller's batch to what waits.

        :param items: Paths, all different, and contents.
        :param servers_of: Tells what stands for the servers that keep paths.
        :returns: The call.
        """
        call = Call(items, [None] * len(items), len(items))
        paths = [path for path, _ in items]
        sizes = most_bytes([content for _, content in items])
        servers = servers_of(paths)
        if len(set(servers)) == 1 and max(sizes) <= self._bounds.size and self._paths.isdisjoint(paths):
            self._share(call, (servers[0], False)).add(range(len(items)), sizes)
            self._paths.update(paths)
        else:
            for index, (path, server, size) in enumerate(zip(paths, servers, sizes, strict=True)):
                share = self._share(call, (server, size > self._bounds.size))
                if path in self._paths:
                    share.held.add(index)
                    self._held.setdefault(path, deque()).append((share, index))
                else:
                    self._paths.add(path)
                    share.add([index], [size])
        for share in call.shares.values():
            self._line_up(share)
        return call

    def take(self, call: Call) -> Group | None:
        """
        Make a group of what waits, where there is a place for one and the call has something to go.

        :param call: Whose caller is going to write it.
        :returns: The group; None if the caller can go to sleep.
        """
        lanes = [share.lane for share in call.shares.values() if share in share.lane.turns]
        group = next((self._gathered(lane) for lane in lanes if lane.groups < self._bounds.in_flight), None)
        for lane in lanes:
            self._summon(lane)
        return group

    def settle(self, share: Share, part: slice, outcomes: Sequence[Outcome]) -> None:
        """
        Hand out what came of a part of a group.

        :param share: Whose part it is.
        :param part: Which of its ready items.
        :param outcomes: Outcome i belongs to item i of these.
        """
        share.groups -= 1
        self._free([share.call.items[index][0] for index in share.ready[part]])
        self._conclude(share.call, share.ready[part], outcomes)
        self._line_up(share)

    def release(self, group: Group) -> None:
        """
        Give back the place of a group whose parts are settled.

        :param group: The group.
        """
        for share in group.parts:
            share.call.groups.discard(group)
        group.lane.groups -= 1
        self._summon(group.lane)
        self._tidy(group.lane)

    def withdraw(self, call: Call, outcome: StoreError, *, server: Hashable = ...) -> None:
        """
        Take out what a call has waiting.

        :param call: The call.
        :param outcome: What comes of these items.
        :param server: Which server's items; by default those of every server.
        """
        for share in call.shares.values():
            if not share.waiting or server not in {..., share.lane.key[0]}:
                continue
            held, ready = list(share.held), share.ready[share.gone :]
            for index in held:
                self._let_go(share, index)
            del share.ready[share.gone :], share.ends[share.gone + 1 :]
            share.lane.turns.pop(share, None)
            self._free([call.items[index][0] for index in ready])
            self._conclude(call, held + ready, [outcome] * len(held + ready))
            self._summon(share.lane)  # it may have been this caller who was to look

    def dismiss(self, call: Call) -> None:
        """
        Forget a call that has nothing waiting.

        :param call: The call.
        """
        for share in call.shares.values():
            share.lane.shares -= 1
            self._tidy(share.lane)
        call.shares.clear()  # they refer to the call

    def _gathered(self, lane: Lane) -> Group:
        group, entries, size = Group(lane), self._bounds.entries, self._bounds.size
        lane.groups += 1
        while lane.turns and entries:
            share = next(iter(lane.turns))
            count = self._turn(share, entries, size, alone=not group.parts)
            if not count:
                break  # the next one does not fit
            before, share.gone = share.gone, share.gone + count
            entries, size = entries - count, size - (share.ends[share.gone] - share.ends[before])
            group.parts[share] = slice(group.parts[share].start if share in group.parts else before, share.gone)
            del lane.turns[share]
            if share.gone < len(share.ready):
                lane.turns[share] = None
        for share in group.parts:
            share.groups += 1
            share.call.groups.add(group)
            group.members.add(share.call)
            if not self._may_go(share):
                lane.turns.pop(share, None)
        return group

    def _turn(self, share: Share, entries: int, size: int, *, alone: bool) -> int:
        """Return how many items a share contributes next, where the group has room for so many entries and bytes."""
        first, bounds = share.gone, self._bounds
        start = share.ends[first]
        entries = min(entries, ceil(bounds.entries / _TURNS))
        size = min(size, max(bounds.size // _TURNS, share.ends[first + 1] - start))
        last = bisect_right(share.ends, start + size, first, min(len(share.ends), first + entries + 1)) - 1
        return last - first if last > first else int(alone)

    def _may_go(self, share: Share) -> bool:
        ahead = 1 if share.lane.key[1] else _AHEAD
        return share.gone < len(share.ready) and share.groups < ahead

    def _line_up(self, share: Share) -> None:
        if share not in share.lane.turns and self._may_go(share):
            share.lane.turns[share] = None
            self._summon(share.lane)

    def _summon(self, lane: Lane) -> None:
        """See to it that somebody takes what waits in a lane, if there is a place for it."""
        if lane.turns and lane.groups < self._bounds.in_flight:
            next(iter(lane.turns)).call.rouse()

    def _conclude(self, call: Call, indexes: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        for index, outcome in zip(indexes, outcomes, strict=True):
            call.outcomes[index] = outcome
        call.unsettled -= len(indexes)
        if not call.unsettled:
            call.rouse()

    def _free(self, paths: Sequence[str]) -> None:
        if not self._held:
            self._paths.difference_update(paths)
            return
        for path in paths:
            if path in self._held:
                share, index = self._held[path][0]
                self._let_go(share, index)
                share.add([index], most_bytes([share.call.items[index][1]]))
                self._line_up(share)
            else:
                self._paths.remove(path)

    def _let_go(self, share: Share, index: int) -> None:
        path, _ = share.call.items[index]
        share.held.remove(index)
        self._held[path].remove((share, index))
        if not self._held[path]:
            del self._held[path]

    def _lane(self, key: Key) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        return lane

    def _share(self, call: Call, key: Key) -> Share:
        share = call.shares.get(key)
        if share is None:
            share = call.shares[key] = Share(call, self._lane(key))
            share.lane.shares += 1
        return share

    def _tidy(self, lane: Lane) -> None:
        if not lane.shares and not lane.groups and len(self._lanes) > _KEPT_LANES:
            del self._lanes[lane.key]
