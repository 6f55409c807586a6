"""As-of lookups: event times and the row version that is valid at each."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from lookup_core.errors import ErrorCode, ProtocolViolation

Moments = npt.NDArray[np.int64]

NEVER_US = -(2**63)  # before every time: of a record without one
EARLIEST_US = NEVER_US + 1  # stands for "from ever"
LATEST_US = 2**63 - 1  # stands for "for ever"; at this very microsecond nothing is valid any more

_US_PER_DAY = 86_400_000_000
_US_PER_TICK = {"s": 1_000_000, "ms": 1_000}
_NS_PER_US = 1_000


def is_moment(kind: pa.DataType) -> bool:
    """Whether a column of this type holds times that can be compared."""
    return bool(types.is_timestamp(kind) or types.is_date32(kind))


def moments_us(column: pa.Array, *, null_us: int) -> Moments:
    """Timestamps, rounded down, and days, which begin at midnight UTC; `null_us` for NULL.

    A timestamp without a zone is taken as UTC. What is too far away counts as far as can be told.
    """
    moments = _without_nulls(column)
    if not column.null_count:
        return moments
    return np.where(column.is_null().to_numpy(zero_copy_only=False), null_us, moments)


def _without_nulls(column: pa.Array) -> Moments:
    """What stands where a value is null means nothing."""
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
    # Without its nulls, which to replace would take longer than all the rest.
    buffers = [None, column.buffers()[1]]
    numbers = pa.Array.from_buffers(kind, len(column), buffers, offset=column.offset)
    return np.asarray(numbers.to_numpy(), np.int64)


def _scaled(ticks: Moments, tick_us: int) -> Moments:
    most = (LATEST_US - 1) // tick_us
    scaled: Moments = np.clip(ticks, -most, most) * tick_us
    return scaled


NO_VERSION = -1

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class VersionPick:
    """`columns`: what was asked for, as single values; its lists stand first."""

    columns: pa.Schema
    valid_from: int  # position among the lists
    valid_to: int | None  # None: a version is valid up to the next one

    def picked(self, lists: pa.RecordBatch, keys: Places, times_us: Moments) -> "PickedVersions":
        """For records that ask for these rows of the lists, at these times.

        Of versions that overlap the one that began last. Raises ProtocolViolation for lists that
        are null, and for those of one row that are not equally long.
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
    """All versions of the lists as rows, and which of them each record gets."""

    rows: pa.RecordBatch
    places: Places  # [records] in `rows`; NO_VERSION where none is valid


def _common_offsets(lists: pa.RecordBatch) -> Places:
    """Where the values of each row begin, and where the last ends, in every column alike."""
    common, *others = [_offsets(column) for column in lists.columns]
    if not all(np.array_equal(common, other) for other in others):
        raise ProtocolViolation(ErrorCode.BAD_FRAME, "lists of one row are not equally long")
    return common


def _offsets(column: pa.ListArray) -> Places:
    if column.null_count:
        raise ProtocolViolation(ErrorCode.BAD_FRAME, "a row of versions is null")
    offsets: Places = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0]


def _last_begun(begin_us: Moments, times_us: Moments, *, starts: Places, stops: Places) -> Places:
    """The last place from start to stop that begins at the time or before; start - 1 if none."""
    places: Places = starts - 1
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
    places: Places, times_us: Moments, *, starts: Places, end_us: Moments, offsets: Places
) -> None:
    """From versions that have ended go back to one that has not; before the start if none."""
    ended = np.flatnonzero(end_us.take(places, mode="clip") <= times_us)
    if not _has_nested(end_us, offsets):
        places[ended] = NO_VERSION  # whatever began before has ended before
        return
    while len(ended):
        places[ended] -= 1
        ended = ended[places[ended] >= starts[ended]]
        ended = ended[end_us.take(places[ended]) <= times_us[ended]]


def _has_nested(end_us: Moments, offsets: Places) -> bool:
    """Whether in any list a version ends after one that began later."""
    is_later = end_us[:-1] > end_us[1:]
    borders = offsets[(offsets > 0) & (offsets < len(end_us))]
    is_later[borders - 1] = False  # these two are of different lists
    return bool(is_later.any())


@dataclass(frozen=True, slots=True)
class AsOf:
    """`times_us`: one for each record; `NEVER_US` finds no version."""

    times_us: Moments
    pick: VersionPick

    @property
    def event_time_ms(self) -> int | None:
        """The largest of the times, rounded down; None if no record has one."""
        largest_us = int(self.times_us.max(initial=NEVER_US))
        return None if largest_us == NEVER_US else largest_us // 1000
