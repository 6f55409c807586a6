"""Notification decoder: payloads of PostgreSQL's NOTIFY as changed keys.

The triggers that send them, and the connection that receives them, are in the PostgreSQL connector.
A payload is a JSON object, complete in itself:

    {"v": 1, "x": "<transaction id>", "k": [[<value>, …], …]}   these keys changed
    {"v": 1, "x": "<transaction id>", "all": true}              any row may have changed
    {"v": 1, "t": <ms since the epoch>}                         a heartbeat

The transaction id is a decimal text of up to 64 bits, as of `pg_current_xact_id()`. Values have the
forms of `to_jsonb`: dates and times are texts, bytea is hexadecimal after a backslash and an x.
"""

import base64
import re
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.change_decoder import Decoded, JsonLoads
from lookup_core.changelog.gathered_changes import (
    ChangeKind,
    GatheredChanges,
    Values,
    refuse_unnameable,
)
from lookup_core.changelog.json_column import UNUSABLE, JsonDocuments, exact_json
from lookup_core.changelog.key_readings import Forms
from lookup_core.dimension_schema import DimensionSchema

_VERSION = 1
_DIGITS = re.compile(r"[0-9]{1,20}")
# Of a payload. PostgreSQL's limit is 8,000 in the encoding of the database, which may be shorter.
_MAX_BYTES = 24_000


class NotificationDecoder:
    """Decodes the payloads of one dimension's channel; keeps none of them.

    Raises InvalidRequest (`key_type`) for a key type that JSON cannot state exactly.
    """

    def __init__(self, schema: DimensionSchema, *, loads: JsonLoads) -> None:
        refuse_unnameable(schema)
        self._schema = schema
        # Of a domain over numeric, keys are numbers; the other parser would round them.
        has_decimals = any(types.is_decimal(field.type) for field in schema.key)
        self._documents = JsonDocuments(exact_json if has_decimals else loads, _MAX_BYTES)

    def decode(self, payloads: Sequence[str]) -> Decoded:
        """Decode payloads in their order; never raises.

        An undecodable payload yields a TableChange at its position, and a fault.
        """
        gathered = GatheredChanges(self._schema, with_rows=False, rewrite=_plain_json)
        return gathered.decode(payloads, partial(self._read, gathered))

    def _read(self, gathered: GatheredChanges, payload: str) -> None:
        notification = self._documents.read(payload.encode())
        if not isinstance(notification, dict) or notification.get("v") != _VERSION:
            raise ValueError("not a notification of version 1")
        if "t" in notification:
            gathered.note_time(notification["t"])
            gathered.ignored += 1
            return
        transaction_id = _transaction_id(notification.get("x"))
        if notification.get("all") is True:
            gathered.add_table("more rows changed than notifications list", transaction_id)
            return
        for key in self._keys(notification.get("k")):
            gathered.add(key, ChangeKind.UNKNOWN, transaction_id=transaction_id)

    def _keys(self, keys: object) -> list[Values]:
        names = self._schema.key.names
        if not isinstance(keys, list) or not all(_has_size(key, len(names)) for key in keys):
            raise ValueError("a key does not have the dimension's key columns")
        return [dict(zip(names, key, strict=True)) for key in keys]


def _has_size(key: object, size: int) -> bool:
    return isinstance(key, list) and len(key) == size


def _transaction_id(text: object) -> int:
    if not isinstance(text, str) or not _DIGITS.fullmatch(text):
        raise ValueError("the transaction id is missing or malformed")
    return int(text)


def _plain_json(
    values: Sequence[object], _forms: Sequence[Forms], field: pa.Field
) -> Sequence[object]:
    if types.is_binary(field.type):
        return [_bytes(value) for value in values]
    return values


def _bytes(value: object) -> object:
    if not isinstance(value, str) or not value.startswith("\\x"):
        return None if value is None else UNUSABLE
    try:
        return base64.b64encode(bytes.fromhex(value[2:])).decode()
    except ValueError:
        return UNUSABLE
