"""The contract of the element queues: what they hold, and what they give back.

The queues decide what may leave, and when. They do not wait: whoever has no room or nothing to
emit does that. Flink's `StreamElementQueue` is the model, over slices instead of single records.
"""

from dataclasses import dataclass
from typing import NewType, Protocol

import numpy as np
import numpy.typing as npt

SlotId = NewType("SlotId", int)
Positions = npt.NDArray[np.intp]  # of rows in their slice, ascending
RowMask = npt.NDArray[np.bool_]  # [rows of the slice]
KeyHashes = npt.NDArray[np.uint64]  # [rows of the slice]


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows that were put together; each takes one place, and completes on its own."""

    size: int
    deadline_s: float  # monotonic; from then on what is open counts as timed out
    # Rows with equal keys have equal hashes; needed only where keys keep their order.
    key_hashes: KeyHashes | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A watermark: complete on arrival, takes one place, and nothing overtakes it."""


@dataclass(frozen=True, slots=True)
class Emission:
    """Rows of one slice that leave now, or one watermark (then there are no rows)."""

    slot: SlotId
    rows: Positions
    is_last: bool  # nothing of this slot is left inside


@dataclass(frozen=True, slots=True)
class Expired:
    """Rows of one slice whose time was up; they are complete now and leave in their turn."""

    slot: SlotId
    rows: Positions


@dataclass(frozen=True, slots=True)
class Segment:
    """What stands between two watermarks, or one watermark: slots with rows inside."""

    completed: tuple[SlotId, ...]  # with rows that are complete and not emitted
    open: tuple[SlotId, ...]  # with rows that are not complete


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """Levels and totals of one queue."""

    capacity: int
    size: int  # places taken: rows and watermarks that have not left
    open_rows: int  # rows without an answer
    expired_total: int  # rows completed by `expire`, since the start
    can_emit: bool  # `pop_completed` would return something


class ElementQueue(Protocol):
    """A bounded queue of slices and watermarks."""

    def try_put(self, element: Slice | Mark) -> SlotId | None:
        """Take the whole element in, or return None if there are not enough free places."""

    def complete(self, slot: SlotId, rows: RowMask) -> bool:
        """Mark rows as answered; False if none of them was open (late, again, or unknown)."""

    def expire(self, now_s: float) -> list[Expired]:
        """Complete what is open in slices whose deadline is not after `now_s`."""

    def pop_completed(self) -> Emission | None:
        """The next that may leave, or None; its places are free from then on."""

    def next_deadline(self) -> float | None:
        """When `expire` will have something to do, or None."""

    def free_places(self) -> int:
        """How many rows or watermarks fit in now."""

    def pending(self) -> tuple[Segment, ...]:
        """What has not left, oldest first."""

    def statistics(self) -> QueueStatistics:
        """A snapshot."""

    def check_invariants(self) -> None:
        """For tests: AssertionError when the books do not agree."""
