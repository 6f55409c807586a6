"""PostgreSQL table as the catalog describes it, with its types as Arrow types."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema, TableOrigin, VersionColumns
from lookup_core.keys.key_casts import NO_NUL_FIELD, UUID_FIELD
from lookup_core.operator.as_of import is_moment

MAX_NAME_BYTES = 63  # PostgreSQL truncates longer names
_MAX_DIGITS = 38  # of a decimal128, and of Spark


@dataclass(frozen=True, slots=True)
class PostgresType:
    """Type of a column; a domain is resolved to its base type."""

    name: str  # of the catalog: int4, varchar, …
    is_builtin: bool  # in pg_catalog; an extension's type may have any name
    modifier: int = -1  # precision and the like; -1: none
    has_exact_equality: bool = True  # false under a nondeterministic collation


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """How a column is read: its Arrow type, and the SQL expression of its values."""

    type: pa.DataType
    expression: Callable[[str], str] = str  # from the column's quoted name; `str`: the name
    to_bytes: Callable[[str], str] | None = None  # from such a value, if its length varies


@dataclass(frozen=True, slots=True)
class KeySending:
    """How a key column is sent: its field in the schema, and the SQL type of the array.

    Times are sent as ISO 8601 texts, because asyncpg turns the last moment of Python's calendar
    into `infinity`. Integers are sent as one array literal, because asyncpg encodes lists slowly.
    """

    field: pa.Field
    sql_type: str  # of the elements; the exact type of the column, else no index is used

    def array(self, number: int) -> str:
        """The SQL expression of the query's argument with this number."""
        sent = "text::" if types.is_integer(self.field.type) else ""
        sent = "text[]::" if types.is_temporal(self.field.type) else sent
        return f"${number}::{sent}{self.sql_type}[]"


def column_reading(kind: PostgresType) -> ColumnReading:
    """How columns of the type are read: in an exact Arrow type, or as text."""
    decimal = _decimal(kind)
    if decimal is not None:
        return ColumnReading(
            decimal,
            lambda name: f"NULLIF({name}, numeric 'NaN')",
            lambda value: f"textsend(numeric_out({value})::text)",
        )
    return (_COLUMNS.get(kind.name) if kind.is_builtin else None) or _AS_TEXT


def key_sending(name: str, kind: PostgresType) -> KeySending | str:
    """How keys of the type are sent, or the reason why the type cannot be a key."""
    if not kind.has_exact_equality:
        return "its collation treats different texts as equal; use one that is deterministic"
    decimal = _decimal(kind)
    if decimal is not None:
        return KeySending(pa.field(name, decimal), "numeric")
    if not kind.is_builtin or kind.name not in _KEY_TYPES:
        return f"{kind.name} {_KEY_REFUSALS.get(kind.name, 'cannot be a key; use another column')}"
    if kind.name == "uuid":
        return KeySending(pa.field(name, pa.binary(16), metadata=UUID_FIELD), "uuid")
    if kind.name in {"text", "varchar"}:
        return KeySending(pa.field(name, pa.utf8(), metadata=NO_NUL_FIELD), "text")
    return KeySending(pa.field(name, _COLUMNS[kind.name].type), kind.name)


def _decimal(kind: PostgresType) -> pa.DataType | None:
    """The exact Arrow type of a numeric(precision, scale), None for other types."""
    if kind.name != "numeric" or not kind.is_builtin or kind.modifier < 0:
        return None
    packed = kind.modifier - 4  # VARHDRSZ; then precision in the high half, scale in 11 bits
    precision, scale = packed >> 16 & 0xFFFF, packed & 0x7FF
    fits = precision <= _MAX_DIGITS and scale <= precision  # a negative scale is a large number
    return pa.decimal128(precision, scale) if fits else None


def _between(kind: str, first: str, last: str) -> Callable[[str], str]:
    limits = f"{kind} '{first}' AND {kind} '{last}'"
    return lambda name: f"CASE WHEN {name} BETWEEN {limits} THEN {name} END"


def _sent_by(function: str) -> Callable[[str], str]:
    return lambda value: f"{function}({value})"


_AS_TEXT = ColumnReading(pa.utf8(), lambda name: f"{name}::text", _sent_by("textsend"))
_TEXT = ColumnReading(pa.utf8(), to_bytes=_sent_by("textsend"))
_COLUMNS = {
    "int2": ColumnReading(pa.int16()),
    "int4": ColumnReading(pa.int32()),
    "int8": ColumnReading(pa.int64()),
    "float4": ColumnReading(pa.float32()),
    "float8": ColumnReading(pa.float64()),
    "bool": ColumnReading(pa.bool_()),
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
# Types with exact equality; keys have the Arrow type of columns, but uuids are bytes.
_KEY_TYPES = frozenset(
    {"int2", "int4", "int8", "bool", "text", "varchar", "bytea", "uuid"}
    | {"date", "timestamp", "timestamptz"}
)
_KEY_REFUSALS = {
    "bpchar": "cannot be a key: char(n) ignores trailing blanks; use varchar or text",
    "citext": "cannot be a key: it ignores case; use text",
    "float4": "cannot be a key: floating point has no exact equality; use another column",
    "float8": "cannot be a key: floating point has no exact equality; use another column",
    "numeric": "cannot be a key; use numeric(p,s) with p of at most 38 and s of at most p",
}


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """Table with its names in the catalog, its key columns and its other columns."""

    schema_name: str
    name: str
    keys: tuple[tuple[str, KeySending], ...]  # in the order of the configuration
    columns: tuple[tuple[str, ColumnReading], ...]
    table_id: int = 0  # oid
    primary_key: tuple[str, ...] = ()  # empty if there is none that may be read
    reports_rows: bool = False  # rows of its changelog equal queried rows; see the catalog
    has_full_identity: bool = False  # REPLICA IDENTITY FULL
    versions: VersionColumns | None = None

    @property
    def sql_name(self) -> str:
        """Schema and name, quoted."""
        return f"{quoted(self.schema_name)}.{quoted(self.name)}"

    @property
    def schema(self) -> DimensionSchema:
        """The schema of the dimension."""
        return DimensionSchema(
            key=pa.schema([sending.field for _, sending in self.keys]),
            columns=pa.schema([pa.field(name, reading.type) for name, reading in self.columns]),
            origin=TableOrigin(
                self.schema_name,
                self.name,
                table_id=self.table_id,
                reports_rows=self.reports_rows,
                has_full_identity=self.has_full_identity,
            ),
        )

    @property
    def order(self) -> tuple[str, ...]:
        """SQL terms that sort its rows `t` in the same order at each query."""
        # Without a primary key, the physical position is the only order; an update changes it.
        return tuple(f"t.{quoted(name)}" for name in self.primary_key) or ("t.ctid",)

    @property
    def conditions(self) -> tuple[str, ...]:
        """SQL conditions of its rows `t`, which exclude versions that are never valid.

        A validity bound beyond the calendar reads as NULL, which means unbounded. That is wrong
        for a version that begins at `infinity` or ended at `-infinity`.
        """
        terms, readings = [], dict(self.columns)
        names = () if self.versions is None else self.versions.names
        for name, sign in zip(names, "><", strict=False):
            if name in readings and is_moment(readings[name].type):
                column = f"t.{quoted(name)}"
                value = readings[name].expression(column)
                terms.append(f"({value} IS NULL AND {column} {sign} 'epoch') IS NOT TRUE")
        return tuple(terms)


def quoted(identifier: str) -> str:
    """The name as a quoted SQL identifier."""
    escaped = identifier.replace('"', '""')
    return f'"{escaped}"'
