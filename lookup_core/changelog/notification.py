"""What a notification says: which keys of a table have changed, or that any may have.

Only what is in one; who sends it is SQL, who hears it an adapter. The payload is a JSON object:

    {"v": 1, "x": "<transaction id>", "k": [[<value>, …], …]}   these keys, in the key's order
    {"v": 1, "x": "<transaction id>", "all": true}              any row
    {"v": 1, "t": <ms since the epoch>}                         nothing; a sign of life

The transaction id is a text of up to 64 bits, as `pg_current_xact_id()` writes it. Values are as
`to_jsonb` writes them: numbers, texts, dates and times as texts, bytea as hexadecimal digits behind
a backslash and an x. Each payload stands alone, so that many keys are sent in several.
"""

import base64
import re
from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.change_decoder import Decoded, JsonLoads
from lookup_core.changelog.gathered_changes import (
    Forms,
    GatheredChanges,
    Told,
    Values,
    refuse_unnameable,
)
from lookup_core.changelog.json_column import UNUSABLE, JsonDocuments
from lookup_core.dimension_schema import DimensionSchema

_VERSION = 1
_DIGITS = re.compile(r"[0-9]{1,20}")
_LONGEST_BYTES = 8_000  # of a payload; PostgreSQL's own limit
_EXACT_DIGITS = 15  # so many of any number survive a double, in which JSON's numbers are read


class NotificationDecoder:
    """Decodes payloads of one dimension's channel; remembers none of them.

    Raises InvalidRequest (`key_type`) for a key that JSON cannot name.
    """

    def __init__(self, schema: DimensionSchema, *, loads: JsonLoads) -> None:
        refuse_unnameable(schema)
        self._schema = schema
        self._documents = JsonDocuments(loads, _LONGEST_BYTES)

    def decode(self, payloads: Sequence[str]) -> Decoded:
        """What they say, in their order; never raises.

        Whatever cannot be decoded is a TableChange at its place, and stands in `faults`.
        """
        gathered = GatheredChanges(self._schema, with_rows=False, rewrite=_plain_json)
        for gathered.position, payload in enumerate(payloads):
            try:
                self._read(payload, gathered)
            except ValueError as error:
                gathered.add_fault(str(error))
        return gathered.decoded()

    def _read(self, payload: str, gathered: GatheredChanges) -> None:
        notification = self._documents.read(payload.encode())
        if not isinstance(notification, dict) or notification.get("v") != _VERSION:
            raise ValueError("it is no notification of a version that is known here")
        if "t" in notification:
            gathered.note_time(notification["t"])
            gathered.ignored += 1
            return
        transaction_id = _transaction_id(notification.get("x"))
        if notification.get("all") is True:
            gathered.add_table("more rows were changed than are told one by one", transaction_id)
            return
        for key in self._keys(notification.get("k")):
            gathered.add(key, Told.NOTHING, transaction_id=transaction_id)

    def _keys(self, keys: object) -> list[Values]:
        names = self._schema.key.names
        if not isinstance(keys, list) or any(
            not isinstance(key, list) or len(key) != len(names) for key in keys
        ):
            raise ValueError("its keys are not those of the dimension")
        return [dict(zip(names, key, strict=True)) for key in keys]


def _transaction_id(text: object) -> int:
    if not isinstance(text, str) or not _DIGITS.fullmatch(text):
        raise ValueError("it has no transaction id")
    return int(text)


def _plain_json(
    values: Sequence[object], _forms: Sequence[Forms], field: pa.Field
) -> Sequence[object]:
    if types.is_decimal(field.type):
        return [_decimal(value, field.type.precision) for value in values]
    if types.is_binary(field.type):
        return [_bytes(value) for value in values]
    return values


def _decimal(value: object, precision: int) -> object:
    if not isinstance(value, float):
        return value
    return repr(value) if precision <= _EXACT_DIGITS else UNUSABLE


def _bytes(value: object) -> object:
    if not isinstance(value, str) or not value.startswith("\\x"):
        return None if value is None else UNUSABLE
    try:
        return base64.b64encode(bytes.fromhex(value[2:])).decode()
    except ValueError:
        return UNUSABLE
