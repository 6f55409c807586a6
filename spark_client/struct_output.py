"""The output of a lookup function: one struct of the dimension's columns for each input row.

NULL where the dimension has no row, which is not the same as a row of NULLs.
"""

from dataclasses import dataclass

import pyarrow as pa

from lookup_core.operator.element_queue import Positions
from lookup_core.operator.question import Question

_NAME = "row"


@dataclass(frozen=True, slots=True)
class StructOutput:
    """Builds batches of a single struct column."""

    columns: pa.Schema

    def build(
        self, _records: pa.RecordBatch, question: Question, rows: Positions
    ) -> pa.RecordBatch:
        """The structs for these rows, which are all answered."""
        is_absent = pa.array(~question.has_row_at(rows))
        structs = pa.StructArray.from_arrays(
            question.columns_at(rows), fields=list(self.columns), mask=is_absent
        )
        return pa.record_batch([structs], [_NAME])

    def empty(self) -> pa.RecordBatch:
        """No structs."""
        return pa.record_batch([pa.nulls(0, pa.struct(list(self.columns)))], [_NAME])
