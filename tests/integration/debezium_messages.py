"""Messages as Debezium writes them for a table of planes, without Debezium.

Nothing is sent here; which bytes a real connector writes is what `test_kafka_debezium` tells.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PLACEHOLDER = "__debezium_unavailable_value"  # of a value that PostgreSQL did not send again

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """The key and the value of one message."""

    key: bytes | None
    value: bytes | None


NONSENSE = Message(b'{"id": 1}', b"\x00\xffs3cret nonsense")


@dataclass(frozen=True, slots=True)
class TableMessages:
    """What the connector of one table, whose key is `id`, writes."""

    table: str  # without its schema

    def upsert(self, row: Row, *, transaction_id: int | None, operation: str = "u") -> Message:
        """The row is so now: by an update, or as `operation` says."""
        return self._event(operation, row["id"], after=row, transaction_id=transaction_id)

    @staticmethod
    def placed(message: Message, place: int) -> Message:
        """The same, with its place in the server's log."""
        event = json.loads(message.value or b"")
        event["source"]["sequence"] = f'["{place}","{place + 1}"]'
        return Message(message.key, json.dumps(event).encode())

    def deletion(self, key: int, *, transaction_id: int | None) -> Message:
        """There is no row of this key any more."""
        return self._event("d", key, after=None, transaction_id=transaction_id)

    def truncation(self, *, transaction_id: int | None) -> Message:
        """There is no row at all any more."""
        return self._event("t", None, after=None, transaction_id=transaction_id)

    def tombstone(self, key: int) -> Message:
        """What follows a deletion, for compaction."""
        return Message(_key(key), None)

    def _event(
        self, operation: str, key: int | None, *, after: Row | None, transaction_id: int | None
    ) -> Message:
        source = {"schema": "public", "table": self.table, "ts_ms": now_ms()}
        event = {"before": None, "after": after, "op": operation, "ts_ms": now_ms()}
        told = {**event, "source": {**source, "txId": transaction_id}}
        return Message(None if key is None else _key(key), json.dumps(told).encode())


def heartbeat() -> Message:
    """The connector lives, and has told all up to now."""
    return Message(b"{}", json.dumps({"ts_ms": now_ms()}).encode())


def now_ms() -> int:
    """The source's clock, which is ours."""
    return int(time.time() * 1000)


def _key(key: int) -> bytes:
    return json.dumps({"id": key}).encode()
