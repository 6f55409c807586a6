"""The adapters of one dimension, as its configuration wants them: its store, and its sources.

A part of the application's wiring; opens nothing.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson
import structlog

from lookup_core.changelog.change_decoder import ChangeDecoder, DecoderSettings
from lookup_core.changelog.format import decoder_for
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.settings import CacheMode
from lookup_core.statistics import InvalidationOrigin
from service.adapter_settings import (
    kafka_settings,
    notifications_settings,
    postgres_settings,
    trigger_script,
    version_columns,
)
from service.config.dimension import DimensionConfig
from service.config.refresh import Changelog, Notifications
from service.config.source import ParquetSource, PostgresSource
from service.connectors.kafka.changelog import KafkaChangelog
from service.connectors.parquet.backend import ParquetBackend, ParquetScan
from service.connectors.parquet.row_groups import ParquetRowGroups
from service.connectors.ports.backend import Backend
from service.connectors.ports.several_rows import RowMatch, RowVersions
from service.connectors.ports.source import Source
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications_source import PostgresNotifications
from service.connectors.postgres.snapshot_source import PostgresSnapshot
from service.engine.refresher import RefreshSources

log = structlog.get_logger()

_REMEDY = "rows are as old as the load: give refresh.changelog, refresh.listen or refresh.reload"


def dimension_backend(config: DimensionConfig) -> Backend:
    """Where rows are fetched from; several of one key as the configuration says."""
    store = _store(config)
    if (versions := version_columns(config)) is not None:
        return RowVersions(store, versions)
    return store if config.match is None else RowMatch(store, config.match)


def refresh_sources(
    name: str, config: DimensionConfig, *, file: Path | None = None
) -> RefreshSources:
    """What tells of changes, and what the whole table is read from, as far as it is wanted.

    `file` is what the configuration was read from, for people who are told to name it.
    """
    origin = InvalidationOrigin.CHANGELOG
    changes: Callable[[], Source] | None = None
    if config.refresh.changelog is not None:
        changes = partial(_changelog, config, config.refresh.changelog)
    elif config.refresh.listen is not None:
        origin = InvalidationOrigin.NOTIFICATION
        script = trigger_script(name, file)
        changes = partial(_notifications, name, config, config.refresh.listen, script=script)
    whole = _whole_table(name, config) if config.cache.mode is CacheMode.FULL else None
    return RefreshSources(changes, origin, whole)


def _store(config: DimensionConfig) -> Backend:
    source = config.source
    if isinstance(source, ParquetSource):
        # Rows that are held whole need not be held twice.
        kind = ParquetScan if config.cache.mode is CacheMode.FULL else ParquetBackend
        return kind(source.path, config.key, columns=config.columns)
    return PostgresBackend(postgres_settings(config, source))


def _whole_table(name: str, config: DimensionConfig) -> Source:
    source = config.source
    if isinstance(source, ParquetSource):
        return ParquetRowGroups(source.path, columns=config.columns)
    if config.refresh.feed is None and config.refresh.reload is None:
        log.warning("dimension.loaded_once", dimension=name, remedy=_REMEDY)
    return PostgresSnapshot(postgres_settings(config, source))


def _notifications(
    name: str, config: DimensionConfig, listen: Notifications, *, script: str
) -> Source:
    settings = notifications_settings(name, _table(config), listen, script=script)
    return PostgresNotifications(settings)


def _changelog(config: DimensionConfig, changelog: Changelog) -> Source:
    def decoder(schema: DimensionSchema) -> ChangeDecoder:
        origin = schema.origin
        assert origin is not None  # as every table of PostgreSQL has one
        settings = DecoderSettings(
            origin.name,
            with_rows=config.cache.mode is CacheMode.FULL and origin.tells_rows,
            has_full_identity=origin.has_full_identity,
        )
        return decoder_for(changelog.format, schema, settings=settings, loads=orjson.loads)

    return KafkaChangelog(kafka_settings(changelog), decoder)


def _table(config: DimensionConfig) -> PostgresSource:
    assert isinstance(config.source, PostgresSource)  # as validated, wherever there is a feed
    return config.source
