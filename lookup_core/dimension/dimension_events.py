"""Events and effects of a dimension's state as values, with the rows of a query."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NewType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode
from lookup_core.freshness.server_identity import UNKNOWN_SERVER, ServerEpoch
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.canonical_keys import CanonicalKeys
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.lookup_options import LookupOptions

LookupId = NewType("LookupId", int)  # used once each
BatchId = NewType("BatchId", int)
ChannelId = NewType("ChannelId", int)

NO_ROW = -1
SEVERAL_ROWS = -2
_ERRORS = {
    SEVERAL_ROWS: ErrorCode.AMBIGUOUS,
    -3: ErrorCode.VALUE_REJECTED,
    -4: ErrorCode.ROW_TOO_LARGE,
}
# A query's rows take about four times as much memory at its end.
MAX_QUERY_ROWS_BYTES = 8 * 1024 * 1024
_LARGE_ROW_BYTES = 4096
_MARKS = {code: mark for mark, code in _ERRORS.items()}


@dataclass(frozen=True, slots=True)
class LookupRequest:
    """A lookup in one dimension; the deadline covers all attempts."""

    id: LookupId
    channel: ChannelId
    keys: TypedKeys
    columns: tuple[str, ...]
    deadline_s: float
    event_time_ms: int | None = None  # the largest of its records, if they have one
    options: LookupOptions | None = None  # its channel's; None: all as configured


@dataclass(frozen=True, slots=True)
class Submitted:
    """The immediate answers to a lookup; others are delivered later unless `is_done`."""

    lookup_id: LookupId
    answers: list[Answer]
    is_done: bool
    is_queued: bool = False  # the next query or deadline may come sooner


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Keys of one lookup with their positions in it."""

    positions: npt.NDArray[np.int32]
    keys: CanonicalKeys


@dataclass(frozen=True, slots=True)
class Delivery:
    """An answer to a lookup that waited; `is_last` if none of its keys is left."""

    lookup_id: LookupId
    answer: Answer
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Effects:
    """What the shell has to do after an event."""

    deliveries: list[Delivery] = field(default_factory=list)
    cancelled: list[BatchId] = field(default_factory=list)  # at the backend, wanted by no lookup
    removed: int = 0  # cached entries, at the end of a schema


NO_EFFECTS = Effects()


@dataclass(frozen=True, slots=True)
class QueryOrder:
    """A query to send now."""

    id: BatchId
    keys: pa.RecordBatch
    timeout_s: float
    tries: int = 1  # attempts for its keys, this one included


