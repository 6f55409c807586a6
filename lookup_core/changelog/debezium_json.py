"""Debezium JSON decoder for change events of a PostgreSQL table, with or without schemas."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lookup_core.changelog.change_decoder import (
    UNKNOWN_TRANSACTION,
    ChangeMessage,
    Decoded,
    DecoderSettings,
    ReplayFilter,
    log_position,
    snapshot_position,
)
from lookup_core.changelog.debezium_values import key_readings, plain_json
from lookup_core.changelog.event_origin import Belonging
from lookup_core.changelog.gathered_changes import (
    OTHER_KEY,
    ChangeKind,
    GatheredChanges,
    JsonDecoder,
)
from lookup_core.changelog.json_column import JsonDocuments
from lookup_core.changelog.key_readings import Forms, KeyDocuments

_ENVELOPE = {"schema", "payload"}
_UNKNOWN_KEY = (
    "an event lacks the former key of its row; ALTER TABLE … REPLICA IDENTITY FULL adds it to "
    "the events, and VACUUM FULL those of columns that were added with a default"
)
_OTHER_LOG = "the events are from another log, as after a restore of the database"
_NEW_SNAPSHOT = "the connector reads all rows again, and does not report deleted ones"
_SEVERAL_SERVERS = "the topic has events of several servers: earlier rows may be of another one"
_INCREMENTAL = "incremental"
_FIRST_OF_SNAPSHOT = {"first", "first_in_data_collection"}
_DELETE, _TRUNCATE, _SNAPSHOT_READ = "d", "t", "r"
_OPERATIONS = {"c", _SNAPSHOT_READ, "u", _DELETE}
_WITH_OLD_KEY = {"u", _DELETE}
_HEARTBEAT = {"ts_ms"}
# The fields of messages about transactions, and about schema changes.
_OTHER_MESSAGES = ({"status", "id", "event_count", "data_collections"}, {"ddl", "tableChanges"})


@dataclass(frozen=True, slots=True)
class DebeziumDocument:
    """The key or the value of a message."""

    payload: Mapping[str, Any]
    schema: object = None  # the one of Kafka Connect, with encodings of values; None: unknown

    def forms(self) -> Forms:
        """The schemas of the payload's fields by name."""
        fields = self.schema.get("fields") if isinstance(self.schema, dict) else None
        if not isinstance(fields, list):
            return {}
        return {
            field["field"]: field
            for field in fields
            if isinstance(field, dict) and isinstance(field.get("field"), str)
        }

    def within(self, name: str) -> "DebeziumDocument | None":
        """The object in this field of the payload, if there is one."""
        payload = self.payload.get(name)
        if not isinstance(payload, dict):
            return None
        return DebeziumDocument(payload, self.forms().get(name) if self.schema else None)


def debezium_document(document: object) -> DebeziumDocument | None:
    """Unwrap a JSON document; None if it is empty. Raises ValueError if it is not an object."""
    schema: object = None
    if isinstance(document, dict) and _is_envelope(document):
        schema, document = document["schema"], document["payload"]
    if document is None:
        return None
    if isinstance(document, dict):
        return DebeziumDocument(document, schema)
    raise ValueError("not a JSON object")


def _is_envelope(document: Mapping[str, Any]) -> bool:
    # Columns of these names are possible, but hold texts and numbers.
    return document.keys() == _ENVELOPE and isinstance(document["schema"], dict | None)


class DebeziumDecoder(JsonDecoder):
    """A ChangeDecoder for the events of one table, and for the connector's heartbeats."""

    def decode(self, messages: Sequence[ChangeMessage], log: ReplayFilter | None = None) -> Decoded:
        """See ChangeDecoder."""
        gathered = self._no_changes(plain_json, key_readings)
        reader = _EventReader(
            self._settings, self._documents, self._keys, gathered, log or ReplayFilter()
        )
        return gathered.decode(messages, reader.read)


