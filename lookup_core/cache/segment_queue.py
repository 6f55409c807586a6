"""The segments of one queue of rows: which there are, what they hold, how large one may become.

Only numbers: the segments themselves stand in the store.
"""

from dataclasses import dataclass

# About what an entry takes beside its row: else a segment of narrow rows would be half the cache.
BYTES_BESIDE_ROW = 40

_SEGMENTS_OF_A_QUEUE = 6  # about; each more of them costs every gathering a dozen microseconds
_MOST_SEGMENT_BYTES = 256 * 1024 * 1024  # far from where the 32-bit offsets of Arrow's text end


@dataclass(slots=True)
class SegmentQueue:
    """Changed by its store only."""

    max_segment_bytes: int
    ids: dict[int, None]  # of segments, oldest first
    bytes: int = 0
    rows: int = 0

    @property
    def segment_bytes(self) -> int:
        """How large a segment may become by merging, with what its entries take elsewhere."""
        whole_bytes = self.bytes + BYTES_BESIDE_ROW * self.rows
        large = max(self.max_segment_bytes, whole_bytes // _SEGMENTS_OF_A_QUEUE)
        return min(large, _MOST_SEGMENT_BYTES)
