"""The dimension's columns in the exact types that Spark was promised.

A value that the promised type cannot hold exactly is an error, never rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from lookup_core.errors import ErrorCode, InvalidRequest


@dataclass(frozen=True, slots=True)
class ColumnCasts:
    """From the columns as the sidecar sends them to those of the output."""

    source: pa.Schema
    target: pa.Schema

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the promised types; InvalidRequest names a column that does not fit."""
        if self.source.equals(self.target):
            return rows
        columns = [
            _cast(column, self.target.field(index)) for index, column in enumerate(rows.columns)
        ]
        return pa.record_batch(columns, schema=self.target)


def column_casts(source: pa.Schema, target: pa.Schema, *, dimension: str) -> ColumnCasts:
    """Raises InvalidRequest unless each column is there and can be cast at all."""
    if source.names != target.names:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_COLUMN,
            f"{dimension!r} answers with ({_names(source.names)}), not ({_names(target.names)})",
        )
    for given, wanted in zip(source, target, strict=True):
        _cast(pa.nulls(0, given.type), wanted)
    return ColumnCasts(source, target)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type.equals(field.type):
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequest(
            ErrorCode.TYPE,
            f"column {field.name!r} is {column.type} and does not become {field.type} exactly",
        ) from error


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)
