"""A table that can be looked up, as far as the catalog knows it.

Made by `postgres_catalog`; the query that it is asked with stands in `postgres_lookup`.
"""

from dataclasses import dataclass

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.operator.moments import is_moment
from lookup_core.table_origin import TableOrigin
from lookup_core.version_columns import VersionColumns
from service.backends.postgres_types import ColumnReading, KeySending


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
