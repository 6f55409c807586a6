"""Messages of changelogs for tests, and decoded changes as plain values.

`debezium_messages.json` was written by Debezium 3.2 and PostgreSQL 18; some columns are left out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from lookup_core.changelog.change_decoder import Change, RowChanges
from lookup_core.dimension_schema import DimensionSchema

_CAPTURED = json.loads(Path(__file__).with_name("debezium_messages.json").read_text())

Listed = tuple[Any, ...]  # (key, row or "gone" or "changed", transaction) or ("table", transaction)


@dataclass(frozen=True, slots=True)
class Message:
    """A ChangeMessage."""

    key: bytes | None
    value: bytes | None
    timestamp: int = -1


def message(key: object, value: object = None, *, timestamp: int = -1) -> Message:
    """A message of two JSON documents; None is no document."""
    return Message(_document(key), _document(value), timestamp)


def captured(topic: str) -> list[Message]:
    """Messages that Debezium wrote, of "<mode of the converters> <table>"."""
    return [message(*pair) for pair in _CAPTURED[topic]]


def schema_of(key: Mapping[str, Any], columns: Mapping[str, Any]) -> DimensionSchema:
    """A dimension with these Arrow types."""
    return DimensionSchema(pa.schema(list(key.items())), pa.schema(list(columns.items())))


def listed(changes: Sequence[Change]) -> list[Listed]:
    """All changes, one by one."""
    return [each for change in changes for each in _each(change)]


def _document(content: object) -> bytes | None:
    return None if content is None else orjson.dumps(content)


def _each(change: Change) -> list[Listed]:
    if not isinstance(change, RowChanges):
        return [("table", change.transaction_id)]
    keys = [tuple(key.values()) for key in change.keys.to_pylist()]
    rows = change.rows.to_pylist()
    words = [
        row if has_row else ("gone" if is_gone else "changed")
        for row, has_row, is_gone in zip(rows, change.has_row, change.is_gone, strict=True)
    ]
    return list(zip(keys, words, change.transaction_ids.tolist(), strict=True))
