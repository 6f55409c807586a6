"""Cached rows of single keys, as JSON; for one key this is faster than a lookup of arrays."""

from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa

from lookup_core.answer import MOST_AGE_MS, Outcome
from lookup_core.cache.row_store import StoredRow
from lookup_core.dimension_schema import DimensionSchema
from service.engine.dimension import Dimension
from service.engine.tracer import CallerSpan
from service.http.replies.json_reply import is_plain, json_rows, text_of

_ONE = np.ones(1, np.bool_)
_HIT = np.array([Outcome.HIT], np.uint8)


@dataclass(frozen=True, slots=True)
class CachedRow:
    """The JSON text of a cached row, and its age."""

    text: bytes
    age_ms: int


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes single rows of one schema."""

    schema: DimensionSchema
    names: list[str]
    is_plain: bool

    @classmethod
    def of(cls, schema: DimensionSchema) -> "RowWriter":
        """A writer of all columns."""
        return cls(schema, schema.columns.names, all(map(is_plain, schema.columns)))

    def text(self, row: StoredRow) -> bytes:
        """The row as a JSON object."""
        columns = row.columns[len(row.columns) - len(self.names) :]
        if self.is_plain:
            values = [column[row.at].as_py() for column in columns]
            return orjson.dumps(dict(zip(self.names, values, strict=True)), default=text_of)
        alone = [column.slice(row.at, 1) for column in columns]
        rows = pa.record_batch(alone, schema=self.schema.columns)
        return b"".join(json_rows(rows, _ONE))


@dataclass(slots=True, eq=False)
class CachedRows:
    """Finds cached rows of all dimensions."""

    _writers: dict[str, RowWriter] = field(default_factory=dict)  # by dimension: latest schema

    def find(
        self, dimension: Dimension, value: object, span: CallerSpan | None
    ) -> CachedRow | None:
        """The cached row of the key with this value; None if a lookup is needed.

        A hit is counted by the dimension, and by the span of the request if it is traced.
        """
        hit = dimension.hit(value)
        if hit is None:
            return None
        if span is not None:
            span.count_outcomes(_HIT)
        text = self._writer(dimension.name, dimension.schema).text(hit.row)
        return CachedRow(text, min(int(hit.age_s * 1000), MOST_AGE_MS))

    def _writer(self, name: str, schema: DimensionSchema) -> RowWriter:
        writer = self._writers.get(name)
        if writer is None or writer.schema is not schema:
            writer = self._writers[name] = RowWriter.of(schema)
        return writer
