"""The one query of a table, and its schema."""

import pyarrow as pa
import pytest

from service.backends.postgres_table import PostgresTable, quoted
from service.backends.postgres_types import KeySending, PostgresType, column_reading

HOUR = pa.field("hour", pa.timestamp("us", "UTC"))
WEATHER = PostgresTable(
    schema_name="public",
    name="we ather",
    keys=(
        ("origin", KeySending(pa.field("origin", pa.utf8()), "text")),
        ("hour", KeySending(HOUR, "timestamptz", is_text=True)),
    ),
    columns=(
        ("temp", column_reading(PostgresType("float8", is_builtin=True))),
        ("notes", column_reading(PostgresType("jsonb", is_builtin=True))),
    ),
)


def test_query_asks_the_index_per_key() -> None:
    """Typed arrays go in, the database matches, ordinals come out; the fence keeps the plan."""
    assert WEATHER.lookup_query == (
        "SELECT k.ordinal, r.*"
        " FROM unnest($1::text[], $2::text[]::timestamptz[])"
        " WITH ORDINALITY AS k (key1, key2, ordinal)"
        ' CROSS JOIN LATERAL (SELECT t."temp" AS column1, t."notes"::text AS column2'
        ' FROM "public"."we ather" AS t'
        ' WHERE t."origin" = k.key1 AND t."hour" = k.key2 OFFSET 0) AS r'
    )


def test_schema_has_keys_and_columns() -> None:
    """The schema shows the key in its order, and the columns in theirs."""
    assert WEATHER.schema.key.names == ["origin", "hour"]
    assert WEATHER.schema.columns == pa.schema({"temp": pa.float64(), "notes": pa.utf8()})


@pytest.mark.parametrize(
    ("name", "expected"),
    [("id", '"id"'), ('a"b', '"a""b"'), ("a.b", '"a.b"'), ("select", '"select"'), ("é", '"é"')],
)
def test_names_are_quoted_whole(name: str, expected: str) -> None:
    """Quotes, dots, reserved words and any character are part of the name."""
    assert quoted(name) == expected
