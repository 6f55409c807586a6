"""One cached row as a JSON text, exactly as `json_rows` writes it among others.

For one row most of that is finding out of what types the columns are; that is known here.
"""

from dataclasses import dataclass

import numpy as np
import orjson
import pyarrow as pa

from lookup_core.cache.stored_row import StoredRow
from lookup_core.dimension_schema import DimensionSchema
from service.http.json_rows import is_plain, json_rows, text_of

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
