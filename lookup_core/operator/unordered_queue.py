"""The element queue in which records overtake each other, but never a watermark.

Segments are divided by watermarks; whatever is complete in the first segment leaves, in the order
of completion. Not for input whose order matters: see `ordered_queue`. After Flink's
`UnorderedStreamElementQueue`.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lookup_core.operator import element_queue
from lookup_core.operator.element_queue import (
    Emission,
    Expired,
    Mark,
    Positions,
    QueueStatistics,
    RowMask,
    Slice,
    SlotId,
)
from lookup_core.operator.slot_table import SlotTable


@dataclass(slots=True)
class _Segment:
    is_mark: bool
    open: dict[SlotId, None] = field(default_factory=dict)  # a set that keeps its order
    completed: deque[tuple[SlotId, Positions]] = field(default_factory=deque)

    @property
    def is_empty(self) -> bool:
        return not self.open and not self.completed


class UnorderedQueue:
    """An `ElementQueue` in which rows overtake each other between two watermarks."""

    def __init__(self, capacity: int) -> None:
        self._table = SlotTable(capacity)
        self._segments: deque[_Segment] = deque()
        self._segment_of: dict[SlotId, _Segment] = {}  # {slot with open rows: where it stands}

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """See `ElementQueue`."""
        slot = self._table.try_add(element)
        if slot is None:
            return None
        if isinstance(element, Mark):
            segment = self._new_segment(is_mark=True)
            segment.completed.append((slot, np.zeros(0, np.intp)))
            return slot
        segment = self._segments[-1] if self._segments else self._new_segment(is_mark=False)
        if segment.is_mark:
            segment = self._new_segment(is_mark=False)
        segment.open[slot] = None
        self._segment_of[slot] = segment
        return slot

    def complete(self, slot: SlotId, rows: RowMask) -> bool:
        """See `ElementQueue`."""
        return self._note_completed(slot, self._table.complete(slot, rows))

    def expire(self, now_s: float) -> list[Expired]:
        """See `ElementQueue`."""
        expired = self._table.expire(now_s)
        for each in expired:
            self._note_completed(each.slot, each.rows)
        return expired

    def pop_completed(self) -> Emission | None:
        """The rows of the first segment that were completed first, or its watermark."""
        if not self._can_emit():
            return None
        segment = self._segments[0]
        slot, rows = segment.completed.popleft()
        is_last = self._table.release(slot, 1 if segment.is_mark else len(rows))
        if segment.is_empty and len(self._segments) > 1:
            self._segments.popleft()
        return Emission(slot, rows, is_last)

    def next_deadline(self) -> float | None:
        """See `ElementQueue`."""
        return self._table.next_deadline()

    def free_places(self) -> int:
        """See `ElementQueue`."""
        return self._table.free_places()

    def pending(self) -> tuple[element_queue.Segment, ...]:
        """The segments that hold something; completed slots in the order in which they leave."""
        return tuple(
            element_queue.Segment(
                completed=tuple(dict.fromkeys(slot for slot, _ in segment.completed)),
                open=tuple(segment.open),
            )
            for segment in self._segments
            if not segment.is_empty
        )

    def statistics(self) -> QueueStatistics:
        """See `ElementQueue`."""
        return self._table.statistics(can_emit=self._can_emit())

    def check_invariants(self) -> None:
        """See `ElementQueue`."""
        self._table.check_invariants()
        assert not any(segment.is_empty for segment in list(self._segments)[:-1])
        assert self._segment_of == dict(self._open_slots())
        assert all(self._table.is_open(slot) for slot in self._segment_of)

    def _new_segment(self, *, is_mark: bool) -> _Segment:
        # An emptied segment goes when another follows: it would hide what stands behind it.
        if self._segments and self._segments[-1].is_empty:
            self._segments.pop()
        segment = _Segment(is_mark)
        self._segments.append(segment)
        return segment

    def _note_completed(self, slot: SlotId, rows: Positions) -> bool:
        if not len(rows):
            return False
        segment = self._segment_of[slot]
        segment.completed.append((slot, rows))
        if not self._table.is_open(slot):
            del segment.open[slot]
            del self._segment_of[slot]
        return True

    def _can_emit(self) -> bool:
        return bool(self._segments) and bool(self._segments[0].completed)

    def _open_slots(self) -> Iterator[tuple[SlotId, _Segment]]:
        for segment in self._segments:
            yield from ((slot, segment) for slot in segment.open)
