"""Times of any type on one scale: microseconds since the epoch, in UTC.

For finding the version that is valid at a time; watermarks are in milliseconds, and made elsewhere.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

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
