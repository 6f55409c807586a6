"""Values of events: which rows of a feed's events may be used instead of a query.

A connector may mask, truncate or transform values, which neither catalog nor event shows.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.freshness.feed_trust import Refusal

Mask = npt.NDArray[np.bool_]

_LEAST_AGREED = 20  # values of a column, other than NULL, that agree with queries


class _Column:
    """The proof of one column."""

    def __init__(self, kind: pa.DataType) -> None:
        self._agreed = 0
        # A longer value than all that agree may be truncated.
        self._has_length = types.is_string(kind) or types.is_binary(kind)
        self._longest = 0

    @property
    def is_proved(self) -> bool:
        return self._agreed >= _LEAST_AGREED

    def usable(self, values: pa.Array) -> Mask | None:
        """Which values may be used; None for all."""
        if not self.is_proved:
            return np.asarray(values.is_null().to_numpy(zero_copy_only=False))
        if not self._has_length or not len(values):
            return None
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        return None if lengths.max() <= self._longest else np.asarray(lengths <= self._longest)

    def on_agreement(self, values: pa.Array) -> None:
        self._agreed += len(values) - values.null_count
        if self._has_length:
            self._longest = max(self._longest, pc.max(pc.binary_length(values)).as_py() or 0)


class EventValues:
    """The proof of one dimension's columns; once refused, they need a new one."""

    def __init__(self, columns: pa.Schema, refusal: Refusal) -> None:
        self._schema = columns
        self.refusal = refusal
        self.reset()

    def reset(self) -> None:
        """Prove all columns again."""
        self._columns = [_Column(field.type) for field in self._schema]

    @property
    def is_proved(self) -> bool:
        """Whether some value of each column is proved."""
        return not self.refusal.is_on and all(column.is_proved for column in self._columns)

    def usable(self, rows: pa.RecordBatch) -> Mask:
        """Which rows have proved values only. NULL is usable: a mask changes other values."""
        is_usable = np.full(rows.num_rows, not self.refusal.is_on)
        for column, values in zip(self._columns, rows.columns, strict=True):
            own = column.usable(values)
            if own is not None:
                is_usable &= own
        return is_usable

    def on_agreement(self, rows: pa.RecordBatch) -> None:
        """These rows of events agree with queries that saw them."""
        for column, values in zip(self._columns, rows.columns, strict=True):
            column.on_agreement(values)

    def expire(self, now: float) -> None:
        """End a refusal whose time is over."""
        if self.refusal.end_if_over(now):
            self.reset()
