"""Debezium JSON decoder for change events of a PostgreSQL table, with or without schemas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lookup_core.changelog.change_decoder import (
    UNKNOWN_TRANSACTION,
    ChangeMessage,
    Decoded,
    DecoderSettings,
    JsonLoads,
    ReplayFilter,
    log_position,
    snapshot_position,
)
from lookup_core.changelog.debezium_values import plain_json
from lookup_core.changelog.gathered_changes import Forms, GatheredChanges, Told, refuse_unnameable
from lookup_core.changelog.json_column import JsonDocuments
from lookup_core.dimension_schema import DimensionSchema

_ENVELOPE = {"schema", "payload"}


@dataclass(frozen=True, slots=True)
class DebeziumDocument:
    """What a message's key or value says."""

    payload: Mapping[str, Any]
    schema: object = None  # Kafka Connect's, which says how values look; None: nothing does

    def forms(self) -> Forms:
        """The schemas of the payload's fields, by their names."""
        fields = self.schema.get("fields") if isinstance(self.schema, dict) else None
        if not isinstance(fields, list):
            return {}
        return {
            field["field"]: field
            for field in fields
            if isinstance(field, dict) and isinstance(field.get("field"), str)
        }

    def within(self, name: str) -> "DebeziumDocument | None":
        """The object in the payload's field of this name, if there is one."""
        payload = self.payload.get(name)
        if not isinstance(payload, dict):
            return None
        return DebeziumDocument(payload, self.forms().get(name) if self.schema else None)


def debezium_document(document: object) -> DebeziumDocument | None:
    """From JSON; None where there is nothing in it. Raises ValueError if it is no object."""
    schema: object = None
    if isinstance(document, dict) and _is_envelope(document):
        schema, document = document["schema"], document["payload"]
    if document is None:
        return None
    if isinstance(document, dict):
        return DebeziumDocument(document, schema)
    raise ValueError("it is no JSON object")


def _is_envelope(document: Mapping[str, Any]) -> bool:
    # Columns may have these names, too; they hold texts and numbers.
    return document.keys() == _ENVELOPE and isinstance(document["schema"], dict | None)


_UNKNOWN_KEY = (
    "an event does not tell the old key of its row: that is not in the message's key; "
    "ALTER TABLE … REPLICA IDENTITY FULL makes events tell it"
)
_OTHER_LOG = "the connector tells of another log, as of a database that was restored"
_NEW_SNAPSHOT = "the connector reads all rows anew, and does not tell which ones are gone"
_INCREMENTAL = "incremental"
_FIRST_OF_SNAPSHOT = {"first", "first_in_data_collection"}
_DELETE, _TRUNCATE, _SNAPSHOT_READ = "d", "t", "r"
_OPERATIONS = {"c", _SNAPSHOT_READ, "u", _DELETE}
_WITH_OLD_KEY = {"u", _DELETE}
_HEARTBEAT = {"ts_ms"}
# What is in messages about transactions, and in those about changes of the schema.
_OTHER_MESSAGES = ({"status", "id", "event_count", "data_collections"}, {"ddl", "tableChanges"})


