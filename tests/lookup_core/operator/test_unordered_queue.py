"""What only the unordered queue promises."""

import math

import numpy as np

from lookup_core.operator.element_queue import Mark, Segment, Slice, SlotId
from lookup_core.operator.segmented_queue import UnorderedQueue


def put(queue: UnorderedQueue, element: Slice | Mark) -> SlotId:
    """Put an element that fits."""
    slot = queue.try_put(element)
    assert slot is not None
    return slot


def left(queue: UnorderedQueue) -> list[tuple[SlotId, list[int]]]:
    """Everything that leaves now."""
    leaving = []
    while (emission := queue.pop_completed()) is not None:
        leaving.append((emission.slot, emission.rows.tolist()))
    queue.check_invariants()
    return leaving


def test_rows_leave_as_they_complete() -> None:
    """Inside a segment the order is that of completion, also among the rows of a slice."""
    queue = UnorderedQueue(6)
    first, second = put(queue, Slice(2, math.inf)), put(queue, Slice(2, math.inf))

    queue.complete(second, np.array([False, True]))
    queue.complete(first, np.array([True, True]))
    queue.complete(second, np.array([True, True]))

    assert left(queue) == [(second, [1]), (first, [0, 1]), (second, [0])]


def test_late_slice_joins_last_segment() -> None:
    """A slice that arrives after a watermark belongs behind it, even if nothing is before it."""
    queue = UnorderedQueue(6)
    put(queue, Slice(1, math.inf))
    put(queue, Mark())
    behind = put(queue, Slice(1, math.inf))

    queue.complete(behind, np.ones(1, np.bool_))

    assert left(queue) == []
    assert queue.pending()[-1] == Segment(completed=(behind,), open=())


def test_drained_segment_makes_way_for_watermark() -> None:
    """A watermark behind an empty segment leaves at once, and records behind it go on."""
    queue = UnorderedQueue(4)
    slot = put(queue, Slice(1, math.inf))
    queue.complete(slot, np.ones(1, np.bool_))
    left(queue)

    first, second = put(queue, Mark()), put(queue, Mark())
    record = put(queue, Slice(1, math.inf))
    queue.complete(record, np.ones(1, np.bool_))

    assert left(queue) == [(first, []), (second, []), (record, [0])]
    assert queue.pending() == ()


def test_expired_rows_leave_after_completed() -> None:
    """Rows whose time is up leave like completed ones, in their turn."""
    queue = UnorderedQueue(4)
    slot = put(queue, Slice(2, 1.0))
    queue.complete(slot, np.array([False, True]))

    queue.expire(1.0)

    assert left(queue) == [(slot, [1]), (slot, [0])]
