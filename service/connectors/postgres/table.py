"""PostgreSQL table as the catalog describes it, its version, its publications, and its watch.

Rows change without a change of their table: through labels, types, functions, policies, and the
columns of relations whose rows are values. Bodies of functions count; objects that only the text of
a body names are not known to the catalog. A changelog has the changes of rows only: a watched table
also reports those by ALTER TABLE, types, partitions and publications.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import pyarrow as pa
import structlog

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema, TableOrigin, VersionColumns
from lookup_core.errors import BackendError
from lookup_core.operator.as_of import is_moment
from lookup_core.rate_limits import EventRateLimit
from lookup_core.row_bytes import ROW_BYTES
from service.connectors.ports.resource import Resource, cancel
from service.connectors.ports.source import Source, SplitPiece, SplitReader
from service.connectors.postgres import sql_text
from service.connectors.postgres.column_types import ColumnReading, KeySending, quoted
from service.connectors.postgres.connections import PostgresConnections, PostgresPool
from service.connectors.postgres.errors import own_statement_fault
from service.connectors.postgres.sessions import (
    CatalogRow,
    PostgresSettings,
    RunQuery,
    run_own,
    unavailable,
)
from service.connectors.postgres.triggers import version_arguments

log = structlog.get_logger()

_INTERVAL_S = 5.0
_QUERY_TIMEOUT_S = 5.0  # after the time for a free connection
_LOW_HALF = 0xFFFFFFFF
_OTHER_SERVER = "another server responded, which may lack changes of the former one"
_CHANGED = (
    "ALTER TABLE ran, partitions were attached, detached or truncated, or a type, policy or "
    "publication of the table changed"
)

MEANING = sql_text("meaning")
TABLE_VERSION = sql_text("table_version").replace("/* meaning */", MEANING)
_PUBLICATIONS = sql_text("publications")
PUBLICATIONS_VERSION = sql_text("publications_version")


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

    origin: TableOrigin  # a query has its name in messages
    keys: tuple[tuple[str, KeySending], ...]  # in the order of the configuration
    columns: tuple[tuple[str, ColumnReading], ...]
    primary_key: tuple[str, ...] = ()  # empty if there is none that may be read
    versions: VersionColumns | None = None
    kind: RelationKind = RelationKind.TABLE
    has_foreign_parts: bool = False  # a partition is a foreign table
    query: str | None = None  # one SELECT, of a RelationKind.QUERY
    where: str | None = None  # condition of the rows that the dimension has
    is_guarded: bool = False  # each lookup fixes its settings: sessions have those of the role
    row_bytes: int = ROW_BYTES  # limit for one row, or for all rows of a key with several
    has_several_rows: bool = False  # per key

    @property
    def has_sql(self) -> bool:
        """Whether SQL of a view or the configuration is run for its rows."""
        return self.where is not None or self.kind in {RelationKind.VIEW, RelationKind.QUERY}

    @property
    def sql_name(self) -> str:
        """Schema and name, quoted; for messages only if it is a query."""
        if self.query is not None:
            return self.origin.table_name
        return f"{quoted(self.origin.schema_name)}.{quoted(self.origin.table_name)}"

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
            origin=None if self.query is not None else self.origin,
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


@dataclass(frozen=True, slots=True)
class Publications:
    """The publications that report all changes of a table, and why the others do not.

    Both are empty for a database without publications.
    """

    complete: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


async def read_publications(
    run: RunQuery, settings: PostgresSettings, table_id: int
) -> Publications:
    """Read them; raises BackendError if none reports all changes, with the remedy.

    A database without publications is accepted, if its log has all changes of the table: the
    connector may use another plugin.
    """
    records = await run_own(run, _PUBLICATIONS, table_id, settings.key, settings.publication)
    found = [record for record in records if record["name"] is not None]
    if not found and settings.publication is not None:
        name = quoted(settings.publication)
        remedy = f"CREATE PUBLICATION {name} FOR TABLE {records[0]['table']}, or correct it"
        reason = f"publication {name} of refresh.changelog.publication does not exist; {remedy}"
        raise unavailable(settings, reason, is_permanent=False)
    # Those that have the table come first; the others may be of other tables.
    faults = {
        record["name"]: fault
        for record in sorted(records, key=lambda record: not record["is_member"])
        if (fault := _fault(record)) is not None
    }
    if faults and len(faults) == len(records):
        raise unavailable(settings, next(iter(faults.values())), is_permanent=False)
    complete = tuple(record["name"] for record in found if record["name"] not in faults)
    members = {record["name"] for record in found if record["is_member"]}
    return Publications(complete, tuple(faults[name] for name in faults if name in members))


def _fault(record: CatalogRow) -> str | None:
    """Why a publication, or another plugin, does not report all changes, with the remedy.

    None if it does.
    """
    if (fault := _fault_of_log(record)) is not None:
        other = "or, if the connector reads another server, refresh.changelog.publication: none"
        return f"{fault}; {other}"
    if record["kind"] == "p" and not record["is_via_root"]:
        remedy = "ALTER PUBLICATION … SET (publish_via_partition_root = true)"
        reason = "no publication reports the changes of its partitions under its name"
        return f"{reason}; {remedy}, and restart the connector"
    if record["whole"] is not None and not record["is_member"]:
        whole = record["whole"]
        reason = f"no publication reports its changes under its name, but as those of {whole}"
        return f"{reason}; name {whole}, with a source.where"
    return None if record["name"] is None else _omission(record, quoted(record["name"]))


def _fault_of_log(record: CatalogRow) -> str | None:
    table = record["table"]
    if record["is_unlogged"]:
        return f"the log has no changes of an unlogged table; ALTER TABLE {table} SET LOGGED"
    # With a publication that has them, deletions fail instead.
    if record["name"] is None and record["kind"] == "r" and not record["has_identity"]:
        remedy = f"ALTER TABLE {table} REPLICA IDENTITY FULL"
        return f"the log has no deletions of a table without a replica identity; {remedy}"
    return None


def _omission(record: CatalogRow, name: str) -> str | None:
    added = f"ALTER PUBLICATION {name} ADD TABLE {record['table']}"
    again = f"ALTER PUBLICATION {name} DROP TABLE {record['table']}; {added}"
    if not record["is_member"]:
        other = "or, if the connector reads another server, refresh.changelog.publication: none"
        return f"publication {name} does not report its changes; {added}; {other}"
    if record["unreported"]:
        missing = " and ".join(record["unreported"])
        remedy = f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')"
        return f"publication {name} does not report each {missing}; {remedy}"
    if record["filter"] is not None:
        return f"publication {name} has a row filter, which omits changes; {again}"
    if record["lost_keys"]:
        keys = ", ".join(record["lost_keys"])
        reason = f"the column list of publication {name} omits the key column {keys}; {again}"
        return f"{reason}; a generated column needs publish_generated_columns, or refresh.listen"
    return None


@dataclass(frozen=True, slots=True)
class _Version:
    text: str | None  # None: the table is gone, or not known
    last_transaction_id: int = 0
    epoch: int = 0  # its server's
    is_known: bool = True


class WatchedTable:
    """The changes of another source, and those of its table, which are reported within seconds.

    If the database does not answer, a reader of a partitioned table fails. Other readers go on:
    cached rows outlast an outage, and the table is compared after it. Without a shared pool, which
    must be open, a reader opens its own.
    """

    is_bounded = False

    def __init__(
        self,
        changes: Source,
        settings: PostgresSettings,
        *,
        pool: PostgresPool | None = None,
        interval_s: float = _INTERVAL_S,
    ) -> None:
        self._changes = changes
        self.settings = settings
        self.pool = pool
        self.interval_s = interval_s
        self.reading_mode = changes.reading_mode
        self.enumerator = changes.enumerator
        self.version: _Version | None = None  # the last one, of all readers

    def reader(self, schema: DimensionSchema) -> "WatchingReader":
        """A reader that compares the table."""
        return WatchingReader(self._changes.reader(schema), self, schema.table_origin)


class WatchingReader(Resource):
    """Reads the other source, and compares the table at each interval.

    The versions outlive a reader: the next one reports what changed between them.
    """

    def __init__(self, reader: SplitReader, watch: WatchedTable, origin: TableOrigin) -> None:
        self._reader = reader
        self.assign, self.pause = reader.assign, reader.pause
        self.request_sign = reader.request_sign
        self._watch = watch
        self._origin = origin
        self._connections = PostgresConnections(watch.settings, watch.pool)
        self._pending: asyncio.Task[_Version] | None = None
        self._change: TableChange | None = None  # not reported yet
        self._due_at_s = 0.0
        self._warnings = EventRateLimit()

    async def open(self, stack: AsyncExitStack) -> None:
        """Read the version of the table first, then open the other reader; raises BackendError."""
        await stack.enter_async_context(self._connections)
        self._compare(await self._version())
        await stack.enter_async_context(self._reader)
        stack.push_async_callback(lambda: cancel(self._pending))

    async def read(self) -> Sequence[SplitPiece]:
        """The next pieces; raises BackendError, also if the partitions cannot be read."""
        if self._pending is None and asyncio.get_running_loop().time() >= self._due_at_s:
            self._pending = asyncio.create_task(self._version())
        if self._pending is not None and self._pending.done():
            found, self._pending = self._pending, None
            self._compare(found.result())
        pieces = await self._reader.read()
        if self._change is None or not pieces:
            return pieces
        change, self._change = self._change, None
        first, *others = pieces
        return [replace(first, changes=(change, *first.changes)), *others]

    def _compare(self, found: _Version) -> None:
        """Note this version, and whether rows may differ from those of the earlier one.

        A first version that is not known differs from the next one: rows may be cached already.
        """
        self._due_at_s = asyncio.get_running_loop().time() + self._watch.interval_s
        earlier = self._watch.version
        if earlier is None or found.is_known:
            self._watch.version = found
        if earlier is None or not found.is_known:
            return
        if earlier.text != found.text or earlier.epoch < found.epoch:
            reason = _OTHER_SERVER if earlier.text == found.text else _CHANGED
            self._change = TableChange(reason, found.last_transaction_id & _LOW_HALF, is_gap=True)

    async def _version(self) -> _Version:
        settings = self._watch.settings
        try:
            return await self._read_version(settings)
        except BackendError as error:
            fault = own_statement_fault(error)
            if self._origin.is_partitioned:
                raise fault from error.__cause__
            if self._warnings.is_due("table", asyncio.get_running_loop().time()):
                log.warning(
                    "changelog.table_not_compared", table=settings.table, error=fault.detail
                )
            return _Version(None, is_known=False)

    async def _read_version(self, settings: PostgresSettings) -> _Version:
        timeout_s = settings.statement_timeout_s + _QUERY_TIMEOUT_S
        run = partial(
            self._connections.run_until,
            deadline_s=asyncio.get_running_loop().time() + timeout_s,
        )
        publications = ""
        if settings.needs_publication:  # first: the transaction id must cover its change
            arguments = (self._origin.table_id, settings.publication)
            found = await run(PUBLICATIONS_VERSION, arguments)
            publications = found.records[0]["version"]
        reply = await run(TABLE_VERSION, version_arguments(self._origin))
        epoch = reply.server.number
        if not reply.records:
            return _Version(None, epoch=epoch)
        (record,) = reply.records
        text = f"{record['version']} {publications}"
        return _Version(text, record["last_transaction_id"], epoch)
