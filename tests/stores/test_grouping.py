"""Whose turn it is, without any I/O: whatever arrives, ends or is cancelled, bounds and order are kept."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from haybaler.errors import StoreError
from haybaler.stores.group_commit import GroupCommit
from haybaler.stores.grouping import Queue
from haybaler.stores.shares import Call, Group, Item, Lane, fit, most_bytes

GONE = StoreError("withdrawn")


def items_of(group: Group) -> list[tuple[Call, Item]]:
    return [(share.call, share.call.items[index]) for share, part in group.parts.items() for index in share.ready[part]]


def one_server(paths: Sequence[str]) -> list[None]:
    return [None] * len(paths)


def first_letters(paths: Sequence[str]) -> list[str]:
    return [path[0] for path in paths]


class Simulation:
    """Plays all callers of a queue. A caller who is awake takes all groups that it can, and goes to sleep."""

    def __init__(self, bounds: GroupCommit) -> None:
        self.bounds = bounds
        self.queue = Queue(bounds)
        self.groups: list[Group] = []
        self.passing: list[tuple[Lane, list[Item]]] = []
        self.awake: list[Call] = []
        self.calls: list[Call] = []
        self.order: dict[str, list[object]] = {}  # of each path who wants to write it, in order of arrival
        self.paths: Counter[str] = Counter()

    def arrive(self, items: list[Item]) -> None:
        lane = self.queue.pass_by(items, first_letters)
        if lane is not None:
            self.passing.append((lane, items))
            self._begin([(lane, item) for item in items])
            return
        call = self.queue.admit(items, first_letters)
        self.calls.append(call)
        for path, _ in items:
            self.order.setdefault(path, []).append(call)
        self._run(call)

    def _run(self, call: Call) -> None:
        while call.unsettled and (group := self.queue.take(call)) is not None:
            self.groups.append(group)
            assert group.members == {share.call for share in group.parts}
            assert len(items_of(group)) <= self.bounds.entries
            sizes = most_bytes([content for _, (_, content) in items_of(group)])
            assert sum(sizes) <= self.bounds.size or len(sizes) == 1
            assert len({path[0] for _, (path, _) in items_of(group)}) == 1
            for caller, (path, _) in items_of(group):
                assert self.order[path].pop(0) is caller
            self._begin(items_of(group))
        if call.unsettled:
            call.alarm = lambda: self.awake.append(call)
        else:
            self.calls.remove(call)
            self.queue.dismiss(call)

    def _begin(self, items: Sequence[tuple[object, Item]]) -> None:
        self.paths.update(path for _, (path, _) in items)
        assert set(self.paths.values()) <= {0, 1}, "two writes of one path at the same time"
        lanes = Counter(group.lane for group in self.groups) + Counter(lane for lane, _ in self.passing)
        assert max(lanes.values()) <= self.bounds.in_flight
        shares = Counter(share for group in self.groups for share in group.parts)
        assert max(shares.values(), default=0) <= 2

    def let_run(self) -> None:
        while self.awake:
            call = self.awake.pop(0)
            if call in self.calls:
                self._run(call)
        lanes = self.queue._lanes.values()
        assert [lane for lane in lanes if lane.turns and lane.groups < self.bounds.in_flight] == [], "nobody was woken"

    def finish(self, number: int) -> None:
        number %= len(self.groups) + len(self.passing)
        if number < len(self.passing):
            lane, items = self.passing.pop(number)
            self.paths.subtract(path for path, _ in items)
            self.queue.passed(lane, items)
            return
        group = self.groups.pop(number - len(self.passing))
        self.paths.subtract(path for _, (path, _) in items_of(group))
        for share, part in group.parts.items():
            self.queue.settle(share, part, [None] * (part.stop - part.start))
        self.queue.release(group)

    def cancel(self, number: int) -> None:
        if not self.calls:
            return
        call = self.calls.pop(number % len(self.calls))
        call.alarm = None
        in_flight = {path for group in self.groups for caller, (path, _) in items_of(group) if caller is call}
        self.queue.withdraw(call, GONE)
        for path, _ in call.items:
            if path not in in_flight and call in self.order.get(path, ()):
                self.order[path].remove(call)
        self.queue.dismiss(call)

    def check_at_rest(self) -> None:
        """Assert that nothing is left behind, when all who were in flight are finished."""
        self.let_run()
        while self.groups or self.passing:
            self.finish(0)
            self.let_run()
        assert self.calls == []
        assert not any(self.order.values())
        assert self.queue._paths == set()
        assert self.queue._held == {}
        assert all(not lane.turns and not lane.groups and not lane.shares for lane in self.queue._lanes.values())


bounds = st.builds(GroupCommit, st.integers(1, 3), st.integers(1, 12), st.integers(1, 40))
contents = st.one_of(st.text("ab", max_size=50), st.binary(max_size=50), st.just("é" * 7))
batches = st.dictionaries(st.from_regex(r"[xy][a-f]", fullmatch=True), contents, min_size=1, max_size=12)
steps = st.one_of(
    st.tuples(st.just("arrive"), batches),
    st.tuples(st.just("finish"), st.integers(0, 10)),
    st.tuples(st.just("cancel"), st.integers(0, 10)),
    st.tuples(st.just("let_run"), st.just(0)),
)


@given(bounds, st.lists(steps, max_size=60))
def test_any_sequence_of_events_obeys_the_bounds_and_the_order_and_leaves_nothing(
    bounds: GroupCommit, steps: list[tuple[str, object]]
) -> None:
    simulation = Simulation(bounds)
    for name, argument in steps:
        if name == "arrive" and isinstance(argument, dict):
            simulation.arrive(list(argument.items()))
        elif name == "let_run":
            simulation.let_run()
        elif isinstance(argument, int) and (name == "cancel" or simulation.groups or simulation.passing):
            getattr(simulation, name)(argument)
    simulation.check_at_rest()


def waiting(queue: Queue, *batches: list[Item]) -> list[Call]:
    """Return calls that wait, while a place is taken."""
    assert queue.pass_by([("first", "")], one_server) is not None
    return [queue.admit(batch, one_server) for batch in batches]


def batch(name: str, count: int, size: int = 1) -> list[Item]:
    return [(f"{name}{number}", "x" * size) for number in range(count)]


def contributions(group: Group, calls: list[Call]) -> list[int]:
    counts = Counter(call for call, _ in items_of(group))
    return [counts[call] for call in calls]


def test_callers_take_turns_and_a_large_batch_does_not_push_the_others_out() -> None:
    queue = Queue(GroupCommit(in_flight=2, entries=80, size=10_000))
    calls = waiting(queue, batch("large", 10_000), batch("a", 3), batch("b", 10), batch("c", 25))
    group = queue.take(calls[0])
    assert group is not None
    assert contributions(group, calls) == [80 - 3 - 10 - 25, 3, 10, 25]


def test_turns_are_measured_in_bytes_as_well() -> None:
    queue = Queue(GroupCommit(in_flight=2, entries=1_000, size=800))
    calls = waiting(queue, batch("large", 10_000, 10), batch("a", 20, 10), batch("b", 20, 10))
    group = queue.take(calls[0])
    assert group is not None
    assert contributions(group, calls) == [40, 20, 20]


def test_who_was_left_out_is_the_next_one() -> None:
    queue = Queue(GroupCommit(in_flight=4, entries=4, size=1_000))
    calls = waiting(queue, *(batch(name, 2) for name in "abcdefg"))
    groups = [group for group in (queue.take(calls[number]) for number in (0, 4, 6)) if group is not None]
    assert [contributions(group, calls) for group in groups] == [
        [1, 1, 1, 1, 0, 0, 0],
        [1, 0, 0, 0, 1, 1, 1],
        [0, 1, 1, 1, 1, 0, 0],
    ]


def test_an_entry_that_fills_a_group_alone_does_not_hold_up_the_small_ones() -> None:
    queue = Queue(GroupCommit(in_flight=4, entries=10, size=100))
    calls = [queue.admit([(f"large{n}", "x" * 1_000), (f"larger{n}", "x" * 2_000)], one_server) for n in range(9)]
    groups = [group for group in map(queue.take, calls) if group is not None]
    assert [[path for _, (path, _) in items_of(group)] for group in groups] == [[f"large{n}"] for n in range(4)]
    assert queue.pass_by([("small", "x")], one_server) is not None


def test_a_caller_writes_one_large_entry_at_a_time() -> None:
    queue = Queue(GroupCommit(in_flight=4, entries=10, size=100))
    call = queue.admit([("large", "x" * 1_000), ("larger", "x" * 2_000)], one_server)
    group = queue.take(call)
    assert group is not None
    assert queue.take(call) is None
    ((share, part),) = group.parts.items()
    queue.settle(share, part, [None])
    queue.release(group)
    group = queue.take(call)
    assert group is not None
    assert [path for _, (path, _) in items_of(group)] == ["larger"]


def test_who_comes_late_does_not_go_before_those_who_wait() -> None:
    queue = Queue(GroupCommit(in_flight=1))
    lane = queue.pass_by([("first", "x")], one_server)
    assert lane is not None
    call = queue.admit([("waiting", "x")], one_server)
    roused: list[Call] = []
    call.alarm = lambda: roused.append(call)
    queue.passed(lane, [("first", "x")])
    assert roused == [call]
    assert queue.pass_by([("late", "x")], one_server) is None


def test_entries_of_different_servers_share_no_group_and_do_not_wait_for_each_other() -> None:
    queue = Queue(GroupCommit(in_flight=1, entries=10, size=100))
    call = queue.admit([("a1", "x"), ("b1", "x"), ("a2", "x")], first_letters)
    groups = [group for group in (queue.take(call), queue.take(call)) if group is not None]
    assert [[path for _, (path, _) in items_of(group)] for group in groups] == [["a1", "a2"], ["b1"]]
    assert queue.pass_by([("c1", "x"), ("d1", "x")], first_letters) is None
    assert queue.pass_by([("c1", "x"), ("c2", "x")], first_letters) is not None


def test_text_counts_as_the_most_bytes_that_it_can_have() -> None:
    assert most_bytes([b"\xff" * 5, "x" * 5, "😀" * 5]) == [5, 5, len(("😀" * 5).encode())]
    assert most_bytes(["é" * 5])[0] >= len(("é" * 5).encode())


@given(st.lists(st.text(max_size=9) | st.binary(max_size=9), min_size=1), st.integers(1, 40), st.integers(1, 90))
def test_what_fits_is_what_the_most_bytes_say(contents: list[str | bytes], each: int, together: int) -> None:
    sizes = most_bytes(contents)
    assert fit(contents, each=each, together=together) == (max(sizes) <= each and sum(sizes) <= together)


def test_a_large_batch_passes_undivided_where_nothing_else_is_being_written() -> None:
    queue = Queue(GroupCommit(in_flight=2, entries=10, size=100, undivided=5))
    large = batch("a", 50)
    lane = queue.pass_by(large, one_server)
    assert lane is not None
    assert queue.pass_by(batch("b", 11), one_server) is None
    assert queue.pass_by(batch("c", 10), one_server) is not None
    queue.passed(lane, large)
    assert queue.pass_by(batch("d", 11), one_server) is None


def test_a_large_batch_is_divided_where_it_would_hold_up_all_others() -> None:
    assert Queue(GroupCommit(in_flight=2, entries=10, size=100)).pass_by(batch("a", 11), one_server) is None
    queue = Queue(GroupCommit(in_flight=2, entries=10, size=100, undivided=5))
    assert queue.pass_by([("a", "x" * 101)], one_server) is None
    assert queue.pass_by(batch("b", 51), one_server) is None
