"""Which version of a row is valid at a time, for many records at once.

Versions come as lists, one row of them for each key, ascending by when they begin; what is found
are places in the lists' values. Which records ask for which row is the question's to know.

In each list a binary search by halving steps, of all records together (the uniform binary search
of Knuth, The Art of Computer Programming, volume 3, section 6.2.1).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.operator.moments import EARLIEST_US, LATEST_US, Moments, moments_us

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
