"""Debezium messages of a table with columns `id`, `name` and `note`, without a connector."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """Key and value of one message."""

    key: bytes | None
    value: bytes | None


NONSENSE = Message(b'{"id": 1}', b"\x00\xffs3cret nonsense")


@dataclass(frozen=True, slots=True)
class TableMessages:
    """Events of a connector of one table, named without its schema."""

    table: str

    def upsert(self, row: Row, *, transaction_id: int | None, operation: str = "u") -> Message:
        """A row that was inserted, updated or read, by `operation`."""
        return self._event(operation, row["id"], after=row, transaction_id=transaction_id)

    @staticmethod
    def foreign(message: Message, **source: object) -> Message:
        """The message with these fields of its source."""
        event = json.loads(message.value or b"")
        event["source"].update(source)
        return Message(message.key, json.dumps(event).encode())

    def deletion(self, key: int, *, transaction_id: int | None) -> Message:
        """A deleted row."""
        return self._event("d", key, after=None, transaction_id=transaction_id)

    def truncation(self, *, transaction_id: int | None) -> Message:
        """A truncated table."""
        return self._event("t", None, after=None, transaction_id=transaction_id)

    def tombstone(self, key: int) -> Message:
        """The null value that follows a deletion, for compaction."""
        return Message(_key(key), None)

    def _event(
        self, operation: str, key: int | None, *, after: Row | None, transaction_id: int | None
    ) -> Message:
        source = {"schema": "public", "table": self.table, "ts_ms": now_ms()}
        event = {"before": None, "after": after, "op": operation, "ts_ms": now_ms()}
        value = {**event, "source": {**source, "txId": transaction_id}}
        return Message(None if key is None else _key(key), json.dumps(value).encode())


def heartbeat() -> Message:
    """A heartbeat of the current time."""
    return Message(b"{}", json.dumps({"ts_ms": now_ms()}).encode())


def now_ms() -> int:
    """The current time of source and test."""
    return int(time.time() * 1000)


def _key(key: int) -> bytes:
    return json.dumps({"id": key}).encode()
