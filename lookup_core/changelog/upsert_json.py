"""Plain upserts in JSON: the message's key is the row's key, its value the row.

Not Debezium's flattened events: its dates, bytes and decimals have other forms.

The key is a value, a list of values, or an object by the names of the key's columns; the value an
object by the names of the columns, or null where there is no row any more. Values have the forms
of `json_keys`: ISO 8601 texts, uuids, decimals as texts, bytes in base64. A row that lacks a column
of the dimension, or has something else in it, is not told. There are no transaction ids, nor
positions: rows that a writer tells once more are taken for news.
"""

from collections.abc import Sequence

import pyarrow as pa

from lookup_core.changelog.change_decoder import (
    ChangeMessage,
    Decoded,
    DecoderSettings,
    JsonLoads,
    ReplayFilter,
)
from lookup_core.changelog.gathered_changes import (
    Forms,
    GatheredChanges,
    Told,
    Values,
    refuse_unnameable,
)
from lookup_core.changelog.json_column import JsonDocuments
from lookup_core.dimension_schema import DimensionSchema


class UpsertDecoder:
    """A ChangeDecoder of such messages; the source's time is that of the messages.

    Raises InvalidRequest (`key_type`) for a key that JSON cannot name.
    """

    def __init__(
        self, schema: DimensionSchema, settings: DecoderSettings, *, loads: JsonLoads
    ) -> None:
        refuse_unnameable(schema)
        self._schema, self._with_rows = schema, settings.with_rows
        self._documents = JsonDocuments(loads, settings.max_message_bytes)

    def decode(self, messages: Sequence[ChangeMessage], log: ReplayFilter | None = None) -> Decoded:
        """See ChangeDecoder."""
        del log
        gathered = GatheredChanges(self._schema, with_rows=self._with_rows, rewrite=_as_they_are)
        for gathered.position, message in enumerate(messages):
            if message.timestamp >= 0:
                gathered.note_time(message.timestamp)
            try:
                self._read(message, gathered)
            except ValueError as error:
                gathered.add_fault(str(error))
        return gathered.decoded()

    def _read(self, message: ChangeMessage, gathered: GatheredChanges) -> None:
        key = self._named(self._documents.read(message.key))
        row = self._documents.read(message.value)
        if row is None:
            gathered.add(key, Told.ABSENCE)
        elif isinstance(row, dict):
            gathered.add({**row, **key}, Told.ROW)
        else:
            raise ValueError("its value is no object")

    def _named(self, key: object) -> Values:
        names = self._schema.key.names
        if isinstance(key, dict):
            parts = [key[name] for name in names if name in key]
        else:
            parts = key if isinstance(key, list) else [key]
        if key is None or len(parts) != len(names):
            raise ValueError("its key is not that of the dimension")
        return dict(zip(names, parts, strict=True))


def _as_they_are(
    values: Sequence[object], forms: Sequence[Forms], field: pa.Field
) -> Sequence[object]:
    del forms, field
    return values
