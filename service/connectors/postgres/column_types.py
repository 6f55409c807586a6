"""Types of PostgreSQL columns as Arrow types: how a column is read, and how a key is sent."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyarrow import types

from lookup_core.keys.typed_keys import NO_BLANKS_FIELD, NO_NUL_FIELD, UUID_FIELD
from lookup_core.type_texts import type_text
from service.connectors.postgres.column_values import (
    Attributes,
    Decode,
    DecodedColumn,
    checked_text,
    exact_decimals,
    is_readable_as,
    listed_attributes,
    lists_of_arrays,
    parsed_json,
)
from service.connectors.postgres.sessions import CatalogRow

MAX_NAME_BYTES = 63  # PostgreSQL truncates longer names
_MAX_DECIMAL_DIGITS = 38  # in Arrow's decimal128, and in Spark
_SHORT_TEXT_BYTES = 32
_SHORT_TEXTS = frozenset(
    {"uuid", "name", "interval", "time", "timetz", "money", "pg_lsn", "point"}
    | {"inet", "cidr", "macaddr", "macaddr8"}
)
# Keys have the Arrow type of columns, but uuids are bytes, and char(n) has no trailing blanks.
_KEY_TYPES = frozenset(
    {"int2", "int4", "int8", "bool", "text", "varchar", "bpchar", "bytea", "uuid"}
    | {"date", "timestamp", "timestamptz", "enum", "citext"}
)
_KEY_REFUSALS = {
    "float4": "cannot be a key: floating point has no exact equality; use another column",
    "float8": "cannot be a key: floating point has no exact equality; use another column",
    "numeric": "cannot be a key; use numeric(p,s) with p of at most 38 and s of at most p",
}
# The labels of the texts $number in their order. A label that the enum lacks is NULL, which matches
# no row; a cast of the text would fail the query.
_LABELS = (
    "ARRAY(SELECT l.label FROM pg_catalog.unnest(${number}::text[]) WITH ORDINALITY AS s (text, at)"
    " LEFT JOIN pg_catalog.unnest(pg_catalog.enum_range(NULL::{sql_type})) AS l (label)"
    " ON pg_catalog.concat(l.label) = s.text ORDER BY s.at)"
)


def quoted(identifier: str) -> str:
    """The name as a quoted SQL identifier."""
    escaped = identifier.replace('"', '""')
    return f'"{escaped}"'


@dataclass(frozen=True, slots=True)
class PostgresType:
    """Type of a column; a domain is resolved to its base type."""

    name: str  # as in the catalog: int4, varchar, …
    is_builtin: bool  # in pg_catalog; an extension's type may have any name
    modifier: int = -1  # precision and the like; -1: none
    has_exact_equality: bool = True  # false under a nondeterministic collation
    is_array: bool = False  # whose elements have the type
    is_enum: bool = False
    schema_name: str = "pg_catalog"
    attributes: Attributes = field(default_factory=dict)  # empty unless it is a composite type

    @classmethod
    def of_column(cls, column: CatalogRow) -> "PostgresType":
        """The type of a column as the catalog describes it."""
        attributes: dict[str, Any] = {}
        # Shorter paths come first.
        for *outer, name, is_document in json.loads(column["attributes"] or "[]"):
            within = attributes
            for each in outer:
                within = within[each]
            within[name] = None if is_document == "true" else {}
        names = ("is_builtin", "modifier", "has_exact_equality", "is_array", "is_enum")
        return cls(
            column["type_name"],
            schema_name=column["type_schema"],
            attributes=attributes,
            **{name: column[name] for name in names},
        )

    @property
    def sql_name(self) -> str:
        """Schema and name, quoted, without the modifier."""
        return f"{quoted(self.schema_name)}.{quoted(self.name)}"

    @property
    def base_name(self) -> str:
        """The name of a builtin type; `enum`, `citext` or `other` for others."""
        if self.is_builtin:
            return self.name
        return "enum" if self.is_enum else "citext" if self.name == "citext" else "other"

    @property
    def is_numeric(self) -> bool:
        """Whether it is numeric, with or without precision."""
        return self.base_name == "numeric"

    @property
    def is_document(self) -> bool:
        """Whether its values are JSON documents."""
        return self.base_name in {"json", "jsonb"}


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """How a column is read: its Arrow type, and the SQL expression of its values."""

    type: pa.DataType
    expression: Callable[[str], str] = str  # from the column's quoted name; `str`: the name
    to_bytes: Callable[[str], str] | None = None  # from such a value, if its length varies
    decode: Decode | None = None  # from the values as they are sent
    sent_type: pa.DataType | None = None  # before `decode`; None: the type
    is_short: bool = False  # a text of at most some dozen bytes

    @property
    def sent(self) -> pa.DataType:
        """The Arrow type of the values that the expression yields."""
        return self.type if self.sent_type is None else self.sent_type

    @property
    def may_be_large(self) -> bool:
        """Whether its values have no small bound of their bytes."""
        has_any_length = types.is_string(self.sent) or types.is_binary(self.sent)
        return has_any_length and not self.is_short

    @property
    def fixed_bytes(self) -> int:
        """The bytes of each value that may not be large, roughly."""
        return _SHORT_TEXT_BYTES if self.is_short else (self.type.bit_width + 7) // 8


@dataclass(frozen=True, slots=True)
class KeySending:
    """How a key column is sent: its field in the schema, and the SQL type of the array.

    Times are sent as ISO 8601 texts, because asyncpg turns the last moment of Python's calendar
    into `infinity`. Integers are sent as one array literal, because asyncpg encodes lists slowly.
    """

    field: pa.Field
    sql_type: str  # exactly that of the column, else no index is used
    is_enum: bool = False
    equals: str = "="  # the operator
    has_exact_equality: bool = True  # false: different texts may be equal to the database

    def column(self, name: str) -> str:
        """The SQL expression of the key column of a row `t`, for comparisons."""
        # A domain has no operators of its enum.
        return f"t.{quoted(name)}::{self.sql_type}" if self.is_enum else f"t.{quoted(name)}"

    @property
    def reading(self) -> ColumnReading:
        """How values of the key column are read, in the type of keys."""
        if self.field.metadata == UUID_FIELD:
            return _UUID
        if types.is_string(self.field.type):
            return LABEL if self.is_enum else AS_TEXT  # char(n) has no trailing blanks then
        kind, modifier = self.field.type, -1
        if types.is_decimal(kind):
            modifier = (kind.precision << 16 | kind.scale) + 4  # as in the catalog
        return column_reading(PostgresType(self.sql_type, is_builtin=True, modifier=modifier))

    def array(self, number: int) -> str:
        """The SQL expression of the query's argument with this number."""
        if self.is_enum:
            return _LABELS.format(number=number, sql_type=self.sql_type)
        sent = "text::" if types.is_integer(self.field.type) else ""
        is_text = types.is_temporal(self.field.type) or types.is_string(self.field.type)
        sent = "text[]::" if is_text and self.sql_type != "text" else sent
        return f"${number}::{sent}{self.sql_type}[]"


