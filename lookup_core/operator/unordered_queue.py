"""The element queue from which completed rows leave at once, up to the next watermark.

Not for input whose order matters: see `ordered_queue` and `key_ordered_queue`.
"""

from lookup_core.operator.element_queue import Positions, Slice, SlotId
from lookup_core.operator.segmented_queue import SegmentedQueue, SlotRows


class UnorderedQueue(SegmentedQueue):
    """An `ElementQueue` in which rows overtake each other between two watermarks."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, OrderOfCompletion)


class OrderOfCompletion:
    """A `SegmentOrder` in which whatever is complete may leave."""

    def add(self, slot: SlotId, element: Slice) -> None:
        """See `SegmentOrder`."""

    def complete(self, slot: SlotId, rows: Positions) -> list[SlotRows]:
        """See `SegmentOrder`."""
        return [(slot, rows)]

    def held(self) -> list[SlotId]:
        """Nothing is held back."""
        return []

    def check_invariants(self) -> None:
        """See `SegmentOrder`."""