@dataclass(frozen=True, slots=True)
class UnfitRows:
    """Keys of which a row cannot be the answer, and why; they end with the error code.

    `value_rejected`: a value does not fit the type of its column. `row_too_large`.
    """

    code: ErrorCode
    ordinals: npt.NDArray[np.int32]  # distinct
    detail: str  # the columns or the limit, and the remedy

    @classmethod
    def too_large(
        cls, ordinals: npt.NDArray[np.int32], *, row_bytes: int, columns: Sequence[str]
    ) -> "UnfitRows":
        """Rows that exceed the limit; `columns` are the largest ones."""
        detail = (
            f"the row of a key, or its rows together, exceed limits.row_bytes"
            f" ({row_bytes / 2**20:g} MiB), most in {', '.join(columns)}; raise it, or leave large"
            " columns out of `columns`"
        )
        return cls(ErrorCode.ROW_TOO_LARGE, ordinals, detail)


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """The rows of a batch of keys; keys without a row are left out."""

    ordinals: npt.NDArray[np.int32]  # [m] which key of the batch each row belongs to
    rows: pa.RecordBatch  # [m] all columns of the dimension
    server: ServerEpoch = UNKNOWN_SERVER  # another may hold other rows
    snapshot: TableSnapshot | None = None  # the transactions that the read saw, if known
    read_at: float | None = None  # monotonic seconds; None: after the request
    unfit: Sequence[UnfitRows] = ()  # with different codes
    # [d] keys that another query must fetch, because the rows before theirs filled this answer
    deferred: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))

    def of_order(self, order: npt.NDArray[np.int32]) -> "FetchedRows":
        """The rows for a batch of which the fetched one was this selection."""
        unfit = [replace(each, ordinals=order[each.ordinals]) for each in self.unfit]
        deferred = order[self.deferred]
        return replace(self, ordinals=order[self.ordinals], unfit=unfit, deferred=deferred)

    def without_deferred(self, key_count: int) -> "FetchedRows":
        """The rows for the batch without its deferred keys, of which it had `key_count`."""
        is_left = np.ones(key_count, np.bool_)
        is_left[self.deferred] = False
        places = np.cumsum(is_left, dtype=np.int32) - np.int32(1)
        is_kept = is_left[self.ordinals]  # a deferred key may have some rows here
        rows = self.rows if is_kept.all() else self.rows.filter(pa.array(is_kept))
        rest = replace(self, ordinals=self.ordinals[is_kept], rows=rows, deferred=self.deferred[:0])
        return rest.of_order(places)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query, and which of them each key has."""

    row_of: npt.NDArray[np.int32]  # [keys] row number, NO_ROW, or the mark of an error
    rows: pa.RecordBatch
    age_ms: int  # since the query was sent: a row may have changed from then on

    @classmethod
    def of_rows(cls, key_count: int, fetched: FetchedRows, *, age_ms: int) -> "QueryResult":
        """The result of a backend's rows."""
        ordinals = fetched.ordinals
        row_of = np.full(key_count, NO_ROW, np.int32)
        row_of[ordinals] = np.arange(len(ordinals), dtype=np.int32)
        row_of[np.bincount(ordinals, minlength=key_count) > 1] = SEVERAL_ROWS
        for unfit in fetched.unfit:
            row_of[unfit.ordinals] = _MARKS[unfit.code]
        return cls(row_of, fetched.rows, age_ms)

    def is_missing(self, retry_if: str | None) -> npt.NDArray[np.bool_]:
        """Which keys have no row, or one with NULL in this column."""
        is_missing = self.row_of == NO_ROW
        if retry_if is not None:
            has_row = np.flatnonzero(self.row_of >= 0)
            is_null = pc.is_null(self.rows[retry_if]).to_numpy(zero_copy_only=False)
            is_missing[has_row] = is_null[self.row_of[has_row]]
        return is_missing

    def taken(
        self, numbers: npt.NDArray[np.int32], columns: Sequence[str] | None = None
    ) -> pa.RecordBatch:
        """Columns of the rows of these numbers; not copied if these are all rows, and large.

        Small rows may share their memory with other bytes of the backend's reply.
        """
        rows = self.rows.select(columns)
        is_large = rows.nbytes > _LARGE_ROW_BYTES * rows.num_rows
        if is_large and self._are_all(numbers):
            return rows
        return rows.take(pa.array(numbers))

    def selected(self, numbers: npt.NDArray[np.int32]) -> pa.RecordBatch:
        """The rows of these numbers, to be copied by the caller; no copy if these are all rows."""
        return self.rows if self._are_all(numbers) else self.rows.take(pa.array(numbers))

    def _are_all(self, numbers: npt.NDArray[np.int32]) -> bool:
        return np.array_equal(numbers, np.arange(self.rows.num_rows))

    def answers(
        self,
        positions: npt.NDArray[np.int32],
        ordinals: npt.NDArray[np.int32],
        columns: Sequence[str],
    ) -> Iterator[Answer]:
        """The answers to one lookup: its `positions` are the `ordinals` of the query."""
        row_of = self.row_of[ordinals]
        has_row = row_of >= 0
        if has_row.any():
            yield Answer(
                positions=positions[has_row],
                outcomes=np.full(int(has_row.sum()), Outcome.FETCHED, np.uint8),
                ages_ms=np.full(int(has_row.sum()), self.age_ms, np.uint32),
                rows=self.taken(row_of[has_row], columns),
            )
        if (missing := positions[row_of == NO_ROW]).size:
            ages_ms = np.full(missing.size, self.age_ms, np.uint32)
            yield replace(rowless_answer(missing, Outcome.MISSING), ages_ms=ages_ms)
        for mark, error in _ERRORS.items():
            if (failed := positions[row_of == mark]).size:
                yield rowless_answer(failed, Outcome.ERROR, error=error)


@dataclass(frozen=True, slots=True)
class Read:
    """A read of distinct keys that has ended."""

    columns: pa.RecordBatch  # the keys
    result: QueryResult
    fetched: FetchedRows
    sent_at: float

    @classmethod
    def of_audit(cls, columns: pa.RecordBatch, fetched: FetchedRows, *, sent_at: float) -> "Read":
        """The read of an audit; deferred keys are not compared."""
        result = QueryResult.of_rows(columns.num_rows, fetched, age_ms=0)
        result.row_of[fetched.deferred] = SEVERAL_ROWS
        return cls(columns, result, fetched, sent_at)

    def take(self, places: npt.NDArray[np.integer]) -> "Read":
        """The read of the keys at these places only."""
        result = replace(self.result, row_of=self.result.row_of[places])
        return replace(self, columns=self.columns.take(pa.array(places)), result=result)
