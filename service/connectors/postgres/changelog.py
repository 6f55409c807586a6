"""Changelog of a table: publications that report all changes, and those that no changelog has.

A changelog has the changes of rows only. ALTER TABLE changes rows, too, and so do attached,
detached and truncated partitions, and types. Another publication changes what a changelog has.

Logical decoding may also use a plugin without publications, or a publication of another server.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import structlog

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.dimension_schema import DimensionSchema, TableOrigin
from lookup_core.errors import BackendError
from lookup_core.rate_limits import EventRateLimit
from lookup_core.sources.splits import Split
from service.connectors.ports.source import Source, SplitEnumerator, SplitPiece, SplitReader
from service.connectors.postgres.column_types import quoted
from service.connectors.postgres.connections import PostgresConnections, PostgresPool
from service.connectors.postgres.errors import own_statement_fault, unavailable
from service.connectors.postgres.sessions import CatalogRow, RunQuery, run_own, sql_text
from service.connectors.postgres.settings import PostgresSettings
from service.connectors.postgres.table import TABLE_VERSION
from service.connectors.postgres.triggers import version_arguments
from service.connectors.rows.pending_read import PendingRead

_PUBLICATIONS = sql_text("publications")
PUBLICATIONS_VERSION = sql_text("publications_version")


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


log = structlog.get_logger()

_INTERVAL_S = 5.0
_QUERY_TIMEOUT_S = 5.0  # after the time for a free connection
_LOW_HALF = 0xFFFFFFFF
_OTHER_SERVER = "another server responded, which may lack changes of the former one"
_CHANGED = (
    "ALTER TABLE ran, partitions were attached, detached or truncated, or a type, policy or "
    "publication of the table changed"
)


@dataclass(frozen=True, slots=True)
class _Version:
    text: str | None  # None: the table is gone, or not known
    last_transaction_id: int = 0
    epoch: int = 0  # of its server
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
        self.reading_mode = changes.reading_mode
        self.settings = settings
        self.pool = pool
        self.interval_s = interval_s
        self._changes = changes
        self._version: _Version | None = None

    def enumerator(self, schema: DimensionSchema) -> SplitEnumerator:
        """The enumerator of the other source."""
        return self._changes.enumerator(schema)

    def reader(self, schema: DimensionSchema) -> SplitReader:
        """A reader that compares the table."""
        reader, origin = self._changes.reader(schema), schema.origin
        assert origin is not None  # every table of PostgreSQL has one
        return WatchingReader(reader, self, origin)

    def change(self, found: _Version) -> str | None:
        """Why rows may differ from those of the earlier version; notes this version.

        A first version that is not known differs from the next one: rows may be cached already.
        """
        earlier = self._version
        if earlier is None or found.is_known:
            self._version = found
        if earlier is None or not found.is_known:
            return None
        if earlier.text != found.text:
            return _CHANGED
        return _OTHER_SERVER if earlier.epoch < found.epoch else None


class WatchingReader(SplitReader):
    """Reads the other source, and compares the table at each interval.

    The versions outlive a reader: the next one reports what changed between them.
    """

    def __init__(self, reader: SplitReader, watch: WatchedTable, origin: TableOrigin) -> None:
        self._reader = reader
        self._watch = watch
        self._origin = origin
        self._connections = PostgresConnections(watch.settings, watch.pool)
        self._pending: PendingRead[_Version] = PendingRead()
        self._change: TableChange | None = None  # not reported yet
        self._due_at_s = 0.0
        self._warnings = EventRateLimit()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Read the version of the table first, then open the other reader; raises BackendError."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._connections)
            self._compare(await self._version())
            await stack.enter_async_context(self._reader)
            stack.push_async_callback(self._pending.cancel)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close both."""
        await self._stack.aclose()

    async def assign(self, split: Split, *, position: int | None) -> None:
        """See SplitReader."""
        await self._reader.assign(split, position=position)

    def pause(self, split_ids: Collection[str]) -> None:
        """See SplitReader."""
        self._reader.pause(split_ids)

    def request_sign(self) -> None:
        """See SplitReader."""
        self._reader.request_sign()

    async def read(self) -> Sequence[SplitPiece]:
        """The next pieces; raises BackendError, also if the partitions cannot be read."""
        if not self._pending.is_begun and asyncio.get_running_loop().time() >= self._due_at_s:
            self._pending.begin(self._version())
        if self._pending.is_done and (found := await self._pending.take_result()) is not None:
            self._compare(found)
        pieces = await self._reader.read()
        if self._change is None or not pieces:
            return pieces
        change, self._change = self._change, None
        first, *others = pieces
        return [replace(first, changes=(change, *first.changes)), *others]

    def _compare(self, found: _Version) -> None:
        self._due_at_s = asyncio.get_running_loop().time() + self._watch.interval_s
        reason = self._watch.change(found)
        if reason is not None:
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