def column_reading(kind: PostgresType) -> ColumnReading:
    """How columns of the type are read: in an exact Arrow type, or as text."""
    if kind.is_array:
        return _array_reading(kind, column_reading(replace(kind, is_array=False)).type)
    decimal = _decimal(kind)
    if decimal is not None:
        return ColumnReading(
            decimal,
            lambda name: f"NULLIF({name}, numeric 'NaN')",
            lambda value: f"pg_catalog.textsend(pg_catalog.numeric_out({value})::text)",
        )
    return _COLUMNS.get(kind.base_name, _SHORT if kind.base_name in _SHORT_TEXTS else AS_TEXT)


def requested_reading(kind: PostgresType, wanted: pa.DataType) -> ColumnReading | str:
    """How columns of the type are read as another one, or the reason why they cannot be."""
    usual = column_reading(kind)
    if wanted == usual.type:
        return usual
    if types.is_string(wanted):
        return AS_TEXT
    found = _requested_reading(kind, wanted)
    if found is not None:
        return found
    more: Sequence[str] = ("decimal(p,s)",) if kind.is_numeric else ()
    more = ("struct<…>", "array<…>") if kind.is_document else more
    composite = f"struct<…> of {listed_attributes(kind.attributes)} (bytea as string)"
    more = (composite,) if kind.attributes else more
    more = [f"array<{form}>" for form in ("string", *more)] if kind.is_array else more
    return f"can be read as {', '.join(dict.fromkeys((type_text(usual.type), 'string', *more)))}"


def _requested_reading(kind: PostgresType, wanted: pa.DataType) -> ColumnReading | None:
    if kind.is_array:
        element = wanted.value_type if types.is_list(wanted) else pa.null()
        if types.is_string(element) or (kind.is_numeric and types.is_decimal(element)):
            return _array_reading(kind, element)
        is_readable = _requested_reading(replace(kind, is_array=False), element) is not None
        return _json_reading(wanted, "pg_catalog.to_json({})::text", kind) if is_readable else None
    if kind.is_numeric and types.is_decimal(wanted):
        decode = partial(exact_decimals, kind=wanted)
        return replace(AS_TEXT, type=wanted, decode=decode, sent_type=pa.utf8())
    if kind.is_document and types.is_nested(wanted):
        return _json_reading(wanted, "{}::text", kind)
    if kind.attributes and types.is_struct(wanted):
        is_readable = is_readable_as(wanted, kind.attributes)
        return _json_reading(wanted, "pg_catalog.to_json({})::text", kind) if is_readable else None
    return None


