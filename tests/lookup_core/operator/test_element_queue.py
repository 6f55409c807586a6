"""Element queues: the contract of all three modes, what each mode emits, and a model.

Cases shared with Flink's queues are in `tests/conformance`.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.operator.element_queue import (
    ElementQueue,
    Mark,
    OrderedQueue,
    Slice,
    SlotId,
)
from lookup_core.operator.segmented_queue import KeyOrderedQueue, OrderOfKeys, UnorderedQueue
from tests.lookup_core.hypothesis_runs import example_counts, run_model

QUEUES: dict[str, Callable[[int], ElementQueue]] = {
    "ordered": OrderedQueue,
    "unordered": UnorderedQueue,
    "key_ordered": KeyOrderedQueue,
}
each_mode = pytest.mark.parametrize("mode", QUEUES)

Step = Callable[[ElementQueue], object]
Left = list[tuple[int, list[int]]]  # slots and rows; a watermark has no rows
Place = tuple[int, int | None]  # slot and row


def put(*keys: int, deadline_s: float = math.inf) -> Step:
    """Put a slice of records with these keys; slots are numbered from 0."""
    return lambda queue: queue.try_put(Slice(len(keys), deadline_s, np.array(keys, np.uint64)))


def mark(queue: ElementQueue) -> object:
    """Put a watermark."""
    return queue.try_put(Mark())


def done(slot: int, *flags: int) -> Step:
    """Complete the flagged rows of a slot."""
    return lambda queue: queue.complete(SlotId(slot), np.array(flags, np.bool_))


def expire(now_s: float) -> Step:
    """Complete the rows whose deadline has come."""
    return lambda queue: queue.expire(now_s)


def leave(queue: ElementQueue) -> Left:
    """Emit all that may leave."""
    left = []
    while (emission := queue.pop_completed()) is not None:
        left.append((int(emission.slot), emission.rows.tolist()))
    return left


def played(queue: ElementQueue, *steps: Step) -> list[object]:
    """The result of each step."""
    returned = []
    for step in steps:
        returned.append(step(queue))
        queue.check_invariants()
    return returned


@each_mode
def test_capacity_counts_rows_until_they_leave(mode: str) -> None:
    """A slice is taken whole or not at all; rows and watermarks keep places until they leave."""
    queue = QUEUES[mode](5)

    assert played(queue, put(1, 2, 3), put(4, 5, 6), mark, done(0, 1, 1, 1)) == [0, None, 1, True]
    assert queue.free_places() == 1
    assert played(queue, leave, put(1, 2, 3, 4, 5, 6), put(1, 2, 3, 4, 5)) == [
        [(0, [0, 1, 2]), (1, [])],
        None,
        2,
    ]


@each_mode
def test_queue_needs_places_and_rows(mode: str) -> None:
    """A queue without places and a slice without rows are errors."""
    with pytest.raises(ValueError, match="capacity must be at least 1, not 0"):
        QUEUES[mode](0)
    with pytest.raises(ValueError, match="at least one row"):
        put()(QUEUES[mode](1))


SCENARIOS: dict[str, tuple[list[Step], dict[str, list[Left]]]] = {
    "open rows hold back": (
        [put(7, 8), put(7, 9, 8), done(1, 1, 1, 0), leave, done(0, 1, 0), leave],
        {
            "ordered": [[], [(0, [0])]],
            "unordered": [[(1, [0, 1])], [(0, [0])]],
            "key_ordered": [[(1, [1])], [(0, [0]), (1, [0])]],
        },
    ),
    "rows of one slice": (
        [put(5, 5, 6, 5), done(0, 0, 1, 1, 1), leave, done(0, 1, 0, 0, 0), leave],
        {
            "ordered": [[], [(0, [0, 1, 2, 3])]],
            "unordered": [[(0, [1, 2, 3])], [(0, [0])]],
            "key_ordered": [[(0, [2])], [(0, [0, 1, 3])]],
        },
    ),
    "an expired row releases its key": (
        [put(1, deadline_s=1.0), put(1, 1, 2), done(1, 1, 1, 0), leave, expire(1.0), leave],
        {
            "ordered": [[], [(0, [0]), (1, [0, 1])]],
            "unordered": [[(1, [0, 1])], [(0, [0])]],
            "key_ordered": [[], [(0, [0]), (1, [0, 1])]],
        },
    ),
}


@each_mode
@pytest.mark.parametrize("name", SCENARIOS)
def test_rows_leave_in_order_of_mode(name: str, mode: str) -> None:
    """Each mode emits completed rows in its order, and nothing crosses a watermark."""
    steps, expected = SCENARIOS[name]

    returned = played(QUEUES[mode](9), *steps)

    left = [each for step, each in zip(steps, returned, strict=True) if step is leave]
    assert left == expected[mode]


def test_long_segment_forgets_left_rows() -> None:
    """Without watermarks the key order stays right while thousands of rows come and go."""
    queue, keys = KeyOrderedQueue(5_000), range(2, 2_002)
    played(queue, put(1))

    for slot in range(1, 6):
        returned = played(queue, put(*keys), done(slot, *[1] * 2_000), leave)
        assert returned[2] == [(slot, [*range(2_000)])]

    order = queue._segments[0].order
    assert isinstance(order, OrderOfKeys)
    assert len(order._slots) < 5_000
    steps = [put(3, 1), done(6, 1, 1), leave, done(0, 1), leave]
    assert played(queue, *steps)[2::2] == [[(6, [0])], [(0, [0]), (6, [1])]]


@pytest.mark.parametrize("element", [Slice(2, 9.0), Slice(2, 9.0, np.zeros(1, np.uint64))])
def test_key_order_needs_hashes(element: Slice) -> None:
    """A slice without a hash for each row is an error, and takes no place."""
    queue = KeyOrderedQueue(4)

    with pytest.raises(ValueError, match="key_hashes, one for each row"):
        queue.try_put(element)
    assert queue.free_places() == 4


@dataclass(slots=True)
class Entry:
    """One record, or a watermark (then `row` is None)."""

    slot: int
    row: int | None
    deadline_s: float = math.inf
    key: int = 0
    is_open: bool = False
    freed: int | None = None  # the step from which on it may leave its segment

    @property
    def place(self) -> Place:
        """Describe the entry."""
        return self.slot, self.row


class NaiveQueue:
    """Twin of the queues: all records in the order of arrival, slow and plain."""

    def __init__(self, capacity: int, mode: str) -> None:
        self.capacity = capacity
        self.mode = mode
        self.entries: list[Entry] = []
        self._step = 0
        self._slots = itertools.count()

    def put(self, keys: list[int], deadline_s: float) -> int | None:
        """Append a record for each key."""
        return self._append(
            [Entry(0, row, deadline_s, key, is_open=True) for row, key in enumerate(keys)]
        )

    def mark(self) -> int | None:
        """Append a watermark."""
        return self._append([Entry(0, None, freed=0)])

    def complete(self, slot: int, rows: set[int]) -> bool:
        """Complete records; whether any of them was open."""
        completing = [each for each in self._open() if each.slot == slot and each.row in rows]
        self._step += 1  # rows that become free together leave together, in their order
        for entry in completing:
            entry.is_open = False
        for entry in self.entries:
            if not entry.is_open and entry.freed is None and not self._is_held(entry):
                entry.freed = self._step
        return bool(completing)

    def expire(self, now_s: float) -> set[Place]:
        """Complete the open records whose deadline has come, slot by slot."""
        late = [entry for entry in self._open() if entry.deadline_s <= now_s]
        for _, slot in sorted({(entry.deadline_s, entry.slot) for entry in late}):
            self.complete(slot, {each.row for each in late if each.row is not None})
        return {entry.place for entry in late}

    def next_deadline(self) -> float | None:
        """The earliest deadline of an open record."""
        return min((entry.deadline_s for entry in self._open()), default=None)

    def may_leave(self) -> list[Place]:
        """The entries that may leave now, in order: records up to a watermark, or the watermark."""
        marks = [at for at, entry in enumerate(self.entries) if entry.row is None]
        front = self.entries[: max(min(marks, default=len(self.entries)), 1)]
        if self.mode == "ordered":
            return [
                each.place for each in itertools.takewhile(lambda each: not each.is_open, front)
            ]
        # Stable: those that became free together leave in the order of arrival.
        free = [entry for entry in front if entry.freed is not None]
        return [entry.place for entry in sorted(free, key=lambda entry: entry.freed or 0)]

    def remove(self, place: Place) -> None:
        """One record or watermark has left."""
        self.entries = [entry for entry in self.entries if entry.place != place]

    def _append(self, entries: list[Entry]) -> int | None:
        if len(self.entries) + len(entries) > self.capacity:
            return None
        slot = next(self._slots)
        for entry in entries:
            entry.slot = slot
        self.entries += entries
        return slot

    def _is_held(self, entry: Entry) -> bool:
        """Whether an open record of the same key stands before it in its segment."""
        if self.mode != "key_ordered":
            return False
        before = self.entries[: self.entries.index(entry)]
        segment = itertools.takewhile(lambda each: each.row is not None, reversed(before))
        return any(each.is_open and each.key == entry.key for each in segment)

    def _open(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.is_open]


class QueueMachine(RuleBasedStateMachine):
    """A queue against its twin, record by record."""

    mode: str

    @initialize(capacity=st.integers(1, 12))
    def start(self, capacity: int) -> None:
        """Begin with empty queues of the same capacity."""
        self.queue = QUEUES[self.mode](capacity)
        self.twin = NaiveQueue(capacity, self.mode)
        self.sizes: dict[int, int] = {}
        self.now_s = 0.0

    @rule(
        keys=st.lists(st.integers(0, 3), min_size=1, max_size=5),
        timeout_s=st.sampled_from([1.0, 3.0, math.inf]),
    )
    def put_slice(self, keys: list[int], timeout_s: float) -> None:
        """Both accept a slice, or none does."""
        slot = put(*keys, deadline_s=self.now_s + timeout_s)(self.queue)
        assert slot == self.twin.put(keys, self.now_s + timeout_s)
        if isinstance(slot, int):
            self.sizes[slot] = len(keys)

    @rule()
    def put_watermark(self) -> None:
        """Both accept a watermark, or none does."""
        assert mark(self.queue) == self.twin.mark()

    @precondition(lambda self: self.sizes)
    @rule(choice=st.data())
    def complete(self, choice: st.DataObject) -> None:
        """Complete any rows of any slice, also again and late."""
        slot = choice.draw(st.sampled_from(sorted(self.sizes)))
        flags = choice.draw(st.lists(st.booleans(), min_size=(n := self.sizes[slot]), max_size=n))
        rows = set(np.flatnonzero(flags).tolist())
        assert done(slot, *flags)(self.queue) == self.twin.complete(slot, rows)

    @rule(passed_s=st.sampled_from([0.0, 0.5, 1.0]))
    def expire(self, passed_s: float) -> None:
        """Time completes the same rows in both."""
        self.now_s += passed_s
        assert self.queue.next_deadline() == self.twin.next_deadline()
        expired = {slot for slot, _ in self.twin.expire(self.now_s)}
        assert {*self.queue.expire(self.now_s)} == expired

    @rule()
    def pop(self) -> None:
        """The front of what may leave leaves; nothing leaves only if nothing may."""
        allowed = self.twin.may_leave()
        emission = self.queue.pop_completed()
        if emission is None:
            assert allowed == []
            return
        left: list[Place] = [(emission.slot, int(row)) for row in emission.rows]
        left = left or [(emission.slot, None)]
        assert left == allowed[: len(left)]
        for place in left:
            self.twin.remove(place)
        assert emission.is_last == all(entry.slot != emission.slot for entry in self.twin.entries)

    @invariant()
    def agrees_with_twin(self) -> None:
        """Places and open rows are those of the twin."""
        if not hasattr(self, "queue"):
            return
        self.queue.check_invariants()
        assert self.queue.capacity - self.queue.free_places() == len(self.twin.entries)
        open_rows = sum(slot.open_rows for slot in self.queue._slots.values())
        assert open_rows == sum(entry.is_open for entry in self.twin.entries)

    def teardown(self) -> None:
        """When all rows are complete, all leave."""
        if not hasattr(self, "queue"):
            return
        for slot, size in self.sizes.items():
            done(slot, *[1] * size)(self.queue)
        leave(self.queue)
        assert self.queue.free_places() == self.queue.capacity


@each_mode
@example_counts(quick=15, full=200)
def test_queue_agrees_with_its_twin(examples: int, mode: str) -> None:
    """After any events, a queue has the same content as a list of single records."""
    machine = type("QueueMachine", (QueueMachine,), {"mode": mode})
    run_model(machine, examples=examples, steps=30)
