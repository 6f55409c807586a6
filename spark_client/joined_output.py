"""The output of a lookup join: the input's columns untouched, the dimension's beside them.

Which rows leave is decided elsewhere; here they become record batches of one schema.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lookup_core.operator.element_queue import Positions
from lookup_core.operator.question import STATUS_FIELDS, Question


@dataclass(frozen=True, slots=True)
class JoinedOutput:
    """Builds output batches; every one of them has `schema`."""

    schema: pa.Schema
    has_status: bool
    is_inner: bool

    def build(self, records: pa.RecordBatch, question: Question, rows: Positions) -> pa.RecordBatch:
        """These rows of the records that asked, which are all answered; ascending."""
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
    """The output for records of this schema; names must not clash."""
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