def key_sending(name: str, kind: PostgresType) -> KeySending | str:
    """How keys of the type are sent, or the reason why the type cannot be a key."""
    decimal = None if kind.is_array else _decimal(kind)
    if decimal is not None:
        return KeySending(pa.field(name, decimal), "numeric")
    if kind.is_array or kind.base_name not in _KEY_TYPES:
        refusal = _KEY_REFUSALS.get(kind.base_name, "cannot be a key; use another column")
        return f"{kind.name}{'[]' if kind.is_array else ''} {refusal}"
    if kind.base_name == "uuid":
        return KeySending(pa.field(name, pa.binary(16), metadata=UUID_FIELD), "uuid")
    field = pa.field(name, pa.utf8(), metadata=NO_NUL_FIELD)
    match kind.base_name:
        case "enum":
            sending = KeySending(field, kind.sql_name, is_enum=True)
        case "citext":
            equals = f"OPERATOR({quoted(kind.schema_name)}.=)"
            sending = KeySending(field, kind.sql_name, equals=equals, has_exact_equality=False)
        case "bpchar":
            sending = KeySending(field.with_metadata(NO_BLANKS_FIELD), "bpchar")
        case "text" | "varchar":
            sending = KeySending(field, "text")
        case other:
            sending = KeySending(pa.field(name, _COLUMNS[other].type), other)
    return sending if kind.has_exact_equality else replace(sending, has_exact_equality=False)


def _array_reading(kind: PostgresType, element: pa.DataType) -> ColumnReading:
    """Arrays as lists, in PostgreSQL's binary form; elements are cast to a builtin type."""
    is_cast = types.is_decimal(element) or kind.base_name not in _COLUMNS
    is_text = is_cast or (types.is_string(element) and kind.base_name != "bpchar")
    sql_type = "text" if is_text else kind.name

    def decode_elements(values: pa.BinaryArray) -> DecodedColumn:
        if types.is_binary(element):
            return DecodedColumn(values)
        texts = checked_text(values)
        return exact_decimals(texts, element) if types.is_decimal(element) else DecodedColumn(texts)

    return ColumnReading(
        pa.list_(element),
        lambda name: f"pg_catalog.array_send({name}::{sql_type}[])",
        str,
        partial(lists_of_arrays, element=element, decode=decode_elements),
        pa.binary(),
    )


def _json_reading(wanted: pa.DataType, expression: str, kind: PostgresType) -> ColumnReading:
    return ColumnReading(
        wanted,
        expression.format,
        _sent_by("textsend"),
        partial(parsed_json, kind=wanted, attributes=kind.attributes or None),
        pa.utf8(),
    )


def _decimal(kind: PostgresType) -> pa.DataType | None:
    """The exact Arrow type of a numeric(precision, scale), None for other types."""
    if not kind.is_numeric or kind.modifier < 0:
        return None
    packed = kind.modifier - 4  # VARHDRSZ; then precision in the high half, scale in 11 bits
    precision, scale = packed >> 16 & 0xFFFF, packed & 0x7FF
    fits = (
        precision <= _MAX_DECIMAL_DIGITS and scale <= precision
    )  # a negative scale is a large number
    return pa.decimal128(precision, scale) if fits else None


def _between(kind: str, first: str, last: str) -> Callable[[str], str]:
    limits = f"{kind} '{first}' AND {kind} '{last}'"
    return lambda name: f"CASE WHEN {name} BETWEEN {limits} THEN {name} END"


def _sent_by(function: str) -> Callable[[str], str]:
    return lambda value: f"pg_catalog.{function}({value})"


def output_of(value: str) -> str:
    """The text of a value that is not NULL, also if its type has a cast to text."""
    return f"pg_catalog.concat({value})"


AS_TEXT = ColumnReading(pa.utf8(), lambda name: f"{name}::text", _sent_by("textsend"))
_SHORT = replace(AS_TEXT, is_short=True)
LABEL = replace(
    _SHORT, expression=lambda name: f"CASE WHEN {name} IS NOT NULL THEN {output_of(name)} END"
)
_UUID = ColumnReading(
    pa.binary(), to_bytes=lambda value: f"pg_catalog.uuid_send({value})", is_short=True
)
_TEXT = ColumnReading(pa.utf8(), to_bytes=_sent_by("textsend"))
_COLUMNS = {
    "int2": ColumnReading(pa.int16()),
    "int4": ColumnReading(pa.int32()),
    "int8": ColumnReading(pa.int64()),
    "float4": ColumnReading(pa.float32()),
    "float8": ColumnReading(pa.float64()),
    "bool": ColumnReading(pa.bool_()),
    "enum": LABEL,
    "text": _TEXT,
    "varchar": _TEXT,
    "bpchar": ColumnReading(pa.utf8(), to_bytes=_sent_by("bpcharsend")),  # padded with blanks
    "bytea": ColumnReading(pa.binary(), to_bytes=_sent_by("byteasend")),
    "date": ColumnReading(pa.date32(), _between("date", "0001-01-01", "9999-12-31")),
    "timestamp": ColumnReading(
        pa.timestamp("us"), _between("timestamp", "0001-01-01", "9999-12-31 23:59:59.999999")
    ),
    "timestamptz": ColumnReading(
        pa.timestamp("us", "UTC"),
        _between("timestamptz", "0001-01-01 00:00+00", "9999-12-31 23:59:59.999999+00"),
    ),
}