@dataclass(slots=True)
class _EventReader:
    """Reads the messages of one batch into its gathered changes."""

    settings: DecoderSettings
    documents: JsonDocuments
    keys: KeyDocuments
    gathered: GatheredChanges
    log: ReplayFilter

    def read(self, message: ChangeMessage) -> None:
        """Read one message; raises ValueError if it is undecodable."""
        deleted, self.log.deleted_key = self.log.deleted_key, None
        if message.value is None and message.key in (None, deleted):
            self.gathered.ignored += 1  # a tombstone with the same key follows each deletion
            return
        event = debezium_document(self.documents.read(message.value))
        if event is None:
            self._read_tombstone(message)
        elif isinstance(operation := event.payload.get("op"), str):
            self.log.deleted_key = message.key if operation == _DELETE else None
            self._read_event(message, event, operation)
        else:
            self._read_other(event.payload)

    def _read_tombstone(self, message: ChangeMessage) -> None:
        # Compaction has removed its deletion, which may have been of another database.
        key = self._key(message)
        if key is not None and self.gathered.has_key(key.payload):
            self.gathered.add(key.payload, ChangeKind.UNKNOWN, forms=key.forms())
        else:
            self.gathered.ignored += 1

    def _key(self, message: ChangeMessage) -> DebeziumDocument | None:
        """The message's key; raises ValueError if it is undecodable."""
        content = self.keys.read(message.key)
        if isinstance(content, dict) and _is_envelope(content):
            payload = content["payload"]
            content = content if isinstance(payload, dict | None) else payload
        if isinstance(content, dict | None):
            return debezium_document(content)
        names = self.keys.schema.key.names
        if len(names) > 1 or isinstance(content, list):
            raise ValueError("the key is not a JSON object")
        return DebeziumDocument({names[0]: content})

    def _read_other(self, payload: Mapping[str, Any]) -> None:
        names = payload.keys()
        if names != _HEARTBEAT and not any(expected <= names for expected in _OTHER_MESSAGES):
            raise ValueError("not a Debezium message")
        self.gathered.note_time(payload.get("ts_ms"))
        self.gathered.ignored += 1

    def _read_event(self, message: ChangeMessage, event: DebeziumDocument, operation: str) -> None:
        source = event.within("source")
        if source is None:
            raise ValueError("the event has no source")
        belonging = self._belonging(source.payload, at_ms=message.timestamp)
        if belonging is not Belonging.FOREIGN:
            self.gathered.note_time(source.payload.get("ts_ms"))
        if belonging in {Belonging.FOREIGN, Belonging.OTHER_TABLE}:
            self.gathered.ignored += 1
            return
        transaction_id = UNKNOWN_TRANSACTION
        if belonging is Belonging.OURS:
            given = source.payload.get("txId")
            transaction_id = given if type(given) is int else UNKNOWN_TRANSACTION
            self._note_position(operation, source.payload)
        else:
            self.gathered.is_new = False
        if operation == _TRUNCATE:
            self.gathered.add_table("the table was truncated", transaction_id)
        elif operation in _OPERATIONS:
            self._read_row(message, event, operation, transaction_id=transaction_id)
        else:
            raise ValueError("the operation is unknown")

    def _belonging(self, source: Mapping[str, Any], *, at_ms: int) -> Belonging:
        origins, senders = self.settings.origins, self.log.senders
        were_mixed = origins.are_mixed(senders)
        belonging = origins.belonging(source, senders, at_ms=at_ms)
        if origins.are_mixed(senders) and not were_mixed:
            self.gathered.add_table(_SEVERAL_SERVERS)
        if belonging in {Belonging.FOREIGN, Belonging.DOUBTFUL}:
            self.gathered.add_hint(origins.hint(source))
        return belonging

    def _note_position(self, operation: str, source: Mapping[str, Any]) -> None:
        """Decide whether the event's row is new, and record the event."""
        gathered, log = self.gathered, self.log
        sequence = source.get("sequence")
        if operation == _SNAPSHOT_READ:  # leaves the position in the log as it is
            kind = source.get("snapshot")
            # An incremental snapshot is read next to a log without gaps.
            if kind != _INCREMENTAL and log.note_snapshot(is_first=kind in _FIRST_OF_SNAPSHOT):
                gathered.add_table(_NEW_SNAPSHOT)
            gathered.is_new = log.is_new(snapshot_position(sequence))
            return
        position = log_position(sequence)
        time_ms = source.get("ts_ms")
        if log.note(position, time_ms if type(time_ms) is int else 0):
            gathered.add_table(_OTHER_LOG)
        gathered.is_new = log.is_new(position)

    def _read_row(
        self,
        message: ChangeMessage,
        event: DebeziumDocument,
        operation: str,
        *,
        transaction_id: int,
    ) -> None:
        row = event.within("after") if operation != _DELETE else None
        if operation != _DELETE and (row is None or not self.gathered.has_key(row.payload)):
            raise ValueError("the row lacks a key column")
        if operation in _WITH_OLD_KEY:
            old = self._old_key(message, event)
            if old is None:
                self.gathered.add_table(_UNKNOWN_KEY, transaction_id)
                return
            self._drop_contradicting(old, row or event.within("before"), transaction_id)
            if row is None or not self.gathered.is_same_key(old.payload, row.payload):
                self._add(old, ChangeKind.DELETE, transaction_id)
        if row is not None:
            self._add(row, ChangeKind.UPSERT, transaction_id)

    def _drop_contradicting(
        self, old: DebeziumDocument, stated: DebeziumDocument | None, transaction_id: int
    ) -> None:
        """Drop both keys if the message's is not that of the row: a transform may have changed it.

        Debezium reports another primary key as a deletion and a new row.
        """
        gathered = self.gathered
        if self.settings.has_full_identity or stated is None:
            return
        is_whole = gathered.has_whole_key(stated.payload)
        if is_whole and not gathered.is_same_key(old.payload, stated.payload):
            gathered.is_new = False
            gathered.add_hint(OTHER_KEY)
            self._add(stated, ChangeKind.UNKNOWN, transaction_id)

    def _add(self, document: DebeziumDocument, kind: ChangeKind, transaction_id: int) -> None:
        forms = document.forms()
        self.gathered.add(document.payload, kind, transaction_id=transaction_id, forms=forms)

    def _is_former(self, old: Mapping[str, Any], event: DebeziumDocument) -> bool:
        """Whether these values have the former key; the log may have NULL for parts of another."""
        if not self.settings.loses_keys:
            return self.gathered.has_key(old)
        row = event.within("after")
        if row is None or not self.gathered.has_whole_key(old):
            return False
        return self.gathered.is_same_key(old, row.payload)

    def _old_key(self, message: ChangeMessage, event: DebeziumDocument) -> DebeziumDocument | None:
        if self.settings.has_full_identity:
            old = event.within("before")
            return old if old is not None and self._is_former(old.payload, event) else None
        if self.settings.loses_keys:  # the message's key is that of the new row
            return None
        old = self._key(message)
        # A custom message key may contain NULL where Debezium does not know the former value.
        is_known = old is not None and self.gathered.has_whole_key(old.payload)
        return old if is_known else None
