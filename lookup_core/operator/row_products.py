"""Row multiplication: the output rows of records for which lookups have found several rows.

Works on the number of rows only; `answers` has their values.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import ErrorCode, InvalidRequest

Counts = npt.NDArray[np.int64]
Elements = npt.NDArray[np.int64]  # positions in lists

NO_ELEMENT = -1
# So that the rows of all records in flight stay below 2**63.
MAX_RECORD_ROWS = 2**31 - 1


class TooManyRows(InvalidRequest):
    """A record has more than `MAX_RECORD_ROWS` output rows; `counts` are those of each lookup."""

    def __init__(self, record: int, counts: Sequence[int]) -> None:
        rows = " x ".join(f"{each:,}" for each in counts)
        detail = (
            f"a record has {math.prod(counts):,} output rows ({rows}), more than"
            f" {MAX_RECORD_ROWS:,}:"
            " expand=True gives all combinations of the rows that the lookups of a pass find; omit"
            " it for some of them, whose rows are then arrays"
        )
        super().__init__(ErrorCode.BAD_REQUEST, detail)
        self.record = record
        self.counts = counts


@dataclass(frozen=True, slots=True)
class OutputRows:
    """Some consecutive output rows, which come from the records `start` to `stop` - 1."""

    start: int
    stop: int
    records: npt.NDArray[np.int64]  # [rows] the record of each, minus `start`; ascending
    elements: Sequence[Elements]  # by lookup: [rows] the row found, or NO_ELEMENT

    def part(self, rows: slice) -> "OutputRows":
        """Some of them."""
        elements = [each[rows] for each in self.elements]
        return OutputRows(self.start, self.stop, self.records[rows], elements)


class RowProducts:
    """The output rows of n records: all combinations of the rows of each lookup.

    They are in the order of the records, then of the rows of the first lookup, and so on. A lookup
    without a row contributes one combination, with NO_ELEMENT.
    """

    def __init__(self, counts: Sequence[Counts]) -> None:
        """`counts`: for each of one or more lookups the number of rows of each record.

        Raises TooManyRows.
        """
        self._counts = counts
        widths = [np.maximum(each, 1) for each in counts]
        sizes = np.ones(len(counts[0]))  # exact below 2**53
        with np.errstate(over="ignore"):
            for each in widths:
                sizes *= each
        excessive = np.flatnonzero(sizes > MAX_RECORD_ROWS)
        if len(excessive):
            record = int(excessive[0])
            raise TooManyRows(record, [int(each[record]) for each in widths])
        self._sizes = sizes.astype(np.int64)
        self._ends = np.cumsum(self._sizes)

    @property
    def size(self) -> int:
        """The number of output rows."""
        return int(self._ends[-1]) if len(self._ends) else 0

    def rows(self, start: int, stop: int) -> OutputRows:
        """The output rows from `start` to `stop` - 1, which exist."""
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, stop - 1, side="right")) + 1
        begins = self._ends[first:last] - self._sizes[first:last]
        ends = np.minimum(self._ends[first:last], stop)
        records = np.repeat(np.arange(last - first), ends - np.maximum(begins, start))
        within = np.arange(start, stop) - begins[records]
        elements: list[Elements] = []
        for number, counts in reversed(list(enumerate(self._counts))):
            found = counts[first:last]
            element = within
            if number:
                widths = np.maximum(found, 1)[records]
                within, element = within // widths, within % widths
            is_none = found == 0
            elements.append(np.where(is_none[records], NO_ELEMENT, element))
        return OutputRows(first, last, records, elements[::-1])


def even_lists(rows: pa.RecordBatch, *, dimension: str) -> pa.RecordBatch:
    """The rows, in each of which all lists have the same length.

    A null list is one of nulls, and a row of null lists has the length 1, as for a default row that
    gives no value. Raises InvalidRequest if other lists of a row differ in length.
    """
    nulls = [column.is_null().to_numpy(zero_copy_only=False) for column in rows.columns]
    lengths = [np.diff(column.offsets.to_numpy()).astype(np.int64) for column in rows.columns]
    lengths = [np.where(is_null, -1, own) for own, is_null in zip(lengths, nulls, strict=True)]
    common = np.max(lengths, axis=0)
    if all(np.array_equal(each, common) for each in lengths) and common.min(initial=0) >= 0:
        return rows
    common[common < 0] = 1
    for name, own in zip(rows.schema.names, lengths, strict=True):
        differing = np.flatnonzero((own >= 0) & (own != common))
        if len(differing):
            detail = (
                f"a row of {dimension!r} has {common[differing[0]]} values in one column and"
                f" {own[differing[0]]} in {name!r}; expand=True needs lists of equal length:"
                " correct `default` in the sidecar's configuration"
            )
            raise InvalidRequest(ErrorCode.BAD_REQUEST, detail)
    offsets = np.append(0, np.cumsum(common))
    columns = [
        _filled(column, is_null, offsets)
        for column, is_null in zip(rows.columns, nulls, strict=True)
    ]
    return pa.record_batch(columns, schema=rows.schema)


def _filled(
    column: pa.ListArray, is_null: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int64]
) -> pa.ListArray:
    """The lists between these offsets; those that are null get nulls."""
    lengths = np.diff(offsets)
    starts = column.offsets.to_numpy().astype(np.int64)[:-1]
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    indices = pa.array(places, pa.int64(), mask=np.repeat(is_null, lengths))
    values = column.values.take(indices)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=column.type)
