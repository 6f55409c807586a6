"""Output batches of a lookup: casts of the dimension's columns, joined to the input or as a struct.

The operator decides which rows leave.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.operator.element_queue import Positions
from lookup_core.operator.question import STATUS_FIELDS, Question


@dataclass(frozen=True, slots=True)
class ColumnCasts:
    """Exact casts from the columns that the sidecar sends to those of the output."""

    source: pa.Schema
    target: pa.Schema

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the output's types; raises InvalidRequest if a value is not exact in them."""
        if self.source.equals(self.target):
            return rows
        columns = [
            _cast(column, self.target.field(index)) for index, column in enumerate(rows.columns)
        ]
        return pa.record_batch(columns, schema=self.target)


def column_casts(source: pa.Schema, target: pa.Schema, *, dimension: str) -> ColumnCasts:
    """The casts between columns of these names and types; raises InvalidRequest for other names.

    The types are the same, wider ones, or Spark's for those of Arrow that it lacks.
    """
    if source.names != target.names:
        sent, wanted = ", ".join(source.names), ", ".join(target.names)
        detail = f"{dimension!r} answers with ({sent}), not ({wanted})"
        raise InvalidRequest(ErrorCode.UNKNOWN_COLUMN, detail)
    return ColumnCasts(source, target)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # as for nanoseconds
        detail = f"column {field.name!r} is {column.type} and does not become {field.type} exactly"
        raise InvalidRequest(ErrorCode.TYPE, detail) from error


@dataclass(frozen=True, slots=True)
class JoinedOutput:
    """Builds batches of records and the dimension's columns, all with `schema`."""

    schema: pa.Schema
    has_status: bool
    is_inner: bool

    def build(self, records: pa.RecordBatch, question: Question, rows: Positions) -> pa.RecordBatch:
        """A batch of these answered rows of the records, ascending."""
        if self.is_inner:
            rows = rows[question.has_row_at(rows)]
        columns = _rows_of(records, rows).columns + question.columns_at(rows)
        if self.has_status:
            columns.append(question.status_at(rows))
        return pa.record_batch(columns, schema=self.schema)

    def empty(self) -> pa.RecordBatch:
        """No rows, of the same schema."""
        return pa.record_batch([pa.nulls(0, kind) for kind in self.schema.types], self.schema)


def joined_output(
    records: pa.Schema,
    columns: pa.Schema,
    *,
    prefix: str,
    status_column: str | None,
    is_inner: bool,
) -> JoinedOutput:
    """The output for records of this schema; the caller has checked that names are distinct."""
    fields = [*records, *(pa.field(prefix + field.name, field.type) for field in columns)]
    if status_column is not None:
        fields.append(pa.field(status_column, pa.struct(STATUS_FIELDS)))
    return JoinedOutput(pa.schema(fields), status_column is not None, is_inner)


def _rows_of(records: pa.RecordBatch, rows: Positions) -> pa.RecordBatch:
    if len(rows) == records.num_rows:
        return records
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return records.slice(rows[0], len(rows))  # no copy
    return records.take(pa.array(rows.astype(np.int64)))


@dataclass(frozen=True, slots=True)
class StructOutput:
    """Builds batches of one struct column."""

    columns: pa.Schema

    def build(
        self, _records: pa.RecordBatch, question: Question, rows: Positions
    ) -> pa.RecordBatch:
        """The structs for these answered rows; NULL where there is no row."""
        is_absent = pa.array(~question.has_row_at(rows))
        structs = pa.StructArray.from_arrays(
            question.columns_at(rows), fields=list(self.columns), mask=is_absent
        )
        return pa.record_batch([structs], ["row"])

    def empty(self) -> pa.RecordBatch:
        """No structs."""
        return pa.record_batch([pa.nulls(0, pa.struct(list(self.columns)))], ["row"])


Output = JoinedOutput | StructOutput
