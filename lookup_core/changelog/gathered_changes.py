"""Change builder: gathers the changes of one batch of messages, then converts them to columns.

Independent of the message format.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from lookup_core.changelog.change_decoder import (
    UNKNOWN_TRANSACTION,
    Change,
    Decoded,
    DecoderSettings,
    JsonLoads,
    Mask,
    RowChanges,
    TableChange,
)
from lookup_core.changelog.json_column import UNUSABLE, JsonDocuments, json_column
from lookup_core.changelog.key_readings import (
    CONVERTER,
    Forms,
    KeyDocuments,
    PlainText,
    ReadValue,
    all_readings,
    loose_readings,
)
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.keys.json_keys import typed_keys_from_json
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.row_bytes import ROW_BYTES, most_row_bytes, row_bytes

Values: TypeAlias = Mapping[str, Any]  # {column: JSON value}
# Converts a column's values from the encodings of the format to those of `json_keys`.
Rewrite: TypeAlias = Callable[[Sequence[object], Sequence[Forms], pa.Field], Sequence[object]]

Message = TypeVar("Message")

_TableChange: TypeAlias = tuple[int, TableChange]  # with the number of row changes before it

KEY_REMEDY = (
    "set key.converter.schemas.enable=true in the connector, or see its key.converter and modes of "
    "decimals, times and bytes"
)
OTHER_KEY = (
    "the key of a message is not the key of its row, and both are dropped; leave the keys of the "
    "connector as they are"
)
_NO_FORMS: Forms = {}
_LOW_HALF = 0xFFFFFFFF
_END_OF_TIME_MS = 2**63  # watermarks have 63 bits


class ChangeKind(IntEnum):
    """The reported change of a row."""

    UNKNOWN = 0
    UPSERT = 1
    DELETE = 2


class GatheredChanges:
    """The changes of one batch of messages, in their order; serves one `decode` only."""

    def __init__(
        self,
        schema: DimensionSchema,
        *,
        with_rows: bool,
        rewrite: Rewrite | None = None,
        read_value: ReadValue = loose_readings,
        max_row_bytes: int = ROW_BYTES,
    ) -> None:
        self.is_new = True  # the current message; rows of replays may be former ones
        self.ignored = 0
        self.source_time_ms = NO_WATERMARK_MS
        self._schema, self._with_rows, self._rewrite = schema, with_rows, rewrite
        self._read_value = read_value
        self._max_row_bytes = max_row_bytes
        self._key_names = schema.key.names
        self._key_name_set = {*self._key_names}
        self._values: list[Values] = []  # for each row change, key included
        self._forms: list[Forms] = []
        self._kinds: list[ChangeKind] = []
        self._transaction_ids: list[int] = []
        self._messages: list[int] = []  # the position of each row change's message
        self._table_changes: list[_TableChange] = []
        self._faults: dict[int, str] = {}
        self._hints: dict[int, str] = {}
        self._position = 0  # that of the current message

    def has_key(self, values: Values) -> bool:
        """Whether all key columns are present."""
        return self._key_name_set <= values.keys()

    def has_whole_key(self, values: Values) -> bool:
        """Whether all key columns are present and not null."""
        return self.has_key(values) and None not in [values[name] for name in self._key_names]

    def is_same_key(self, values: Values, others: Values) -> bool:
        """Whether two sets of values, both with the key, have the same key as a text."""
        return all(_text(values[name]) == _text(others[name]) for name in self._key_names)

    def note_time(self, time_ms: object) -> None:
        """Note a time of the source, in ms since the epoch; other values are ignored."""
        if type(time_ms) is int and self.source_time_ms < time_ms < _END_OF_TIME_MS:
            self.source_time_ms = time_ms

    def add(
        self,
        values: Values,
        kind: ChangeKind,
        *,
        transaction_id: int = UNKNOWN_TRANSACTION,
        forms: Forms = _NO_FORMS,
    ) -> None:
        """Add a row change; `values` hold the key and, for an upsert, the row."""
        self._values.append(values)
        self._forms.append(forms)
        self._kinds.append(kind if self._with_rows and self.is_new else ChangeKind.UNKNOWN)
        self._transaction_ids.append(transaction_id & _LOW_HALF)
        self._messages.append(self._position)

    def add_table(self, reason: str, transaction_id: int = UNKNOWN_TRANSACTION) -> None:
        """Add a change of the table."""
        change = TableChange(reason, transaction_id & _LOW_HALF)
        self._table_changes.append((len(self._values), change))

    def add_hint(self, reason: str) -> None:
        """Note why the current message is not used as it is, for the log."""
        self._hints[self._position] = reason

    def decode(self, messages: Iterable[Message], read: Callable[[Message], None]) -> Decoded:
        """Read all messages; one for which `read` raises ValueError is a change of the table."""
        for self._position, message in enumerate(messages):
            try:
                read(message)
            except ValueError as error:
                self._faults[self._position] = str(error)
                self.add_table(str(error))
        keys = self._typed_keys()
        others, unreadable = self._other_readings(keys)
        of_table = self._table_changes + self._unreadable(keys, unreadable)
        return Decoded(
            [*self._changes(keys, of_table), *others],
            self.source_time_ms,
            ignored=self.ignored,
            faults=dict(sorted(self._faults.items())),
            hints=self._hints,
        )

    def _typed_keys(self) -> TypedKeys:
        columns = [
            self._plain([values[field.name] for values in self._values], field)
            for field in self._schema.key
        ]
        keys = (
            columns[0] if len(columns) == 1 else [list(key) for key in zip(*columns, strict=True)]
        )
        return typed_keys_from_json(keys, self._schema)

    def _plain(self, values: Sequence[object], field: pa.Field) -> Sequence[object]:
        return values if self._rewrite is None else self._rewrite(values, self._forms, field)

    def _other_readings(self, keys: TypedKeys) -> tuple[list[RowChanges], list[int]]:
        """The changes of all keys that those of another type may mean, and those without one.

        They follow the other changes, as they only drop rows.
        """
        found: list[Sequence[object]] = []
        owners: list[int] = []
        for position in sorted(keys.faults):
            readings = self._readings(position)
            found += readings
            owners += [position] * len(readings)
        is_single = len(self._key_names) == 1
        typed = typed_keys_from_json(
            [key[0] if is_single else list(key) for key in found], self._schema
        )
        read = {owner for at, owner in enumerate(owners) if at not in typed.faults}
        unreadable = [position for position in sorted(keys.faults) if position not in read]
        # A reading with a NULL is of a key that is never looked up.
        kept = sorted({*range(len(found))}.difference(typed.faults, typed.nulls.tolist()))
        for position in sorted({owners[at] for at in kept}):
            self._hints[self._messages[position]] = _hint(self._values[position])
        return ([self._dropped(typed, kept, owners)] if kept else []), unreadable

    def _readings(self, position: int) -> Sequence[Sequence[object]]:
        values, forms = self._values[position], self._forms[position]
        return all_readings(values, forms, self._schema.key, read=self._read_value)

    def _dropped(self, keys: TypedKeys, kept: list[int], owners: list[int]) -> RowChanges:
        none = np.zeros(len(kept), np.bool_)
        ids = [self._transaction_ids[owners[at]] for at in kept]
        return RowChanges(
            keys=keys.columns.take(pa.array(kept)),
            has_row=none,
            is_gone=none,
            rows=self._no_rows(len(kept)),
            transaction_ids=np.array(ids, np.uint32),
        )

    def _unreadable(self, keys: TypedKeys, positions: Iterable[int]) -> list[_TableChange]:
        """A key without a reading may stand for any row: it is a change of the table."""
        changes = []
        for position in positions:
            code = keys.faults[position]
            reason = f"a key does not have the dimension's type ({code}); {KEY_REMEDY}"
            self._faults[self._messages[position]] = reason
            changes.append((position, TableChange(reason, self._transaction_ids[position])))
        return changes

    def _changes(self, keys: TypedKeys, of_table: list[_TableChange]) -> Iterator[Change]:
        is_kept = np.ones(keys.size, np.bool_)
        is_kept[[*keys.nulls, *keys.faults]] = False  # keys with a NULL are never looked up
        all_rows = self._row_changes(keys.columns)
        start = 0
        for position, change in sorted(of_table, key=itemgetter(0)):
            yield from _part(all_rows, start, is_kept[:position])
            yield change
            start = position
        yield from _part(all_rows, start, is_kept)

    def _row_changes(self, keys: pa.RecordBatch) -> RowChanges:
        kinds = np.array(self._kinds, np.int8)
        has_row = kinds == ChangeKind.UPSERT
        return RowChanges(
            keys=keys,
            rows=self._rows(has_row),  # clears `has_row` of unusable rows
            has_row=has_row,
            is_gone=kinds == ChangeKind.DELETE,
            transaction_ids=np.array(self._transaction_ids, np.uint32),
        )

    def _no_rows(self, count: int) -> pa.RecordBatch:
        columns = self._schema.columns
        nulls = [pa.nulls(count, field.type) for field in columns]
        return pa.record_batch(nulls, schema=columns)

    def _rows(self, has_row: Mask) -> pa.RecordBatch:
        columns = self._schema.columns
        if not has_row.any():
            return self._no_rows(len(has_row))
        arrays = []
        is_upsert = has_row.tolist()
        for field in columns:
            given = [
                values.get(field.name, UNUSABLE) if is_given else None
                for values, is_given in zip(self._values, is_upsert, strict=True)
            ]
            column = json_column(self._plain(given, field), field)
            has_row[column.unusable] = False
            arrays.append(column.values)
        rows = pa.record_batch(arrays, schema=columns)
        if most_row_bytes(rows) > self._max_row_bytes:
            has_row[row_bytes(rows) > self._max_row_bytes] = False
        return rows


def _text(value: object) -> str:
    return value.text if isinstance(value, PlainText) else str(value)


def _hint(key: Values) -> str:
    """Why a key has several readings, and the remedy."""
    if any(isinstance(value, PlainText) for value in key.values()):
        return f"keys are plain texts, and drop all keys that they may mean; {CONVERTER}"
    return f"keys have several readings, and drop all of them; {KEY_REMEDY}"


class JsonDecoder:
    """The parts of a ChangeDecoder for JSON messages of one dimension.

    Raises InvalidRequest (`key_type`) for a key type that JSON cannot state exactly.
    """

    def __init__(
        self, schema: DimensionSchema, settings: DecoderSettings, *, loads: JsonLoads
    ) -> None:
        refuse_unnameable(schema)
        self._schema, self._settings = schema, settings
        self._documents = JsonDocuments(loads, settings.max_message_bytes)
        self._keys = KeyDocuments(self._documents, schema)
        self._names = frozenset({*schema.columns.names, *schema.key.names})

    def _no_changes(
        self, rewrite: Rewrite, read_value: ReadValue = loose_readings
    ) -> GatheredChanges:
        return GatheredChanges(
            self._schema,
            with_rows=self._settings.with_rows,
            rewrite=rewrite,
            read_value=read_value,
            max_row_bytes=self._settings.row_bytes,
        )


def refuse_unnameable(schema: DimensionSchema) -> None:
    """Raise InvalidRequest (`key_type`) if JSON cannot state the key's type exactly."""
    typed_keys_from_json([], schema)


def _part(changes: RowChanges, start: int, is_kept: Mask) -> Iterator[RowChanges]:
    """The kept changes from `start` to the end of the mask, if there are any."""
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