class DebeziumDecoder:
    """A ChangeDecoder of one table's events, and of the connector's heartbeats.

    Raises InvalidRequest (`key_type`) for a key that JSON cannot name.
    """

    def __init__(
        self, schema: DimensionSchema, settings: DecoderSettings, *, loads: JsonLoads
    ) -> None:
        refuse_unnameable(schema)
        self._schema, self._settings = schema, settings
        self._documents = JsonDocuments(loads, settings.max_message_bytes)

    def decode(self, messages: Sequence[ChangeMessage], log: ReplayFilter | None = None) -> Decoded:
        """See ChangeDecoder."""
        log = log or ReplayFilter()
        gathered = GatheredChanges(
            self._schema, with_rows=self._settings.with_rows, rewrite=plain_json
        )
        deleted: bytes | None = None
        for gathered.position, message in enumerate(messages):
            if message.value is None and message.key in (None, deleted):
                gathered.ignored += 1  # each deletion is followed by a tombstone of the same key
                continue
            try:
                is_deletion = self._read(message, gathered, log=log) == _DELETE
            except ValueError as error:
                gathered.add_fault(str(error))
                is_deletion = False
            deleted = message.key if is_deletion else None
        return gathered.decoded()

    def _read(
        self, message: ChangeMessage, gathered: GatheredChanges, *, log: ReplayFilter
    ) -> str | None:
        """The operation, if the message has one; raises ValueError where it is undecodable."""
        event = debezium_document(self._documents.read(message.value))
        if event is None:
            gathered.is_news = log.is_news(None)
            self._read_tombstone(message, gathered)
            return None
        operation = event.payload.get("op")
        if isinstance(operation, str):
            self._read_event(message, event, gathered=gathered, log=log)
            return operation
        names = event.payload.keys()
        if names != _HEARTBEAT and not any(expected <= names for expected in _OTHER_MESSAGES):
            raise ValueError("it is not one of Debezium's messages")
        gathered.note_time(event.payload.get("ts_ms"))
        gathered.ignored += 1
        return None

    def _read_tombstone(self, message: ChangeMessage, gathered: GatheredChanges) -> None:
        # Its deletion came just before, in another batch; or compaction has taken it away.
        key = debezium_document(self._documents.read(message.key))
        if key is not None and gathered.has_key(key.payload):
            gathered.add(key.payload, Told.ABSENCE, forms=key.forms())
        else:
            gathered.ignored += 1

    def _read_event(
        self,
        message: ChangeMessage,
        event: DebeziumDocument,
        *,
        gathered: GatheredChanges,
        log: ReplayFilter,
    ) -> None:
        source = event.within("source")
        if source is None:
            raise ValueError("it has no source")
        gathered.note_time(source.payload.get("ts_ms"))
        given = source.payload.get("txId")
        transaction_id = given if type(given) is int else UNKNOWN_TRANSACTION
        if not self._is_of_table(source.payload):
            gathered.ignored += 1
            return
        _place(event.payload["op"], source.payload, gathered=gathered, log=log)
        if event.payload["op"] == _TRUNCATE:
            gathered.add_table("the table was truncated", transaction_id)
        else:
            self._read_row(message, event, transaction_id=transaction_id, gathered=gathered)

    def _is_of_table(self, source: Mapping[str, Any]) -> bool:
        is_of_database = self._settings.database in (None, source.get("db"))
        return is_of_database and self._settings.table == (
            f"{source.get('schema')}.{source.get('table')}"
        )

    def _read_row(
        self,
        message: ChangeMessage,
        event: DebeziumDocument,
        *,
        transaction_id: int,
        gathered: GatheredChanges,
    ) -> None:
        operation = event.payload["op"]
        if operation not in _OPERATIONS:
            raise ValueError("its operation is unknown")
        row = event.within("after") if operation != _DELETE else None
        if operation != _DELETE and (row is None or not gathered.has_key(row.payload)):
            raise ValueError("its row lacks a column of the key")
        if operation in _WITH_OLD_KEY:
            old = self._old_key(message, event, gathered)
            if old is None:
                gathered.add_table(_UNKNOWN_KEY, transaction_id)
                return
            if row is None or not gathered.is_same_key(old.payload, row.payload):
                _add(old, Told.ABSENCE, transaction_id=transaction_id, gathered=gathered)
        if row is not None:
            _add(row, Told.ROW, transaction_id=transaction_id, gathered=gathered)

    def _old_key(
        self, message: ChangeMessage, event: DebeziumDocument, gathered: GatheredChanges
    ) -> DebeziumDocument | None:
        if self._settings.has_full_identity:
            old = event.within("before")
            return old if old is not None and gathered.has_key(old.payload) else None
        old = debezium_document(self._documents.read(message.key))
        # A NULL in it would be one that Debezium does not know, in a key of the user's own.
        is_known = old is not None and gathered.has_whole_key(old.payload)
        return old if is_known else None


def _place(
    operation: str, source: Mapping[str, Any], *, gathered: GatheredChanges, log: ReplayFilter
) -> None:
    """See whether the event's row may be told, and note the event."""
    sequence = source.get("sequence")
    if operation == _SNAPSHOT_READ:  # the log goes on from where it was
        kind = source.get("snapshot")
        # An incremental one is read beside a log that is told without a gap.
        if kind != _INCREMENTAL and log.note_snapshot(is_first=kind in _FIRST_OF_SNAPSHOT):
            gathered.add_table(_NEW_SNAPSHOT)
        gathered.is_news = log.is_news(snapshot_position(sequence))
        return
    position = log_position(sequence)
    time_ms = source.get("ts_ms")
    time_ms = time_ms if type(time_ms) is int else 0
    if log.note(position, time_ms):
        gathered.add_table(_OTHER_LOG)
    gathered.is_news = log.is_news(position)


def _add(
    document: DebeziumDocument, told: Told, *, transaction_id: int, gathered: GatheredChanges
) -> None:
    gathered.add(document.payload, told, transaction_id=transaction_id, forms=document.forms())
