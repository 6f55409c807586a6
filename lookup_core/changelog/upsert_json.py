"""Upsert JSON decoder: the message's key is the row's key, its value the row.

Not for Debezium's flattened events, which encode dates, bytes and decimals differently. Some look
like upserts nevertheless: their rows are not used where they are deleted or incomplete.

The key is a value, a list of values, or an object by column name. A key of one column may also be a
plain text. The value is an object by column name, or null for a deletion. Values have the forms of
`json_keys`: ISO 8601 texts, uuids, decimals as texts, bytes in base64. A row without all columns in
their types is reported as changed only.
Upserts have no transaction ids and no log positions: rows that are written again count as new.
"""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.change_decoder import (
    ChangeMessage,
    Decoded,
    ReplayFilter,
)
from lookup_core.changelog.debezium_values import UNAVAILABLE
from lookup_core.changelog.gathered_changes import (
    OTHER_KEY,
    ChangeKind,
    GatheredChanges,
    JsonDecoder,
    Values,
)
from lookup_core.changelog.json_column import UNUSABLE
from lookup_core.changelog.key_readings import Forms

# Begins names that producers add to rows: `__deleted`, `_ab_cdc_deleted_at`, `_meta`. Such a row
# may be gone.
_MARK = "_"
_SCHEMAS_OFF = "; set key.converter.schemas.enable=false and value.converter.schemas.enable=false"


class UpsertDecoder(JsonDecoder):
    """A ChangeDecoder for upserts; the source time is the messages' timestamp."""

    def decode(self, messages: Sequence[ChangeMessage], log: ReplayFilter | None = None) -> Decoded:
        """See ChangeDecoder."""
        del log
        gathered = self._no_changes(_known)
        return gathered.decode(messages, partial(self._read, gathered))

    def _read(self, gathered: GatheredChanges, message: ChangeMessage) -> None:
        if message.timestamp >= 0:
            gathered.note_time(message.timestamp)
        key = self._named(self._keys.read(message.key))
        row = self._documents.read(message.value)
        if row is None:
            gathered.add(key, ChangeKind.DELETE)
        elif isinstance(row, dict):
            self._add_row(gathered, row, key)
        else:
            raise ValueError("the value is not a JSON object")

    def _add_row(self, gathered: GatheredChanges, row: Values, key: Values) -> None:
        has_other_key = gathered.has_key(row) and not gathered.is_same_key(row, key)
        if has_other_key:
            gathered.add(row, ChangeKind.UNKNOWN)
            gathered.add_hint(OTHER_KEY)
        is_used = not has_other_key and not self._is_marked(row)
        gathered.add({**row, **key}, ChangeKind.UPSERT if is_used else ChangeKind.UNKNOWN)

    def _is_marked(self, row: Values) -> bool:
        return any(name.startswith(_MARK) for name in row.keys() - self._names)

    def _named(self, key: object) -> Values:
        names = self._schema.key.names
        if isinstance(key, dict):
            parts = [key[name] for name in names if name in key]
        else:
            parts = key if isinstance(key, list) else [key]
        if key is None or len(parts) != len(names):
            remedy = _SCHEMAS_OFF if isinstance(key, dict) and "payload" in key else ""
            raise ValueError(f"the key does not have the dimension's key columns{remedy}")
        return dict(zip(names, parts, strict=True))


def _known(values: Sequence[object], _forms: Sequence[Forms], field: pa.Field) -> Sequence[object]:
    if not types.is_string(field.type) or UNAVAILABLE not in values:
        return values
    return [UNUSABLE if value == UNAVAILABLE else value for value in values]
