"""PostgreSQL table as the catalog describes it, and its types as Arrow types."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from lookup_core.dimension_schema import DimensionSchema, TableOrigin, VersionColumns
from lookup_core.keys.key_casts import NO_NUL_FIELD, UUID_FIELD
from lookup_core.operator.as_of import is_moment

_MOST_DIGITS = 38  # of a decimal128, and of Spark


@dataclass(frozen=True, slots=True)
class PostgresType:
    """A column's type, domains resolved to what they are made of."""

    name: str  # of the catalog: int4, varchar, …
    is_builtin: bool  # in pg_catalog; an extension's type may have any name
    modifier: int = -1  # precision and the like, -1 if there is none
    has_exact_equality: bool = True  # false under a nondeterministic collation


@dataclass(frozen=True, slots=True)
class ColumnReading:
    """How a column is read: the Arrow type, and the SQL that gives values of it.

    Values of any length can be sent as bytes, by a function that takes no others.
    """

    type: pa.DataType
    expression: Callable[[str], str]  # from the quoted name of the column
    to_bytes: Callable[[str], str] | None = None  # from such a value


@dataclass(frozen=True, slots=True)
class KeySending:
    """How a key column is asked for: its field in the schema, and the type of the array.

    Times go as ISO 8601 texts: asyncpg takes the last moment of Python's calendar, which tables
    use for "for ever", for `infinity`. Integers go as one text, the array as PostgreSQL writes it:
    asyncpg takes longer for the elements of a list than the server does to read them.
    """

    field: pa.Field
    sql_type: str  # of the elements; the exact type of the column, else no index would be used

    def array(self, number: int) -> str:
        """The SQL of the array that is the query's argument of this number."""
        return f"${number}::{self._cast_from}{self.sql_type}[]"

    @property
    def _cast_from(self) -> str:
        if types.is_integer(self.field.type):
            return "text::"
        return "text[]::" if types.is_temporal(self.field.type) else ""


def column_reading(kind: PostgresType) -> ColumnReading:
    """How columns of the type are read; there is a way for each type."""
    decimal = _decimal(kind)
    if decimal is not None:
        return ColumnReading(decimal, lambda name: f"NULLIF({name}, numeric 'NaN')", _digits)
    return (_COLUMNS.get(kind.name) if kind.is_builtin else None) or _AS_TEXT


def key_sending(name: str, kind: PostgresType) -> KeySending | str:
    """How keys of the type are sent, or the reason why the type cannot be a key."""
    if not kind.has_exact_equality:
        return "its collation calls different texts equal"
    decimal = _decimal(kind)
    if decimal is not None:
        return KeySending(pa.field(name, decimal), "numeric")
    if not kind.is_builtin or kind.name not in _KEYS:
        return f"{kind.name} {_KEY_REFUSALS.get(kind.name, 'cannot be a key')}"
    arrow, sql_type, metadata = _KEYS[kind.name]
    return KeySending(pa.field(name, arrow, metadata=metadata), sql_type)


def _decimal(kind: PostgresType) -> pa.DataType | None:
    """The exact Arrow type of a numeric(precision, scale), None for others."""
    if kind.name != "numeric" or not kind.is_builtin or kind.modifier < 0:
        return None
    packed = kind.modifier - 4  # VARHDRSZ; then precision in the high half, scale in 11 bits
    precision, scale = packed >> 16 & 0xFFFF, packed & 0x7FF
    fits = precision <= _MOST_DIGITS and scale <= precision  # a negative scale is a big number here
    return pa.decimal128(precision, scale) if fits else None


def _plain(name: str) -> str:
    return name


def _between(kind: str, first: str, last: str) -> Callable[[str], str]:
    limits = f"{kind} '{first}' AND {kind} '{last}'"
    return lambda name: f"CASE WHEN {name} BETWEEN {limits} THEN {name} END"


def _sent_by(function: str) -> Callable[[str], str]:
    return lambda value: f"{function}({value})"


def _digits(value: str) -> str:
    return f"textsend(numeric_out({value})::text)"


