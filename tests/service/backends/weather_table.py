"""A table with a composite key and columns that are read in different ways."""

import pyarrow as pa

from service.connectors.postgres.table import (
    KeySending,
    PostgresTable,
    PostgresType,
    column_reading,
)

HOUR = pa.field("hour", pa.timestamp("us", "UTC"))
WEATHER = PostgresTable(
    schema_name="public",
    name="we ather",
    keys=(
        ("origin", KeySending(pa.field("origin", pa.utf8()), "text")),
        ("hour", KeySending(HOUR, "timestamptz")),
    ),
    columns=(
        ("temp", column_reading(PostgresType("float8", is_builtin=True))),
        ("notes", column_reading(PostgresType("jsonb", is_builtin=True))),
    ),
)
