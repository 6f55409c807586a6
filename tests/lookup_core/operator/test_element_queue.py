"""The contract of the element queues, held by all of them.

What only one of them promises stands in its own test file.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from lookup_core.operator.element_queue import (
    ElementQueue,
    Expired,
    Mark,
    QueueStatistics,
    Slice,
    SlotId,
)
from lookup_core.operator.ordered_queue import OrderedQueue
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue
from tests.lookup_core.operator.naive_queue import NaiveQueue

QUEUES = [OrderedQueue, UnorderedQueue, KeyOrderedQueue]
NEW_KEYS = itertools.count()
each_queue = pytest.mark.parametrize("new_queue", QUEUES)
NewQueue = type[OrderedQueue | UnorderedQueue | KeyOrderedQueue]
MODES: dict[NewQueue, str] = {
    OrderedQueue: "ordered",
    UnorderedQueue: "unordered",
    KeyOrderedQueue: "key_ordered",
}


def put(queue: ElementQueue, size: int, deadline_s: float = math.inf) -> SlotId:
    """Put a slice that fits, of keys that no other record has."""
    hashes = np.array(list(itertools.islice(NEW_KEYS, size)), np.uint64)
    slot = queue.try_put(Slice(size, deadline_s, hashes))
    assert slot is not None
    return slot


def rows(*flags: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """A mask of rows."""
    return np.array(flags, np.bool_)


def drained(queue: ElementQueue) -> list[tuple[SlotId, list[int]]]:
    """All that may leave now."""
    leaving = []
    while (emission := queue.pop_completed()) is not None:
        leaving.append((emission.slot, emission.rows.tolist()))
    queue.check_invariants()
    return leaving


@each_queue
def test_refuses_what_exceeds_capacity(new_queue: NewQueue) -> None:
    """A slice is taken whole or not at all; nothing changes when it is refused."""
    queue = new_queue(5)
    put(queue, 3)
    before = queue.statistics()

    assert queue.try_put(Slice(3, math.inf, np.arange(3, dtype=np.uint64))) is None
    assert queue.statistics() == before
    assert queue.free_places() == 2


@each_queue
def test_completed_rows_keep_their_places(new_queue: NewQueue) -> None:
    """A row that is complete but has not left still counts."""
    queue = new_queue(2)
    slot = put(queue, 2)

    queue.complete(slot, rows(1, 1))

    assert queue.free_places() == 0
    assert queue.try_put(Mark()) is None


@each_queue
def test_watermark_takes_one_place(new_queue: NewQueue) -> None:
    """A watermark is complete on arrival, takes a place, and leaves without rows."""
    queue = new_queue(1)

    slot = queue.try_put(Mark())

    assert slot is not None
    assert queue.free_places() == 0
    assert drained(queue) == [(slot, [])]
    assert queue.free_places() == 1


@each_queue
def test_second_completion_is_ignored(new_queue: NewQueue) -> None:
    """The first completion of a row counts; again, late or for a stranger it is a no-op."""
    queue = new_queue(3)
    slot = put(queue, 2)

    assert queue.complete(slot, rows(1, 0))
    assert not queue.complete(slot, rows(1, 0))
    assert queue.complete(slot, rows(1, 1))
    assert drained(queue)[0][0] == slot
    assert not queue.complete(slot, rows(1, 1))
    assert not queue.complete(SlotId(99), rows(1, 1))


@each_queue
def test_deadline_itself_is_too_late(new_queue: NewQueue) -> None:
    """Rows expire when the deadline is reached, once, and only those that are open."""
    queue = new_queue(4)
    slot = put(queue, 2, deadline_s=10.0)
    queue.complete(slot, rows(1, 0))

    assert queue.expire(9.9) == []
    assert [(each.slot, each.rows.tolist()) for each in queue.expire(10.0)] == [(slot, [1])]
    assert queue.expire(10.0) == []
    assert [row for _, left in drained(queue) for row in left] == [0, 1]


@each_queue
def test_next_deadline_is_of_open_rows(new_queue: NewQueue) -> None:
    """Slices that wait for nothing any more have no deadline."""
    queue = new_queue(4)
    early, late = put(queue, 1, deadline_s=1.0), put(queue, 1, deadline_s=2.0)

    assert queue.next_deadline() == 1.0
    queue.complete(early, rows(1))
    assert queue.next_deadline() == 2.0
    queue.complete(late, rows(1))
    assert queue.next_deadline() is None


@each_queue
def test_nothing_crosses_a_watermark(new_queue: NewQueue) -> None:
    """A record behind a watermark waits for every record before it."""
    queue = new_queue(4)
    before = put(queue, 1)
    mark = queue.try_put(Mark())
    behind = put(queue, 1)

    queue.complete(behind, rows(1))

    assert drained(queue) == []
    queue.complete(before, rows(1))
    assert drained(queue) == [(before, [0]), (mark, []), (behind, [0])]


@each_queue
def test_statistics_tell_levels_and_totals(new_queue: NewQueue) -> None:
    """A snapshot counts places, open rows and all that ever expired."""
    queue = new_queue(9)
    put(queue, 2, deadline_s=1.0)
    put(queue, 3)
    queue.try_put(Mark())

    queue.expire(5.0)

    assert queue.statistics() == QueueStatistics(
        capacity=9, size=6, open_rows=3, expired_total=2, can_emit=True
    )


@each_queue
def test_capacity_must_be_positive(new_queue: NewQueue) -> None:
    """A queue without places, and a slice without rows, are mistakes."""
    with pytest.raises(ValueError, match="capacity"):
        new_queue(0)
    with pytest.raises(ValueError, match="at least one row"):
        new_queue(1).try_put(Slice(0, math.inf, np.zeros(0, np.uint64)))


KEYS = st.lists(st.integers(0, 3), min_size=1, max_size=5)


class QueueMachine(RuleBasedStateMachine):
    """Any sequence of operations gives what the list model gives, record by record."""

    new_queue: NewQueue

    @initialize(capacity=st.integers(1, 12))
    def start(self, capacity: int) -> None:
        """Begin with empty queues of the same capacity."""
        self.queue: ElementQueue = self.new_queue(capacity)
        self.model = NaiveQueue(capacity, MODES[self.new_queue])
        self.sizes: dict[int, int] = {}
        self.now_s = 0.0

    @rule(keys=KEYS, timeout_s=st.sampled_from([1.0, 3.0, math.inf]))
    def put_slice(self, keys: list[int], timeout_s: float) -> None:
        """A slice is accepted by both or by none."""
        deadline_s = self.now_s + timeout_s
        slot = self.queue.try_put(Slice(len(keys), deadline_s, np.array(keys, np.uint64)))
        assert slot == self.model.put(keys, deadline_s)
        if slot is not None:
            self.sizes[slot] = len(keys)

    @rule()
    def put_watermark(self) -> None:
        """A watermark is accepted by both or by none."""
        assert self.queue.try_put(Mark()) == self.model.mark()

    @precondition(lambda self: self.sizes)
    @rule(choice=st.data())
    def complete(self, choice: st.DataObject) -> None:
        """Completing any rows of any slice, again and late included, applies to both or none."""
        slot = choice.draw(st.sampled_from(sorted(self.sizes)))
        size = self.sizes[slot]
        mask = choice.draw(st.lists(st.booleans(), min_size=size, max_size=size))
        completed = self.queue.complete(SlotId(slot), np.array(mask, np.bool_))
        assert completed == self.model.complete(slot, set(np.flatnonzero(mask).tolist()))

    @rule(passed_s=st.sampled_from([0.0, 0.5, 1.0]))
    def expire(self, passed_s: float) -> None:
        """Time ends the same rows in both."""
        self.now_s += passed_s
        assert self.queue.next_deadline() == self.model.next_deadline()
        expired = {(each.slot, row) for each in self.queue.expire(self.now_s) for row in each.rows}
        assert expired == self.model.expire(self.now_s)

    @rule()
    def pop(self) -> None:
        """What leaves is the front of what may leave; nothing leaves only if nothing may."""
        allowed = self.model.may_leave()
        emission = self.queue.pop_completed()
        if emission is None:
            assert allowed == []
            return
        left: list[tuple[int, int | None]] = [(emission.slot, int(row)) for row in emission.rows]
        left = left or [(emission.slot, None)]
        assert left == allowed[: len(left)]
        for slot, row in left:
            self.model.remove(slot, row)
        assert emission.is_last == all(entry.slot != emission.slot for entry in self.model.entries)

    @invariant()
    def agrees_with_model(self) -> None:
        """Places and what may leave are those of the model, and the books agree."""
        if not hasattr(self, "queue"):
            return
        self.queue.check_invariants()
        statistics = self.queue.statistics()
        assert statistics.size == len(self.model.entries)
        assert statistics.can_emit == bool(self.model.may_leave())

    def teardown(self) -> None:
        """All that is complete leaves in the end, and then all that is left completes."""
        if not hasattr(self, "queue"):
            return
        for slot, size in self.sizes.items():
            self.queue.complete(SlotId(slot), np.ones(size, np.bool_))
        drained(self.queue)
        assert self.queue.statistics().size == 0
        assert self.queue.pending() == ()


def machine_for(new_queue: NewQueue) -> type[QueueMachine]:
    """The machine, for one of the queues."""
    return type(f"{new_queue.__name__}Machine", (QueueMachine,), {"new_queue": new_queue})


class TestOrderedQueueAgainstModel(machine_for(OrderedQueue).TestCase):  # type: ignore[misc]  # made by hypothesis
    """The ordered queue against the model."""

    settings = settings(max_examples=60, stateful_step_count=30)


class TestUnorderedQueueAgainstModel(machine_for(UnorderedQueue).TestCase):  # type: ignore[misc]  # made by hypothesis
    """The unordered queue against the model."""

    settings = settings(max_examples=60, stateful_step_count=30)


class TestKeyOrderedQueueAgainstModel(machine_for(KeyOrderedQueue).TestCase):  # type: ignore[misc]  # made by hypothesis
    """The queue in key order against the model."""

    settings = settings(max_examples=120, stateful_step_count=30)


def test_expired_rows_are_named() -> None:
    """Whoever expires rows learns which, to end what they wait for."""
    queue = OrderedQueue(2)
    slot = put(queue, 2, deadline_s=0.0)

    (expired,) = queue.expire(0.0)

    assert isinstance(expired, Expired)
    assert (expired.slot, expired.rows.tolist()) == (slot, [0, 1])
