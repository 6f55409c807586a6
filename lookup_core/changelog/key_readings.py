"""Key readings: all keys that a message's key may mean, if it does not have the type exactly.

Dropping too many keys is harmless, and dropping all rows is the last resort.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import types

from lookup_core.changelog.json_column import NO_JSON, JsonDocuments
from lookup_core.dimension_schema import DimensionSchema

# {column: the encoding of its values}, in terms of the format
Forms: TypeAlias = Mapping[str, Any]
# All values, in the forms of `json_keys`, that a key column of a message may mean.
ReadValue: TypeAlias = Callable[[object, Forms, pa.Field], Sequence[object]]

CONVERTER = "set key.converter=org.apache.kafka.connect.json.JsonConverter in the connector"
_STRUCTURED = ("{", "[", "Struct{")  # as StringConverter writes several fields
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}(\.0*)?")
_BOOLEANS = {"true": True, "false": False, "t": True, "f": False}
_MOST_READINGS_OF_KEY = 16
_EXACT_DIGITS = 15  # that a double preserves
# Values of PostgreSQL that no key can have, and that columns have as null: infinite moments, those
# outside of the years 1 to 9999, and numbers that are none. Forms of PostgreSQL, Java and Debezium.
_NO_MOMENT = re.compile(r"[+]?[0-9]{5,}-.*|-[0-9]{4,}-.*|0000-.*|.* BC|-?infinity")
_NO_NUMBERS = {"NaN", "Infinity", "-Infinity", "NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY"}


@dataclass(frozen=True, slots=True)
class PlainText:
    """A key as StringConverter writes it, not as JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class KeyDocuments:
    """Reads the keys of messages: JSON documents, or plain texts of keys with one column."""

    documents: JsonDocuments
    schema: DimensionSchema

    def read(self, content: bytes | None) -> object:
        """A JSON document, None for none, or a PlainText; raises ValueError with the remedy.

        A number, `true`, `false` or `null` is a plain text if the key is text; so is a fraction if
        the key is decimal.
        """
        if content is None:
            return None
        self.documents.check_size(content)
        try:
            document = self.documents.read(content)
        except ValueError:
            return self._plain(content, NO_JSON)
        return self._plain(content, "not a text") if self._is_plain(document) else document

    def _is_plain(self, document: object) -> bool:
        kind = self.schema.key.field(0).type
        if len(self.schema.key) > 1 or isinstance(document, str | dict | list):
            return False
        return types.is_string(kind) or (types.is_decimal(kind) and isinstance(document, float))

    def _plain(self, content: bytes, reason: str) -> PlainText:
        try:
            text = content.decode()
        except UnicodeError:
            text = ""
        is_plain = text.isprintable() and not text.startswith(_STRUCTURED)
        if len(self.schema.key) > 1 or not text or not is_plain:
            raise ValueError(f"the key is {reason}; {CONVERTER}")
        return PlainText(text)


def loose_readings(value: object, _forms: Forms, field: pa.Field) -> Sequence[object]:
    """The values that a text stands for, or a JSON value of another type; else the value."""
    if isinstance(value, PlainText):
        value = value.text
    if isinstance(value, str):
        return _of_text(value, field)
    if types.is_string(field.type) and isinstance(value, bool | int):
        return [str(value).lower()]
    if types.is_decimal(field.type):
        return decimal_of_number(value, field)
    return [int(value)] if isinstance(value, float) and value.is_integer() else [value]


def decimal_of_number(value: object, field: pa.Field) -> Sequence[object]:
    """The decimal of a JSON number, if a double has all of its digits."""
    if isinstance(value, float) and abs(value) >= 10.0 ** (_EXACT_DIGITS - field.type.scale):
        return []
    return [str(value)] if type(value) in {int, float} else []


def is_beyond_type(text: str, kind: pa.DataType) -> bool:
    """Whether a text is a value of PostgreSQL's type that the column has as null."""
    if types.is_decimal(kind):
        return text in _NO_NUMBERS
    is_moment = types.is_date(kind) or types.is_timestamp(kind)
    return is_moment and _NO_MOMENT.fullmatch(text) is not None


def _of_text(text: str, field: pa.Field) -> Sequence[object]:
    if is_beyond_type(text, field.type):
        return [None]
    if types.is_integer(field.type) and _INTEGER.fullmatch(text):
        return [int(text.partition(".")[0])]
    if types.is_boolean(field.type):
        return [_BOOLEANS.get(text.lower(), text)]
    return [] if types.is_binary(field.type) else [text]  # base64, hexadecimal or itself


def all_readings(
    values: Mapping[str, object], forms: Forms, key: pa.Schema, *, read: ReadValue
) -> Sequence[Sequence[object]]:
    """The keys that these values may mean; empty if they are too many."""
    columns = [read(values[field.name], forms, field) for field in key]
    return [*product(*columns)] if prod(map(len, columns)) <= _MOST_READINGS_OF_KEY else []
