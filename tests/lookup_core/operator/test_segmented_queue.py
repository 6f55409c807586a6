"""Segments between watermarks, whatever their order.

Most of it is the contract of all element queues: see `test_element_queue`.
"""

import math

import numpy as np
import pytest

from lookup_core.operator.element_queue import Mark, Segment, Slice
from lookup_core.operator.segmented_queue import KeyOrderedQueue, UnorderedQueue


@pytest.mark.parametrize("new_queue", [UnorderedQueue, KeyOrderedQueue])
def test_segments_tell_what_they_hold(
    new_queue: type[UnorderedQueue | KeyOrderedQueue],
) -> None:
    """Each segment and each watermark is told on its own, oldest first."""
    queue = new_queue(9)
    first = queue.try_put(Slice(2, math.inf, np.array([1, 2], np.uint64)))
    mark = queue.try_put(Mark())
    second = queue.try_put(Slice(1, math.inf, np.array([1], np.uint64)))
    assert first is not None
    assert mark is not None
    assert second is not None

    queue.complete(first, np.array([True, False]))

    assert queue.pending() == (
        Segment(completed=(first,), open=(first,)),
        Segment(completed=(mark,), open=()),
        Segment(completed=(), open=(second,)),
    )
