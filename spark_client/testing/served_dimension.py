"""Dimension of a fake sidecar: an Arrow table, and its answers to keys."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension_schema import DimensionSchema, VersionColumns
from lookup_core.errors import ErrorCode
from lookup_core.keys.typed_keys import TypedKeys

ROW_AGE_MS = 7

Key = tuple[object, ...]


@dataclass(frozen=True)
class ServedDimension:
    """A table that is looked up by some of its columns."""

    table: pa.Table
    key: tuple[str, ...]
    errors: Mapping[Key, ErrorCode] = field(default_factory=dict)
    versions: VersionColumns | None = None  # a key then has several rows, sent as lists
    waits: bool = False  # sent in OPENED; it has nothing to wait for
    has_all_rows: bool = False  # a key may have several rows, sent as lists
    default: Mapping[str, object] | None = None  # sent in OPENED
    fills_missing: bool = False  # missing keys get the default row, too, as from the service
    _rows_of: dict[Key, list[int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        for row, key in enumerate(_keys(self.table.select(list(self.key)))):
            self._rows_of.setdefault(key, []).append(row)
        if self.versions is not None:
            begins = self.table.column(self.versions.valid_from).to_pylist()
            for rows in self._rows_of.values():
                rows.sort(key=lambda row: () if begins[row] is None else (begins[row],))

    @cached_property
    def described(self) -> DimensionSchema:
        """Key and columns, as the service describes a dimension."""
        fields = {each.name: each for each in self.table.schema}
        columns = self._schema(tuple(name for name in fields if name not in self.key))
        if self.versions is not None:
            columns = self.versions.marked(columns)
        return DimensionSchema(pa.schema([fields[name] for name in self.key]), columns)

    @property
    def default_row(self) -> pa.RecordBatch | None:
        """The default row with all columns."""
        if self.default is None:
            return None
        columns = self.described.columns
        values = [pa.array([self.default.get(each.name)], each.type) for each in columns]
        return pa.record_batch(values, schema=columns)

    def answers(self, keys: TypedKeys, columns: tuple[str, ...]) -> list[Answer]:
        """Answers for all keys: with a row, missing or with the default, and with an error."""
        rows = self._rows_of
        wanted = _keys(keys.columns)
        for place in keys.nulls.tolist():
            wanted[place] = (None,)
        codes = {place: self.errors[key] for place, key in enumerate(wanted) if key in self.errors}
        codes |= keys.faults
        places = np.arange(len(wanted), dtype=np.int32)
        is_error = np.isin(places, list(codes))
        is_hit = np.array([None not in key and key in rows for key in wanted], np.bool_) & ~is_error
        hits, failed, missing = places[is_hit], places[is_error], places[~is_hit & ~is_error]
        found = self._rows([rows[wanted[place]] for place in hits.tolist()], columns)
        outcomes = np.full(len(hits), Outcome.HIT, np.uint8)
        ages_ms = np.full(len(hits), ROW_AGE_MS, np.uint32)
        errors = {place: codes[place] for place in failed.tolist()}
        is_late = [code is ErrorCode.TIMEOUT for code in errors.values()]
        answers = [
            Answer(hits, outcomes, ages_ms, found),
            self._missing(missing, columns),
            replace(
                rowless_answer(failed, Outcome.ERROR),
                outcomes=np.where(is_late, Outcome.TIMEOUT, Outcome.ERROR).astype(np.uint8),
                errors=errors,
            ),
        ]
        return [answer for answer in answers if answer.size]

    def _missing(self, places: np.ndarray, columns: tuple[str, ...]) -> Answer:
        if self.default_row is None or not self.fills_missing:
            return rowless_answer(places, Outcome.MISSING)
        rows = self.default_row.select(columns).take(pa.array(np.zeros(len(places), np.int32)))
        outcomes = np.full(len(places), Outcome.DEFAULT, np.uint8)
        return Answer(places, outcomes, np.zeros(len(places), np.uint32), rows)

    def _schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """The schema of rows with these columns."""
        fields = [self.table.schema.field(name) for name in columns]
        if not self._has_lists:
            return pa.schema(fields)
        return pa.schema([pa.field(each.name, pa.list_(each.type)) for each in fields])

    @property
    def _has_lists(self) -> bool:
        return self.has_all_rows or self.versions is not None

    def _rows(self, rows: list[list[int]], columns: tuple[str, ...]) -> pa.RecordBatch:
        chosen = rows if self._has_lists else [versions[-1:] for versions in rows]
        ends = np.cumsum([0, *map(len, chosen)])
        flat = pa.array([row for versions in chosen for row in versions], pa.int64())
        arrays = []
        for each in self._schema(columns):
            values = self.table.column(each.name).take(flat).combine_chunks()
            if self._has_lists:
                values = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values)
            arrays.append(values.cast(each.type))
        return pa.record_batch(arrays, schema=self._schema(columns))


def _keys(columns: pa.RecordBatch | pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))
