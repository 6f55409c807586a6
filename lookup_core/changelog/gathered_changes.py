"""Gathers what messages say, one after the other, and makes columns of all of it at the end.

Knows no format of messages; what a change is stands in `change`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import (
    UNKNOWN_TRANSACTION,
    Change,
    Decoded,
    Mask,
    RowChanges,
    TableChange,
)
from lookup_core.changelog.json_column import UNUSABLE, json_column
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.watermark_valve import NO_WATERMARK_MS

Values: TypeAlias = Mapping[str, Any]  # {column: JSON value}
Forms: TypeAlias = Mapping[str, Any]  # {column: what its values look like}, as a format has it
# JSON values of a field as `json_keys` knows them, from those that a format has, and their forms.
Rewrite: TypeAlias = Callable[[Sequence[object], Sequence[Forms], pa.Field], Sequence[object]]

_NO_FORMS: Forms = {}
_LOW_HALF = 0xFFFFFFFF
_END_OF_TIME_MS = 2**63  # later ones are not a watermark's


class Told(IntEnum):
    """What a message tells of a key."""

    NOTHING = 0  # but that something changed
    ROW = 1
    ABSENCE = 2


@dataclass(frozen=True, slots=True)
class _Boundary:
    """A change of the table between those of single rows."""

    position: int  # of the row that comes next
    change: TableChange


class GatheredChanges:
    """The changes of one batch of messages, in their order."""

    def __init__(self, schema: DimensionSchema, *, with_rows: bool, rewrite: Rewrite) -> None:
        self.position = 0  # of the message that is read
        self.is_news = True  # the message; else its rows are not told, as they may be former ones
        self.ignored = 0
        self.source_time_ms = NO_WATERMARK_MS
        self._schema, self._with_rows, self._rewrite = schema, with_rows, rewrite
        self._key_names = schema.key.names
        self._least_names = {*self._key_names}
        self._values: list[Values] = []  # of each row change, the key's among them
        self._forms: list[Forms] = []
        self._told: list[Told] = []
        self._transaction_ids: list[int] = []
        self._messages: list[int] = []  # the position of each row change's message
        self._boundaries: list[_Boundary] = []
        self._faults: dict[int, str] = {}

    def has_key(self, values: Values) -> bool:
        """Whether all columns of the key are there."""
        return self._least_names <= values.keys()

    def has_whole_key(self, values: Values) -> bool:
        """Whether all columns of the key are there, and none of them is null."""
        return self.has_key(values) and None not in [values[name] for name in self._key_names]

    def is_same_key(self, values: Values, others: Values) -> bool:
        """Whether both have the key, and the same one."""
        return all(values[name] == others[name] for name in self._key_names)

    def note_time(self, time_ms: object) -> None:
        """The source had this time, in ms since the epoch, if it is one."""
        if type(time_ms) is int and self.source_time_ms < time_ms < _END_OF_TIME_MS:
            self.source_time_ms = time_ms

    def add(
        self,
        values: Values,
        told: Told,
        *,
        transaction_id: int = UNKNOWN_TRANSACTION,
        forms: Forms = _NO_FORMS,
    ) -> None:
        """A row changed: `values` holds its key and, if it is told, the row itself."""
        self._values.append(values)
        self._forms.append(forms)
        self._told.append(told if self._with_rows and self.is_news else Told.NOTHING)
        self._transaction_ids.append(transaction_id & _LOW_HALF)
        self._messages.append(self.position)

    def add_table(self, reason: str, transaction_id: int = UNKNOWN_TRANSACTION) -> None:
        """Any row may have changed."""
        change = TableChange(reason, transaction_id & _LOW_HALF)
        self._boundaries.append(_Boundary(len(self._values), change))

    def add_fault(self, reason: str) -> None:
        """The message cannot be decoded, so that any row may have changed."""
        self._faults[self.position] = reason
        self.add_table(reason)

    def decoded(self) -> Decoded:
        """All of it."""
        keys = self._typed_keys()
        changes = list(self._changes(keys, self._boundaries + self._unreadable(keys)))
        return Decoded(
            changes,
            self.source_time_ms,
            ignored=self.ignored,
            faults=dict(sorted(self._faults.items())),
            nbytes=sum(
                change.keys.nbytes + change.rows.nbytes + change.transaction_ids.nbytes
                for change in changes
                if isinstance(change, RowChanges)
            ),
        )

    def _typed_keys(self) -> TypedKeys:
        columns = [
            self._rewrite([values[field.name] for values in self._values], self._forms, field)
            for field in self._schema.key
        ]
        keys = (
            columns[0] if len(columns) == 1 else [list(key) for key in zip(*columns, strict=True)]
        )
        return typed_keys_from_json(keys, self._schema)

    def _unreadable(self, keys: TypedKeys) -> list[_Boundary]:
        """A key that is none of the dimension's could be any of them."""
        boundaries = []
        for position, code in sorted(keys.faults.items()):
            reason = f"a key is not of the dimension's type ({code})"
            self._faults[self._messages[position]] = reason
            change = TableChange(reason, self._transaction_ids[position])
            boundaries.append(_Boundary(position, change))
        return boundaries

    def _changes(self, keys: TypedKeys, boundaries: list[_Boundary]) -> Iterator[Change]:
        is_kept = np.ones(keys.size, np.bool_)
        is_kept[[*keys.nulls.tolist(), *keys.faults]] = False  # no one asks for a key with a NULL
        all_rows = self._row_changes(keys.columns)
        start = 0
        for boundary in sorted(boundaries, key=lambda boundary: boundary.position):
            yield from _part(all_rows, start, is_kept[: boundary.position])
            yield boundary.change
            start = boundary.position
        yield from _part(all_rows, start, is_kept)

    def _row_changes(self, keys: pa.RecordBatch) -> RowChanges:
        told = np.array(self._told, np.int8)
        has_row = told == Told.ROW
        return RowChanges(
            keys=keys,
            rows=self._rows(has_row),  # what cannot be read leaves `has_row`
            has_row=has_row,
            is_gone=told == Told.ABSENCE,
            transaction_ids=np.array(self._transaction_ids, np.uint32),
        )

    def _rows(self, has_row: Mask) -> pa.RecordBatch:
        columns = self._schema.columns
        if not has_row.any():
            nulls = [pa.nulls(len(has_row), field.type) for field in columns]
            return pa.record_batch(nulls, schema=columns)
        arrays = []
        is_told = has_row.tolist()
        for field in columns:
            given = [
                values.get(field.name, UNUSABLE) if told else None
                for values, told in zip(self._values, is_told, strict=True)
            ]
            column = json_column(self._rewrite(given, self._forms, field), field)
            has_row[column.unusable] = False
            arrays.append(column.values)
        return pa.record_batch(arrays, schema=columns)


def refuse_unnameable(schema: DimensionSchema) -> None:
    """Raise InvalidRequest (`key_type`) if the key has a type that JSON cannot name exactly."""
    typed_keys_from_json([], schema)


def _part(changes: RowChanges, start: int, is_kept: Mask) -> Iterator[RowChanges]:
    """Those from `start` to the end of the mask that are kept, if there are any."""
    positions = start + np.flatnonzero(is_kept[start:])
    if not positions.size:
        return
    if positions.size == len(changes.has_row):
        yield changes
        return
    yield RowChanges(
        keys=changes.keys.take(pa.array(positions)),
        has_row=changes.has_row[positions],
        is_gone=changes.is_gone[positions],
        rows=changes.rows.take(pa.array(positions)),
        transaction_ids=changes.transaction_ids[positions],
    )
