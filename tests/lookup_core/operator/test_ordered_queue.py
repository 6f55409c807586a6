"""What only the ordered queue promises."""

import math

import numpy as np

from lookup_core.operator.element_queue import Mark, Segment, Slice
from lookup_core.operator.ordered_queue import OrderedQueue


def test_only_the_head_leaves() -> None:
    """A complete slice waits for an incomplete one before it."""
    queue = OrderedQueue(4)
    first, second = queue.try_put(Slice(2, math.inf)), queue.try_put(Slice(2, math.inf))
    assert first is not None
    assert second is not None

    queue.complete(second, np.ones(2, np.bool_))

    assert queue.pop_completed() is None
    assert not queue.statistics().can_emit


def test_completed_prefix_leaves_at_once() -> None:
    """The rows before the first open one leave together, the others stay."""
    queue = OrderedQueue(4)
    slot = queue.try_put(Slice(4, math.inf))
    assert slot is not None

    queue.complete(slot, np.array([True, True, False, True]))

    emission = queue.pop_completed()
    assert emission is not None
    assert (emission.slot, emission.rows.tolist(), emission.is_last) == (slot, [0, 1], False)
    assert queue.pop_completed() is None
    assert queue.free_places() == 2


def test_pending_lists_elements_in_order() -> None:
    """Each element stands for itself, open or completed."""
    queue = OrderedQueue(4)
    first, mark = queue.try_put(Slice(1, math.inf)), queue.try_put(Mark())
    assert first is not None
    assert mark is not None

    assert queue.pending() == (Segment((), (first,)), Segment((mark,), ()))
