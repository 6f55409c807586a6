"""A reference checker of the output of one partition, independent of the element queues."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from spark_client.lookup_settings import OutputMode
from tests.chaos.records import Records, value_of

Emitted = tuple[int, int | None, str]  # number of the record, value that it got, outcome


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of faulty records by kind of fault."""

    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    out_of_order: int = 0  # beyond what the mode allows
    watermark_violations: int = 0
    timed_out: int = 0

    def plus(self, other: "Tally") -> "Tally":
        """The sum of both."""
        return Tally(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def tally(records: Records, emitted: Iterable[Emitted], mode: OutputMode) -> Tally:
    """The faults of the emitted records, in their order."""
    rows = list(emitted)
    numbers = [number for number, _, _ in rows]
    times = Counter(numbers)
    return Tally(
        lost=sum(not times[number] for number in range(len(records.keys))),
        duplicated=sum(count - 1 for count in times.values()),
        wrong=sum(_is_wrong(records, row) for row in rows),
        out_of_order=_out_of_order(records, numbers, mode),
        watermark_violations=_violations(records, numbers),
        timed_out=sum(outcome == "timeout" for _, _, outcome in rows),
    )


def _is_wrong(records: Records, row: Emitted) -> bool:
    number, value, outcome = row
    if outcome == "timeout":
        return value is not None
    return value != value_of(records.keys[number])


def _out_of_order(records: Records, numbers: Sequence[int], mode: OutputMode) -> int:
    if mode is OutputMode.ORDERED:
        return _falls(numbers)
    if mode is OutputMode.UNORDERED:
        return 0
    last: dict[int, int] = {}  # {key: its last emitted record}
    count = 0
    for number in numbers:
        key = records.keys[number]
        count += number < last.get(key, -1)
        last[key] = number
    return count


def _violations(records: Records, numbers: Sequence[int]) -> int:
    segments = records.segments()
    return _falls([segments[number] for number in numbers])


def _falls(values: Sequence[int]) -> int:
    """The number of values that are smaller than one before them."""
    count, largest = 0, -1
    for value in values:
        count += value < largest
        largest = max(largest, value)
    return count
