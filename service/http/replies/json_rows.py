"""Rows as JSON text, whole batches or one cached row."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from uuid import UUID

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from lookup_core.cache.row_store import StoredRow
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.key_casts import UUID_FIELD

CHUNK_ROWS = 1_000


def json_rows(rows: pa.RecordBatch, has_row: npt.NDArray[np.bool_]) -> Iterator[bytes]:
    """Objects, or null where there is no row, parted by commas; a chunk at a time.

    The caller may let others run between two chunks; one takes a few milliseconds.
    """
    size = len(has_row)
    for start in range(0, size, CHUNK_ROWS):
        mask = has_row[start : start + CHUNK_ROWS]
        part = rows.slice(start, CHUNK_ROWS) if rows.num_columns else rows
        yield (b"," if start else b"") + orjson.dumps(_objects(part, mask), default=text_of)[1:-1]


def is_plain(field: pa.Field) -> bool:
    """Whether Python's own value of each element is what is written."""
    kind = field.type
    has_own_text = types.is_temporal(kind) or types.is_list(kind) or field.metadata == UUID_FIELD
    return not has_own_text


def _objects(
    rows: pa.RecordBatch, has_row: npt.NDArray[np.bool_]
) -> list[dict[str, object] | None]:
    names = rows.schema.names
    columns = [_values(rows.column(at), rows.schema.field(at)) for at in range(len(names))]
    values = zip(*columns, strict=True) if columns else iter([()] * len(has_row))
    return [
        dict(zip(names, row, strict=True)) if has else None
        for row, has in zip(values, has_row.tolist(), strict=True)
    ]


def _values(column: pa.Array, field: pa.Field) -> Sequence[object]:
    # Arrow's own texts rather than Python's dates: those end at year 9999 and at microseconds.
    if types.is_timestamp(field.type):
        return _timestamps(column)
    if types.is_date(field.type) or types.is_time(field.type):
        return column.cast(pa.utf8()).to_pylist()
    if types.is_list(field.type):
        return _lists(column, field.type.value_field)
    if field.metadata == UUID_FIELD:
        return [value and str(UUID(bytes=value)) for value in column.to_pylist()]
    return column.to_pylist()


def _lists(column: pa.Array, item: pa.Field) -> Sequence[object]:
    values = iter(_values(column.flatten(), item))
    lengths = pc.list_value_length(column).to_pylist()
    return [None if length is None else [*islice(values, length)] for length in lengths]


def _timestamps(column: pa.Array) -> Sequence[object]:
    zone = "" if column.type.tz is None else "Z"
    texts = column.cast(pa.timestamp(column.type.unit)).cast(pa.utf8())
    return pc.replace_substring_regex(texts, r"^(\S+) (\S+?)(\.0+)?$", rf"\1T\2{zone}").to_pylist()


def text_of(value: object) -> str:
    """What stands for a value that JSON has no type for."""
    match value:
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


_ONE = np.ones(1, np.bool_)


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes rows of one schema."""

    schema: DimensionSchema
    names: list[str]
    is_plain: bool

    @classmethod
    def of(cls, schema: DimensionSchema) -> "RowWriter":
        """For all columns of a dimension."""
        return cls(schema, schema.columns.names, all(is_plain(field) for field in schema.columns))

    def text(self, row: StoredRow) -> bytes:
        """The row as an object."""
        columns = row.columns[len(row.columns) - len(self.names) :]
        if self.is_plain:
            values = [column[row.at].as_py() for column in columns]
            return orjson.dumps(dict(zip(self.names, values, strict=True)), default=text_of)
        alone = [column.slice(row.at, 1) for column in columns]
        rows = pa.record_batch(alone, schema=self.schema.columns)
        return b"".join(json_rows(rows, _ONE))


class RowWriters:
    """The writer of each dimension, until its schema changes."""

    def __init__(self) -> None:
        self._writers: dict[str, RowWriter] = {}

    def of(self, name: str, schema: DimensionSchema) -> RowWriter:
        """The writer for a dimension as it is now."""
        writer = self._writers.get(name)
        if writer is None or writer.schema is not schema:
            writer = self._writers[name] = RowWriter.of(schema)
        return writer
