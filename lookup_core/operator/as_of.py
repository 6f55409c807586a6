"""As-of lookups: event times and the row version that is valid at each."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.errors import bad_frame

Moments = npt.NDArray[np.int64]
VersionPositions = npt.NDArray[np.int64]  # over all lists, or in a row's

NEVER_US = -(2**63)  # a record without a time: precedes all versions
EARLIEST_US = NEVER_US + 1  # valid_from is NULL
NO_VERSION = -1
LATEST_US = 2**63 - 1  # valid_to is NULL; no version is valid at this microsecond

_US_PER_DAY = 86_400_000_000
_US_PER_TICK = {"s": 1_000_000, "ms": 1_000}
_NS_PER_US = 1_000


def is_moment(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold event times: a timestamp or a date32."""
    return bool(types.is_timestamp(kind) or types.is_date32(kind))


def moments_us(column: pa.Array, *, null_us: int) -> Moments:
    """Microseconds since the epoch, rounded down and clipped to 64 bits; `null_us` for NULL.

    A date is midnight UTC. A timestamp without a zone is UTC.
    """
    moments = _ignoring_nulls(column)
    if not column.null_count:
        return moments
    return np.where(column.is_null().to_numpy(zero_copy_only=False), null_us, moments)


def _ignoring_nulls(column: pa.Array) -> Moments:
    """The value of a NULL is undefined."""
    if types.is_date32(column.type):
        return _scaled(_numbers(column, pa.int32()), _US_PER_DAY)
    ticks = _numbers(column, pa.int64())
    match column.type.unit:
        case "ns":
            return ticks // _NS_PER_US
        case "us":
            return np.maximum(ticks, EARLIEST_US)
        case unit:
            return _scaled(ticks, _US_PER_TICK[unit])


def _numbers(column: pa.Array, kind: pa.DataType) -> Moments:
    # Without the validity bitmap: replacing nulls would take longer than everything else.
    buffers = [None, column.buffers()[1]]
    numbers = pa.Array.from_buffers(kind, len(column), buffers, offset=column.offset)
    return np.asarray(numbers.to_numpy(), np.int64)


def _scaled(ticks: Moments, tick_us: int) -> Moments:
    most = (LATEST_US - 1) // tick_us
    scaled: Moments = np.clip(ticks, -most, most) * tick_us
    return scaled


@dataclass(frozen=True, slots=True)
class VersionPick:
    """Selects the version of a row that is valid at a time."""

    columns: pa.Schema  # the requested columns, without lists; they come first in the answer
    valid_from: int  # position of the list column
    valid_to: int | None  # None: a version is valid until the next one begins

    def picked(
        self, lists: pa.RecordBatch, keys: VersionPositions, times_us: Moments
    ) -> "PickedVersions":
        """The versions for records; record i needs row `keys[i]` of the lists at `times_us[i]`.

        Of overlapping versions, the last to begin. Raises ProtocolViolation for a null list, and
        for lists of one row with different lengths.
        """
        offsets = _common_offsets(lists)
        values = [column.flatten() for column in lists.columns]
        begin_us = moments_us(values[self.valid_from], null_us=EARLIEST_US)
        starts = offsets[:-1][keys]
        places = _last_begun(begin_us, times_us, starts=starts, stops=offsets[1:][keys])
        if self.valid_to is not None and len(begin_us):
            end_us = moments_us(values[self.valid_to], null_us=LATEST_US)
            _leave_ended(places, times_us, starts=starts, end_us=end_us, offsets=offsets)
        places[places < starts] = NO_VERSION
        rows = pa.record_batch(values[: len(self.columns)], schema=self.columns)
        return PickedVersions(rows, places)


@dataclass(frozen=True, slots=True)
class PickedVersions:
    """All versions as rows, and the version of each record."""

    rows: pa.RecordBatch
    places: VersionPositions  # [records] position in `rows`, or NO_VERSION


def _common_offsets(lists: pa.RecordBatch) -> VersionPositions:
    """The offsets of the lists, which all columns share."""
    common, *others = [_offsets(column) for column in lists.columns]
    if not all(np.array_equal(common, other) for other in others):
        raise bad_frame("the version lists of one row have different lengths")
    return common


def _offsets(column: pa.ListArray) -> VersionPositions:
    if column.null_count:
        raise bad_frame("a version list is null")
    offsets: VersionPositions = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0]


def _last_begun(
    begin_us: Moments, times_us: Moments, *, starts: VersionPositions, stops: VersionPositions
) -> VersionPositions:
    """The last place in [start, stop) that begins no later than the time; else start - 1."""
    places: VersionPositions = starts - 1
    longest = int((stops - starts).max(initial=0))
    step = 1 << longest.bit_length() >> 1
    while step:
        further = places + step
        has_begun = begin_us.take(further, mode="clip") <= times_us
        has_begun &= further < stops
        places += step * has_begun
        step >>= 1
    return places


def _leave_ended(
    places: VersionPositions,
    times_us: Moments,
    *,
    starts: VersionPositions,
    end_us: Moments,
    offsets: VersionPositions,
) -> None:
    """Move places of ended versions back to one that is valid; before the start if none is."""
    ended = np.flatnonzero(end_us.take(places, mode="clip") <= times_us)
    if not _has_nested(end_us, offsets):
        places[ended] = NO_VERSION  # earlier versions end earlier
        return
    while len(ended):
        places[ended] -= 1
        ended = ended[places[ended] >= starts[ended]]
        ended = ended[end_us.take(places[ended]) <= times_us[ended]]


def _has_nested(end_us: Moments, offsets: VersionPositions) -> bool:
    """Whether any version ends after a version of its list that begins later."""
    is_later = end_us[:-1] > end_us[1:]
    borders = offsets[(offsets > 0) & (offsets < len(end_us))]
    is_later[borders - 1] = False  # neighbours of different lists
    return bool(is_later.any())


@dataclass(frozen=True, slots=True)
class AsOf:
    """The times at which records need their versions."""

    times_us: Moments  # [records]; `NEVER_US` selects no version
    pick: VersionPick

    @property
    def event_time_ms(self) -> int | None:
        """The latest time in milliseconds, rounded down; None if no record has a time."""
        largest_us = int(self.times_us.max(initial=NEVER_US))
        return None if largest_us == NEVER_US else largest_us // 1000
