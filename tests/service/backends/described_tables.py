"""Tables with columns of given types, as the catalog would describe them."""

import pyarrow as pa

from service.connectors.postgres.table import (
    KeySending,
    PostgresTable,
    PostgresType,
    column_reading,
)


def builtin(name: str) -> PostgresType:
    """A type of pg_catalog without modifiers."""
    return PostgresType(name, is_builtin=True)


def table_of(*kinds: PostgresType) -> PostgresTable:
    """A table whose columns c0, c1 and so on have these types."""
    columns = tuple((f"c{at}", column_reading(kind)) for at, kind in enumerate(kinds))
    key = (("id", KeySending(pa.field("id", pa.int64()), "int8")),)
    return PostgresTable("public", "things", key, columns)
