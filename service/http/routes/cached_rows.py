"""Cached rows of single keys, as JSON; for one key this is faster than a lookup of arrays."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import orjson
import pyarrow as pa
from pyarrow import types

from lookup_core.answer import MOST_AGE_MS, Outcome
from lookup_core.cache.row_store import StoredRow
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError
from service.engine.dimension import Dimension
from service.engine.tracer import CallerSpan
from service.http.replies.json_reply import is_plain, json_rows, text_of

INTEGER = re.compile(r"-?[0-9]{1,20}")
_ONE = np.ones(1, np.bool_)
_HIT = np.array([Outcome.HIT], np.uint8)


class CachedRow(NamedTuple):
    """The JSON text of a cached row, and its age."""

    text: bytes
    age_ms: int


@dataclass(frozen=True, slots=True)
class RowForm:
    """How single keys and rows of one schema are read and written."""

    schema: DimensionSchema
    has_integer_key: bool
    has_text_key: bool
    names: list[str]
    is_plain: bool

    @classmethod
    def of(cls, schema: DimensionSchema) -> "RowForm":
        """The form of all columns."""
        key = schema.key.field(0).type if len(schema.key) == 1 else pa.null()
        return cls(
            schema,
            has_integer_key=types.is_integer(key),
            has_text_key=types.is_string(key),
            names=schema.columns.names,
            is_plain=all(map(is_plain, schema.columns)),
        )

    def path_value(self, raw_path: str) -> object:
        """The key at the end of a path; None for a key that needs a lookup, or is not valid."""
        segment = raw_path.rpartition("/")[2]
        if self.has_integer_key:
            return int(segment) if INTEGER.fullmatch(segment) else None
        try:
            return unquote(segment, errors="strict") if self.has_text_key else None
        except UnicodeDecodeError:
            return None

    def text(self, row: StoredRow) -> bytes:
        """The row as a JSON object."""
        columns, at = row.columns[len(row.columns) - len(self.names) :], row.at
        if self.is_plain:
            named = zip(self.names, columns, strict=True)
            values = {name: column[at].as_py() for name, column in named}
            return orjson.dumps(values, default=text_of)
        alone = [column.slice(at, 1) for column in columns]
        rows = pa.record_batch(alone, schema=self.schema.columns)
        return b"".join(json_rows(rows, _ONE))


@dataclass(slots=True, eq=False)
class CachedRows:
    """Finds cached rows of all dimensions.

    A hit is counted by the dimension, and by the span of the request if it is traced.
    """

    _forms: dict[str, RowForm] = field(default_factory=dict)  # by dimension: latest schema

    def find_by_path(
        self, dimension: Dimension, raw_path: str, span: CallerSpan | None
    ) -> CachedRow | None:
        """The cached row of the key at the end of a path; None if a lookup is needed."""
        form = self._form(dimension)
        if form is None:
            return None
        return _found(dimension, form, form.path_value(raw_path), span=span)

    def find(
        self, dimension: Dimension, value: object, span: CallerSpan | None
    ) -> CachedRow | None:
        """The cached row of the key with this value; None if a lookup is needed."""
        form = self._form(dimension)
        return None if form is None else _found(dimension, form, value, span=span)

    def _form(self, dimension: Dimension) -> RowForm | None:
        """The form of the present schema; None before the first description."""
        try:
            schema = dimension.schema.known()
        except BackendError:  # a lookup waits for the schema, or raises the reason
            return None
        form = self._forms.get(dimension.name)
        if form is None or form.schema is not schema:
            form = self._forms[dimension.name] = RowForm.of(schema)
        return form


def _found(
    dimension: Dimension, form: RowForm, value: object, *, span: CallerSpan | None
) -> CachedRow | None:
    hit = dimension.hit(value)
    if hit is None:
        return None
    if span is not None:
        span.count_outcomes(_HIT)
    return CachedRow(form.text(hit.row), min(int(hit.age_s * 1000), MOST_AGE_MS))
