"""A table that can be looked up, and the one query that it is asked with.

Made by `postgres_catalog` from what the database says; text only, nothing is run here.
"""

from dataclasses import dataclass

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from service.backends.postgres_types import ColumnReading, KeySending


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """Names as the catalog has them; how each key column is sent, and each column is read."""

    schema_name: str
    name: str
    keys: tuple[tuple[str, KeySending], ...]  # in the order of the configuration
    columns: tuple[tuple[str, ColumnReading], ...]

    @property
    def schema(self) -> DimensionSchema:
        """What the dimension looks like to everybody else."""
        return DimensionSchema(
            key=pa.schema([sending.field for _, sending in self.keys]),
            columns=pa.schema([pa.field(name, reading.type) for name, reading in self.columns]),
        )

    @property
    def lookup_query(self) -> str:
        """One array per key column in; out come ordinal (from 1) and columns of rows that exist.

        The database matches, so that it alone decides what is equal. OFFSET 0 keeps the planner
        from turning this into a join: whatever it believes of the number of keys or of the table's
        size, it asks the index once per key and never reads the table from end to end.
        """
        keys = [(number, *key) for number, key in enumerate(self.keys, 1)]
        arrays = ", ".join(sending.array(number) for number, _, sending in keys)
        aliases = ", ".join(f"key{number}" for number, _, _ in keys)
        matches = " AND ".join(f"t.{quoted(name)} = k.key{number}" for number, name, _ in keys)
        columns = ", ".join(
            f"{reading.expression(f't.{quoted(name)}')} AS column{number}"
            for number, (name, reading) in enumerate(self.columns, 1)
        )
        return (
            "SELECT k.ordinal, r.*"  # noqa: S608  names come from the catalog, quoted
            f" FROM unnest({arrays}) WITH ORDINALITY AS k ({aliases}, ordinal)"
            f" CROSS JOIN LATERAL (SELECT {columns}"
            f" FROM {quoted(self.schema_name)}.{quoted(self.name)} AS t"
            f" WHERE {matches} OFFSET 0) AS r"
        )


def quoted(identifier: str) -> str:
    """The name as SQL reads it back unchanged, whatever its characters."""
    escaped = identifier.replace('"', '""')
    return f'"{escaped}"'
