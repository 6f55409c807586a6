"""A dimension in memory, for tests: looks keys up one by one in a dict of Python values.

Plain on purpose: what the real path gives is compared with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.errors import ErrorCode
from lookup_core.outcome import Outcome
from lookup_core.version_columns import VersionColumns

AGE_MS = 7  # of every row

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class FakeDimension:
    """A table that is looked up by some of its columns."""

    table: pa.Table
    key: tuple[str, ...]
    errors: Mapping[Key, ErrorCode] = field(default_factory=dict)
    versions: VersionColumns | None = None  # then a key has several rows, which are told as lists
    waits: bool = False  # what it tells; it has nothing to wait for

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns but the key's."""
        return tuple(name for name in self.table.column_names if name not in self.key)

    def answers(self, keys: pa.RecordBatch, columns: tuple[str, ...]) -> list[Answer]:
        """Every key answered: those with a row, those without, those with an error."""
        rows = self._rows_by_key()
        asked = _keys(keys)
        places = np.arange(len(asked), dtype=np.int32)
        is_error = np.array([key in self.errors for key in asked], np.bool_)
        is_hit = np.array([None not in key and key in rows for key in asked], np.bool_) & ~is_error
        wanted = [rows[asked[place]] for place in places[is_hit].tolist()]
        errors = {place: self.errors[asked[place]] for place in places[is_error].tolist()}
        answers = [
            _answer(places[is_hit], Outcome.HIT, rows=self._rows(wanted, columns)),
            _answer(places[~is_hit & ~is_error], Outcome.MISSING),
            _answer(places[is_error], Outcome.ERROR, errors=errors),
        ]
        return [answer for answer in answers if answer.size]

    def schema(self, columns: tuple[str, ...]) -> pa.Schema:
        """What rows of these columns consist of."""
        fields = [self.table.schema.field(name) for name in columns]
        if self.versions is None:
            return pa.schema(fields)
        return pa.schema([pa.field(each.name, pa.list_(each.type)) for each in fields])

    def _rows_by_key(self) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for row, key in enumerate(_keys(self.table.select(list(self.key)))):
            found.setdefault(key, []).append(row)
        if self.versions is not None:
            begins = self.table.column(self.versions.valid_from).to_pylist()
            for rows in found.values():
                rows.sort(key=lambda row: () if begins[row] is None else (begins[row],))
        return found

    def _rows(self, rows: list[list[int]], columns: tuple[str, ...]) -> pa.RecordBatch:
        schema = self.schema(columns)
        values = [self.table.column(name).to_pylist() for name in columns]
        told = [
            [[column[row] for row in each] if self.versions else column[each[-1]] for each in rows]
            for column in values
        ]
        arrays = [pa.array(column, each.type) for column, each in zip(told, schema, strict=True)]
        return pa.record_batch(arrays, schema=schema)


def _answer(
    positions: npt.NDArray[np.int32],
    outcome: Outcome,
    *,
    rows: pa.RecordBatch | None = None,
    errors: dict[int, ErrorCode] | None = None,
) -> Answer:
    count = len(positions)
    ages_ms = np.full(count, 0 if rows is None else AGE_MS, np.uint32)
    return Answer(positions, np.full(count, outcome, np.uint8), ages_ms, rows, errors or {})


def _keys(columns: pa.RecordBatch | pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in columns.columns), strict=True))
