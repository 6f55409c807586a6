"""Backend and sources of one dimension, and pools of databases, made from the configuration.

Opens nothing.
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import orjson
import structlog

from lookup_core.changelog.change_decoder import ChangeDecoder, DecoderSettings
from lookup_core.changelog.format import DECODERS
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.protection.connection_shares import ConnectionShares
from lookup_core.row_bytes import ROW_BYTES
from lookup_core.settings import CacheMode
from lookup_core.statistics import InvalidationOrigin
from service.config.dimension import DimensionConfig
from service.config.refresh import Changelog
from service.config.settings import Settings
from service.config.source import ParquetSource
from service.connectors.kafka.changelog import KafkaChangelog
from service.connectors.parquet.backend import ParquetBackend, ParquetScan
from service.connectors.parquet.file import RowLimit
from service.connectors.parquet.row_groups import ParquetRowGroups
from service.connectors.ports.backend import Backend
from service.connectors.ports.source import Source
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.connections import PostgresPool
from service.connectors.postgres.notifications import PostgresNotifications
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.snapshot import PostgresSnapshot
from service.connectors.postgres.table import WatchedTable
from service.connectors.several_rows import RowMatch, RowVersions
from service.engine.refresher import RefreshSources
from service.engine.shared_connections import ConnectionShare
from service.wiring.connector_settings import (
    event_origins,
    kafka_settings,
    notifications_settings,
    postgres_settings,
    settings_by_address,
)

log = structlog.get_logger()

_REMEDY = "rows age from the load on: set refresh.changelog, refresh.listen or refresh.reload"


@dataclass(frozen=True, slots=True)
class DatabaseShare:
    """The pool of a dimension's database, and the dimension's share of it."""

    pool: PostgresPool
    connections: ConnectionShare


def database_shares(settings: Settings) -> dict[str, DatabaseShare]:
    """One pool for each address; raises OSError if an address cannot be read.

    A session ends a query at the longest timeout of its dimensions; the sidecar does it at that of
    the query's own dimension.
    """
    shares: dict[str, DatabaseShare] = {}
    size = settings.limits.database_connections
    for each in settings_by_address(settings).values():
        timeout_s = max(of_table.statement_timeout_s for of_table in each.values())
        first = next(iter(each.values()))
        pool = PostgresPool(replace(first, max_connections=size, statement_timeout_s=timeout_s))
        connections = ConnectionShares(size, list(each))
        shares |= {name: DatabaseShare(pool, ConnectionShare(connections, name)) for name in each}
    return shares


@dataclass(frozen=True, slots=True)
class ConfiguredParts:
    """Makes backend and sources of one dimension.

    `file` is the configuration file, for the commands in messages. Without the `pool` of its
    database, the backend opens its own.
    """

    name: str
    config: DimensionConfig
    file: Path | None = None
    pool: PostgresPool | None = None
    row_bytes: int = ROW_BYTES

    def backend(self) -> Backend:
        """The backend; several rows of one key are combined by `versions` or `match`."""
        backend, config = self._single_rows(), self.config
        if (versions := config.version_columns) is not None:
            return RowVersions(backend, versions)
        return backend if config.match is None else RowMatch(backend, config.match)

    def sources(self) -> RefreshSources:
        """The source of changes and that of the whole table, as configured."""
        refresh = self.config.refresh
        table = self._whole_table() if self.config.cache.mode is CacheMode.FULL else None
        if refresh.listen is not None:
            return RefreshSources(self._notifications, InvalidationOrigin.NOTIFICATION, table)
        if refresh.changelog is not None:
            changes = partial(self._changelog, refresh.changelog)
            return RefreshSources(changes, InvalidationOrigin.CHANGELOG, table)
        return RefreshSources(table=table)

    def _postgres(self) -> PostgresSettings:
        return postgres_settings(self.config, row_bytes=self.row_bytes)

    def _single_rows(self) -> Backend:
        config = self.config
        if not isinstance(config.source, ParquetSource):
            return PostgresBackend(self._postgres(), self.pool)
        # In full mode the cache has the rows: the backend scans the file instead.
        kind = ParquetScan if config.cache.mode is CacheMode.FULL else ParquetBackend
        has_several = config.match is not None or config.versions is not None
        limit = RowLimit(self.row_bytes, has_several_rows=has_several)
        return kind(config.source.path, config.key, columns=config.columns, limit=limit)

    def _whole_table(self) -> Source:
        config, source = self.config, self.config.source
        if isinstance(source, ParquetSource):
            return ParquetRowGroups(source.path, columns=config.columns, row_bytes=self.row_bytes)
        if config.refresh.feed is None and config.refresh.reload is None:
            log.warning("dimension.loaded_once", dimension=self.name, remedy=_REMEDY)
        return PostgresSnapshot(self._postgres())

    def _notifications(self) -> Source:
        settings = notifications_settings(self.name, self.config, file=self.file)
        return PostgresNotifications(settings)

    def _changelog(self, changelog: Changelog) -> Source:
        def decoder(schema: DimensionSchema) -> ChangeDecoder:
            origin = schema.table_origin
            settings = DecoderSettings(
                event_origins(changelog, origin),
                with_rows=self.config.cache.mode is CacheMode.FULL and origin.reports_rows,
                has_full_identity=origin.has_full_identity,
                loses_keys=origin.loses_keys,
                row_bytes=self.row_bytes,
            )
            return DECODERS[changelog.format](schema, settings=settings, loads=orjson.loads)

        changes = KafkaChangelog(kafka_settings(changelog), decoder)
        return WatchedTable(changes, self._postgres(), pool=self.pool)
