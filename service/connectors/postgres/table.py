"""PostgreSQL table as the catalog describes it, and the version of all that its rows depend on.

Rows change without a change of their table: through labels, types, functions, policies, and the
columns of relations whose rows are values. Bodies of functions count; objects that only the text of
a body names are not known to the catalog.
"""

from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema, TableOrigin, VersionColumns
from lookup_core.operator.as_of import is_moment
from lookup_core.row_bytes import ROW_BYTES
from service.connectors.postgres.column_types import ColumnReading, KeySending, quoted
from service.connectors.postgres.sessions import sql_text


class RelationKind(Enum):
    """The kind of a relation; the values are those of `pg_class.relkind`."""

    TABLE = "r"
    PARTITIONED = "p"
    VIEW = "v"
    MATERIALIZED_VIEW = "m"
    FOREIGN_TABLE = "f"
    QUERY = "query"  # in the configuration


@dataclass(frozen=True, slots=True)
class PostgresTable:
    """Relation with its names in the catalog, its key columns and its other columns."""

    schema_name: str  # empty for a query
    name: str
    keys: tuple[tuple[str, KeySending], ...]  # in the order of the configuration
    columns: tuple[tuple[str, ColumnReading], ...]
    table_id: int = 0  # oid
    primary_key: tuple[str, ...] = ()  # empty if there is none that may be read
    reports_rows: bool = False  # rows of its changelog equal queried rows; see the catalog
    has_full_identity: bool = False  # REPLICA IDENTITY FULL, of each partition
    loses_keys: bool = False  # see TableOrigin
    versions: VersionColumns | None = None
    kind: RelationKind = RelationKind.TABLE
    has_foreign_parts: bool = False  # a partition is a foreign table
    query: str | None = None  # one SELECT, of a RelationKind.QUERY
    where: str | None = None  # condition of the rows that the dimension has
    is_guarded: bool = False  # each lookup fixes its settings: sessions have those of the role
    row_bytes: int = ROW_BYTES  # of one row, or of all rows of a key with several
    has_several_rows: bool = False  # per key
    database: str | None = None
    is_subscribed: bool = False  # see TableOrigin
    version: str = ""  # see TableOrigin

    @property
    def has_sql(self) -> bool:
        """Whether SQL of a view or the configuration is run for its rows."""
        return self.where is not None or self.kind in {RelationKind.VIEW, RelationKind.QUERY}

    @property
    def sql_name(self) -> str:
        """Schema and name, quoted; for messages only if it is a query."""
        if self.query is not None:
            return self.name
        return f"{quoted(self.schema_name)}.{quoted(self.name)}"

    @property
    def is_unique(self) -> bool:
        """Whether its key has its primary key: a key has at most one row."""
        return bool(self.primary_key) and {*self.primary_key} <= {*dict(self.keys)}

    @property
    def may_have_large_rows(self) -> bool:
        """Whether the rows of a key have no small bound of their bytes."""
        return self.has_several_rows or any(each.may_be_large for _, each in self.columns)

    @property
    def has_row_places(self) -> bool:
        """Whether its rows have a `ctid`."""
        has_storage = self.kind in {RelationKind.TABLE, RelationKind.MATERIALIZED_VIEW}
        return has_storage or (self.kind is RelationKind.PARTITIONED and not self.has_foreign_parts)

    def from_item(self, *, sample: str = "", with_places: bool = False) -> str:
        """The FROM item of its rows, named `t`; `sample` is a TABLESAMPLE clause.

        A filter has a SELECT of its own, where no other name is visible. Its rows have no `ctid`
        unless `with_places`: a role needs the right to read it. Line breaks end comments.
        """
        if self.where is None and self.query is None:
            return f"{self.sql_name} AS t{sample}"
        rows = f"{self.sql_name}{sample}" if self.query is None else f"(\n{self.query}\n) AS t"
        if self.where is None:
            return rows
        names = dict.fromkeys((*dict(self.keys), *dict(self.columns), *self.primary_key))
        places = ("tableoid", "ctid") if with_places and self.has_row_places else ()
        columns = ", ".join((*places, *map(quoted, names)))
        return f"(SELECT {columns} FROM {rows} WHERE (\n{self.where}\n)) AS t"  # noqa: S608  of the configuration

    @property
    def schema(self) -> DimensionSchema:
        """The schema of the dimension."""
        return DimensionSchema(
            key=pa.schema([sending.field for _, sending in self.keys]),
            columns=pa.schema([pa.field(name, reading.type) for name, reading in self.columns]),
            origin=None if self.query is not None else self._origin,
        )

    @property
    def _origin(self) -> TableOrigin:
        return TableOrigin(
            self.schema_name,
            self.name,
            table_id=self.table_id,
            reports_rows=self.reports_rows,
            has_full_identity=self.has_full_identity,
            loses_keys=self.loses_keys,
            is_partitioned=self.kind is RelationKind.PARTITIONED,
            has_row_order=bool(self.primary_key),
            database=self.database,
            is_subscribed=self.is_subscribed,
            version=self.version,
        )

    @property
    def order(self) -> tuple[str, ...]:
        """SQL terms that sort its rows `t` in the same order at each query."""
        if self.primary_key:
            return tuple(f"t.{quoted(name)}" for name in self.primary_key)
        if self.has_row_places:  # an update changes it
            is_partitioned = self.kind is RelationKind.PARTITIONED
            return ("t.tableoid", "t.ctid") if is_partitioned else ("t.ctid",)
        # Rows with equal texts are the same to lookups. Types without an order have texts, too.
        return tuple(f't.{quoted(name)}::text COLLATE "C"' for name, _ in self.columns)

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


MEANING = sql_text("meaning")

# The version of the table, and a row for each trigger with its version; without triggers, one row.
# No row if the table is gone. Any role may read it.
#
# ALTER TABLE changes rows without a report: it writes another file, or changes their meaning.
# Attached and detached partitions change rows, too; so does TRUNCATE of one, which gets another
# file. VACUUM FULL and CLUSTER also write another file: rows are read again once.
#
# Under another name for a moment, changes of the table were not in its changelog. The row type has
# the same name, and another xmin after each change of name or owner, unlike the table only then.
#
# `fault` is why a trigger does not report each change of a table or a partition, as the script's
# would. 'A' is ENABLE ALWAYS: after a plain ENABLE, sessions with `session_replication_role =
# replica` skip the trigger. White space of the function has no effect. DISABLE, ENABLE and another
# function change an xmin, also when both happen between two checks, as around a bulk load.
#
# Unreported changes are of the last transaction of the snapshot, or of earlier ones.
TABLE_VERSION = sql_text("table_version").replace("/* meaning */", MEANING)
