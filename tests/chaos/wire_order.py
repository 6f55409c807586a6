"""Which keys of a partition belong before which watermark on the wire, record by record.

For keys of a single record only: of the others nobody could say which record asked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS
from tests.chaos.records import Records


@dataclass(frozen=True, slots=True)
class WireOrder:
    """What a lookup must not come behind."""

    segment_of_key: Mapping[int, int]
    segment_of_watermark: Mapping[int, int]  # the last one that stands before it

    @classmethod
    def of(cls, records: Records) -> "WireOrder":
        """What holds for these records."""
        times = Counter(records.keys)
        segments = records.segments()
        single = {
            key: segments[number] for number, key in enumerate(records.keys) if times[key] == 1
        }
        marks: dict[int, int] = {}
        for segment, watermark_ms in enumerate(records.watermarks_ms()):
            marks.setdefault(watermark_ms, segment)  # of equal ones the first says least
        return cls(single, {**marks, MAX_WATERMARK_MS: len(segments)})

    def late(self, keys: Iterable[int], watermark_ms: int | None) -> int:
        """How many keys belong before a watermark that was sent already."""
        if watermark_ms is None:
            return 0
        passed = self.segment_of_watermark[watermark_ms]
        return sum(self.segment_of_key.get(key, passed + 1) <= passed for key in keys)
