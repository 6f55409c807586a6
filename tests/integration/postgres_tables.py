"""Arrow tables put into PostgreSQL, as the stores of tests.

Not a loader for data of any size: rows go in one by one.
"""

from collections.abc import Sequence

import pyarrow as pa

from service.connectors.postgres.settings import PostgresSettings
from tools.processes.postgres_server import Database

_SQL_TYPES = (
    (pa.int16(), "int2"),
    (pa.int32(), "int4"),
    (pa.int64(), "int8"),
    (pa.float32(), "float4"),
    (pa.float64(), "float8"),
    (pa.bool_(), "bool"),
    (pa.utf8(), "text"),
    (pa.binary(), "bytea"),
    (pa.date32(), "date"),
    (pa.timestamp("us"), "timestamp"),
    (pa.timestamp("us", "UTC"), "timestamptz"),
    (pa.decimal128(38, 2), "numeric(38, 2)"),
)


def put_table(
    database: Database, rows: pa.Table, *, key: Sequence[str], name: str = "dimension"
) -> PostgresSettings:
    """Make the table anew, with the key as its primary key; how a backend reaches it."""
    columns = ", ".join(f'"{field.name}" {_sql_type(field.type)}' for field in rows.schema)
    quoted_key = ", ".join(f'"{part}"' for part in key)
    database.execute(
        f'DROP TABLE IF EXISTS "{name}"',
        f'CREATE TABLE "{name}" ({columns}, PRIMARY KEY ({quoted_key}))',
    )
    if rows.num_rows:
        values = [list(row.values()) for row in rows.to_pylist()]
        database.insert(f'"{name}"', values)
    return PostgresSettings(database.dsn(), f'public."{name}"', tuple(key))


def _sql_type(kind: pa.DataType) -> str:
    return next(sql_type for arrow, sql_type in _SQL_TYPES if arrow == kind)
