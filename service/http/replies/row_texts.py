"""JSON texts of cached rows, kept by request path for repeated requests."""

from dataclasses import dataclass, field

import numpy as np
import orjson
import pyarrow as pa

from lookup_core.answer import MOST_AGE_MS
from lookup_core.cache.dimension_cache import Bookmark
from lookup_core.cache.row_store import StoredRow
from lookup_core.dimension_schema import DimensionSchema
from service.engine.dimension import Dimension
from service.http.replies.json_reply import is_plain, json_rows, text_of

MAX_ROWS = 1_024
MAX_BYTES = 4_096  # of a path, and of a row: 8 MiB for all rows
_ONE = np.ones(1, np.bool_)


@dataclass(frozen=True, slots=True)
class RowText:
    """The JSON text of a cached row."""

    text: bytes
    age_s: float

    @property
    def age_ms(self) -> int:
        """The age in milliseconds, bounded as in every reply."""
        return min(int(self.age_s * 1000), MOST_AGE_MS)

    def lookup_reply(self) -> bytes:
        """The body of a lookup of this key alone."""
        return b'{"outcomes":["hit"],"rows":[%b],"ages_ms":[%d]}' % (self.text, self.age_ms)


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes single rows of one schema."""

    schema: DimensionSchema
    names: list[str]
    is_plain: bool

    @classmethod
    def of(cls, schema: DimensionSchema) -> "RowWriter":
        """A writer of all columns."""
        return cls(schema, schema.columns.names, all(is_plain(field) for field in schema.columns))

    def text(self, row: StoredRow) -> bytes:
        """The row as a JSON object."""
        columns = row.columns[len(row.columns) - len(self.names) :]
        if self.is_plain:
            values = [column[row.at].as_py() for column in columns]
            return orjson.dumps(dict(zip(self.names, values, strict=True)), default=text_of)
        alone = [column.slice(row.at, 1) for column in columns]
        rows = pa.record_batch(alone, schema=self.schema.columns)
        return b"".join(json_rows(rows, _ONE))


@dataclass(frozen=True, slots=True)
class _Recent:
    dimension: Dimension
    bookmark: Bookmark
    text: bytes


@dataclass(slots=True, eq=False)
class RowTexts:
    """Finds cached rows of all dimensions as JSON; keeps the latest `max_rows` by path.

    A path or row of more than `max_bytes` is not kept.
    """

    max_rows: int = MAX_ROWS
    max_bytes: int = MAX_BYTES
    _writers: dict[str, RowWriter] = field(default_factory=dict)  # by dimension: latest schema
    _recent: dict[str, _Recent] = field(default_factory=dict)  # {path: row}, oldest first

    def repeated(self, path: str) -> RowText | None:
        """The row that an earlier request of this path found, if it is still cached: a hit."""
        recent = self._recent.get(path)
        if recent is None:
            return None
        age_s = recent.dimension.revisit(recent.bookmark)
        return None if age_s is None else RowText(recent.text, age_s)

    def find(
        self, dimension: Dimension, value: object, *, path: str | None = None
    ) -> RowText | None:
        """The cached row of the key with this value; None if a lookup is needed.

        The row is kept for `path`, which must stand for all columns of this key.
        """
        hit = dimension.hit(value)
        if hit is None:
            return None
        text = self.writer(dimension.name, dimension.schema).text(hit.row)
        if path is not None and max(len(path), len(text)) <= self.max_bytes:
            self._recent.pop(path, None)
            if len(self._recent) == self.max_rows:
                del self._recent[next(iter(self._recent))]
            self._recent[path] = _Recent(dimension, hit.bookmark, text)
        return RowText(text, hit.age_s)

    def writer(self, name: str, schema: DimensionSchema) -> RowWriter:
        """The writer of a dimension; replaced if the schema changed."""
        writer = self._writers.get(name)
        if writer is None or writer.schema is not schema:
            writer = self._writers[name] = RowWriter.of(schema)
        return writer