_AS_TEXT = ColumnReading(pa.utf8(), lambda name: f"{name}::text", _sent_by("textsend"))
_TEXT = ColumnReading(pa.utf8(), _plain, _sent_by("textsend"))
_COLUMNS = {
    "int2": ColumnReading(pa.int16(), _plain),
    "int4": ColumnReading(pa.int32(), _plain),
    "int8": ColumnReading(pa.int64(), _plain),
    "float4": ColumnReading(pa.float32(), _plain),
    "float8": ColumnReading(pa.float64(), _plain),
    "bool": ColumnReading(pa.bool_(), _plain),
    "text": _TEXT,
    "varchar": _TEXT,
    # Padded, as any client sees it.
    "bpchar": ColumnReading(pa.utf8(), _plain, _sent_by("bpcharsend")),
    "bytea": ColumnReading(pa.binary(), _plain, _sent_by("byteasend")),
    "date": ColumnReading(pa.date32(), _between("date", "0001-01-01", "9999-12-31")),
    "timestamp": ColumnReading(
        pa.timestamp("us"), _between("timestamp", "0001-01-01", "9999-12-31 23:59:59.999999")
    ),
    "timestamptz": ColumnReading(
        pa.timestamp("us", "UTC"),
        _between("timestamptz", "0001-01-01 00:00+00", "9999-12-31 23:59:59.999999+00"),
    ),
}
# {type: Arrow type of the key, element type of the array, metadata of the field}
_KEYS: dict[str, tuple[pa.DataType, str, dict[bytes, bytes] | None]] = {
    "int2": (pa.int16(), "int2", None),
    "int4": (pa.int32(), "int4", None),
    "int8": (pa.int64(), "int8", None),
    "bool": (pa.bool_(), "bool", None),
    "text": (pa.utf8(), "text", NO_NUL_FIELD),
    "varchar": (pa.utf8(), "text", NO_NUL_FIELD),
    "bytea": (pa.binary(), "bytea", None),
    "uuid": (pa.binary(16), "uuid", UUID_FIELD),
    "date": (pa.date32(), "date", None),
    "timestamp": (pa.timestamp("us"), "timestamp", None),
    "timestamptz": (pa.timestamp("us", "UTC"), "timestamptz", None),
}
_KEY_REFUSALS = {
    "bpchar": "cannot be a key: char(n) ignores blanks at the end; use varchar or text",
    "citext": "cannot be a key: it ignores case; use text",
    "float4": "cannot be a key: floating point is equal by accident only",
    "float8": "cannot be a key: floating point is equal by accident only",
    "numeric": "cannot be a key without a precision up to 38 and a scale within it",
}


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """Names as the catalog has them; how each key column is sent, and each column is read."""

    schema_name: str
    name: str
    keys: tuple[tuple[str, KeySending], ...]  # in the order of the configuration
    columns: tuple[tuple[str, ColumnReading], ...]
    table_id: int = 0  # its oid
    primary_key: tuple[str, ...] = ()  # its columns, if there is one that may be read
    tells_rows: bool = False  # see `postgres_told_rows`
    has_full_identity: bool = False  # REPLICA IDENTITY FULL
    versions: VersionColumns | None = None  # those that are valid at no time are left out

    @property
    def schema(self) -> DimensionSchema:
        """What the dimension looks like to everybody else."""
        return DimensionSchema(
            key=pa.schema([sending.field for _, sending in self.keys]),
            columns=pa.schema([pa.field(name, reading.type) for name, reading in self.columns]),
            origin=TableOrigin(
                self.schema_name,
                self.name,
                table_id=self.table_id,
                tells_rows=self.tells_rows,
                has_full_identity=self.has_full_identity,
            ),
        )

    @property
    def order(self) -> tuple[str, ...]:
        """The terms in SQL by which its rows (as `t`) have an order, the same at each query."""
        # Where a row stands is no order for ever, but there is no other without a primary key.
        return tuple(f"t.{quoted(name)}" for name in self.primary_key) or ("t.ctid",)

    @property
    def conditions(self) -> tuple[str, ...]:
        """What its rows (as `t`) must fulfil in SQL, whatever they are asked for.

        A time that is too far away is read as null, which says "from ever" and "for ever": not so
        what begins at `infinity`, or has ended at `-infinity`.
        """
        readings = dict(self.columns)
        names = () if self.versions is None else self.versions.names
        return tuple(
            _is_within_reach(name, readings[name], sign)
            for name, sign in zip(names, "><", strict=False)
            if name in readings and is_moment(readings[name].type)
        )


def _is_within_reach(name: str, reading: ColumnReading, sign: str) -> str:
    column = f"t.{quoted(name)}"
    return f"({reading.expression(column)} IS NULL AND {column} {sign} 'epoch') IS NOT TRUE"


def quoted(identifier: str) -> str:
    """The name as SQL reads it back unchanged, whatever its characters."""
    escaped = identifier.replace('"', '""')
    return f'"{escaped}"'
