"""How each type of PostgreSQL is read and sent, or why it cannot be a key."""

import pyarrow as pa
import pytest

from lookup_core.keys.key_casts import NO_NUL_FIELD, UUID_FIELD
from service.connectors.postgres.table import KeySending, PostgresType, column_reading, key_sending


def numeric(precision: int, scale: int) -> PostgresType:
    """A numeric with the modifier that the catalog has for it."""
    return PostgresType("numeric", is_builtin=True, modifier=(precision << 16 | scale & 0x7FF) + 4)


def builtin(name: str) -> PostgresType:
    """A type of pg_catalog without modifiers."""
    return PostgresType(name, is_builtin=True)


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("int2", pa.int16()),
        ("int4", pa.int32()),
        ("int8", pa.int64()),
        ("float4", pa.float32()),
        ("float8", pa.float64()),
        ("bool", pa.bool_()),
        ("text", pa.utf8()),
        ("varchar", pa.utf8()),
        ("bpchar", pa.utf8()),
        ("bytea", pa.binary()),
    ],
)
def test_plain_types_are_read_as_they_are(name: str, type_: pa.DataType) -> None:
    """A type with an exact twin in Arrow needs nothing done to it."""
    reading = column_reading(builtin(name))

    assert (reading.type, reading.expression('t."a"')) == (type_, 't."a"')


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us")),
        ("timestamptz", pa.timestamp("us", "UTC")),
    ],
)
def test_times_are_cut_to_their_years(name: str, type_: pa.DataType) -> None:
    """Dates and timestamps that Arrow or Python cannot hold are read as null."""
    reading = column_reading(builtin(name))

    assert reading.type == type_
    assert reading.expression("c").startswith(f"CASE WHEN c BETWEEN {name} '0001-01-01")
    assert reading.expression("c").endswith(" THEN c END")


@pytest.mark.parametrize(
    "kind",
    [
        *map(builtin, ("uuid", "json", "jsonb", "interval", "time", "inet", "_int4", "name")),
        builtin("numeric"),
        numeric(39, 0),
        numeric(5, -2),
        PostgresType("mood", is_builtin=False),
        PostgresType("text", is_builtin=False),
    ],
    ids=str,
)
def test_all_other_types_are_read_as_text(kind: PostgresType) -> None:
    """What Arrow has no exact type for comes as PostgreSQL writes it."""
    reading = column_reading(kind)

    assert (reading.type, reading.expression("c")) == (pa.utf8(), "c::text")


@pytest.mark.parametrize(
    ("kind", "sql"),
    [
        (builtin("text"), "textsend(c)"),
        (builtin("varchar"), "textsend(c)"),
        (builtin("bpchar"), "bpcharsend(c)"),
        (builtin("bytea"), "byteasend(c)"),
        (builtin("jsonb"), "textsend(c)"),
        (numeric(5, 2), "textsend(numeric_out(c)::text)"),
        (builtin("int4"), None),
        (builtin("date"), None),
    ],
    ids=str,
)
def test_values_of_any_length_become_bytes(kind: PostgresType, sql: str | None) -> None:
    """By functions that take no values of other types, so that a changed column is noticed."""
    to_bytes = column_reading(kind).to_bytes

    assert (None if to_bytes is None else to_bytes("c")) == sql


def test_numeric_with_precision_is_exact() -> None:
    """A numeric with up to 38 digits is a decimal; its NaN, which no decimal has, is null."""
    reading = column_reading(numeric(38, 9))

    assert reading.type == pa.decimal128(38, 9)
    assert reading.expression("c") == "NULLIF(c, numeric 'NaN')"


@pytest.mark.parametrize(
    ("name", "type_", "sql_type"),
    [
        ("int2", pa.int16(), "int2"),
        ("int4", pa.int32(), "int4"),
        ("int8", pa.int64(), "int8"),
        ("bool", pa.bool_(), "bool"),
        ("bytea", pa.binary(), "bytea"),
    ],
)
def test_keys_have_the_type_of_their_column(name: str, type_: pa.DataType, sql_type: str) -> None:
    """The array that is sent has the exact type of the column: only then its index is used."""
    assert key_sending("id", builtin(name)) == KeySending(pa.field("id", type_), sql_type)


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us")),
        ("timestamptz", pa.timestamp("us", "UTC")),
    ],
)
def test_times_are_sent_as_texts(name: str, type_: pa.DataType) -> None:
    """A time is a text on the way, and of the column's exact type when it is compared."""
    sending = key_sending("at", builtin(name))

    assert sending == KeySending(pa.field("at", type_), name)
    assert sending.array(2) == f"$2::text[]::{name}[]"


@pytest.mark.parametrize(
    ("name", "type_"), [("int2", pa.int16()), ("int4", pa.int32()), ("int8", pa.int64())]
)
def test_integers_are_sent_in_one_text(name: str, type_: pa.DataType) -> None:
    """The server reads their array out of one text, and compares the column's exact type."""
    sending = key_sending("id", builtin(name))

    assert sending == KeySending(pa.field("id", type_), name)
    assert sending.array(2) == f"$2::text::{name}[]"


@pytest.mark.parametrize("name", ["text", "varchar"])
def test_text_keys_hold_no_nul(name: str) -> None:
    """The field says that U+0000 is refused before a batch fails by it."""
    sending = key_sending("id", builtin(name))

    assert isinstance(sending, KeySending)
    assert (sending.field.type, sending.field.metadata) == (pa.utf8(), NO_NUL_FIELD)
    assert sending.sql_type == "text"


def test_uuid_keys_are_sixteen_bytes() -> None:
    """A uuid is its bytes, marked so that texts are converted to it."""
    sending = key_sending("id", builtin("uuid"))

    assert isinstance(sending, KeySending)
    assert (sending.field.type, sending.field.metadata) == (pa.binary(16), UUID_FIELD)


def test_decimal_keys_are_sent_as_numeric() -> None:
    """A numeric with precision may be a key: equal numbers are equal whatever their zeros."""
    expected = KeySending(pa.field("id", pa.decimal128(10, 2)), "numeric")

    assert key_sending("id", numeric(10, 2)) == expected


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (builtin("bpchar"), "char(n) ignores blanks"),
        (PostgresType("citext", is_builtin=False), "ignores case"),
        (builtin("float4"), "by accident"),
        (builtin("float8"), "by accident"),
        (builtin("numeric"), "without a precision"),
        (numeric(39, 0), "without a precision"),
        (builtin("jsonb"), "jsonb cannot be a key"),
        (PostgresType("mood", is_builtin=False), "mood cannot be a key"),
        (PostgresType("text", is_builtin=True, has_exact_equality=False), "collation"),
    ],
    ids=str,
)
def test_inexact_types_are_refused_as_keys(kind: PostgresType, reason: str) -> None:
    """A type whose equality is not that of its values is refused, and the reason says why."""
    refusal = key_sending("id", kind)

    assert isinstance(refusal, str)
    assert reason in refusal
