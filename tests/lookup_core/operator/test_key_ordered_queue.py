"""What only the queue in key order promises."""

import math

import numpy as np
import pytest

from lookup_core.operator.element_queue import KeyHashes, Mark, Segment, Slice, SlotId
from lookup_core.operator.segmented_queue import KeyOrderedQueue


def put(queue: KeyOrderedQueue, *keys: int, deadline_s: float = math.inf) -> SlotId:
    """Put records of these keys, which fit."""
    slot = queue.try_put(Slice(len(keys), deadline_s, np.array(keys, np.uint64)))
    assert slot is not None
    return slot


def complete(queue: KeyOrderedQueue, slot: SlotId, *flags: int) -> None:
    """Complete the rows that are flagged."""
    assert queue.complete(slot, np.array(flags, np.bool_))


def left(queue: KeyOrderedQueue) -> list[tuple[SlotId, list[int]]]:
    """Everything that leaves now."""
    leaving = []
    while (emission := queue.pop_completed()) is not None:
        leaving.append((emission.slot, emission.rows.tolist()))
    queue.check_invariants()
    return leaving


def test_earlier_record_of_a_key_leaves_first() -> None:
    """A record waits for the records of its key that came before it, and for no others."""
    queue = KeyOrderedQueue(9)
    first, second = put(queue, 7, 8), put(queue, 7, 9, 8)

    complete(queue, second, 1, 1, 0)

    assert left(queue) == [(second, [1])]
    complete(queue, first, 1, 0)
    assert left(queue) == [(first, [0]), (second, [0])]


def test_key_keeps_order_within_a_slice() -> None:
    """Also among the rows of one slice a later one waits for an earlier one of its key."""
    queue = KeyOrderedQueue(4)
    slot = put(queue, 5, 5, 6, 5)

    complete(queue, slot, 0, 1, 1, 1)

    assert left(queue) == [(slot, [2])]
    complete(queue, slot, 1, 0, 0, 0)
    assert left(queue) == [(slot, [0, 1, 3])]


def test_held_rows_keep_their_places() -> None:
    """A completed row that is held back takes its place, and is told as completed."""
    queue = KeyOrderedQueue(2)
    first, second = put(queue, 1), put(queue, 1)

    complete(queue, second, 1)

    assert queue.pop_completed() is None
    assert queue.free_places() == 0
    assert queue.pending() == (Segment(completed=(second,), open=(first,)),)


def test_watermark_ends_what_a_key_waits_for() -> None:
    """Behind a watermark a key starts anew: what stands before it has left anyhow."""
    queue = KeyOrderedQueue(4)
    before, mark = put(queue, 1), queue.try_put(Mark())
    behind = put(queue, 1)

    complete(queue, behind, 1)

    assert left(queue) == []
    complete(queue, before, 1)
    assert left(queue) == [(before, [0]), (mark, []), (behind, [0])]


def test_expiry_frees_what_it_held() -> None:
    """A record whose time is up leaves, and those of its key behind it after it."""
    queue = KeyOrderedQueue(4)
    first, second = put(queue, 1, deadline_s=1.0), put(queue, 1, 2)
    complete(queue, second, 1, 0)

    queue.expire(1.0)

    assert left(queue) == [(first, [0]), (second, [0])]


def test_long_segment_forgets_what_left() -> None:
    """Without watermarks rows come and go beside one that stays, and their arrays stay small."""
    queue = KeyOrderedQueue(5_000)
    stays = put(queue, 1)

    for _ in range(20):
        slot = put(queue, *range(2, 2_002))
        complete(queue, slot, *[1] * 2_000)
        assert left(queue) == [(slot, list(range(2_000)))]

    held = put(queue, 3, 1)
    complete(queue, held, 1, 1)
    assert left(queue) == [(held, [0])]
    complete(queue, stays, 1)
    assert left(queue) == [(stays, [0]), (held, [1])]


@pytest.mark.parametrize("hashes", [None, np.zeros(1, np.uint64)])
def test_slices_need_their_keys(hashes: KeyHashes | None) -> None:
    """A slice that does not tell the key of each row is a mistake, and changes nothing."""
    queue = KeyOrderedQueue(4)

    with pytest.raises(ValueError, match="key_hashes, one for each row"):
        queue.try_put(Slice(2, math.inf, hashes))
    assert queue.free_places() == 4
