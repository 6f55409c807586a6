"""The adapters of one dimension, as its configuration wants them: its store, and its sources.

A part of the application's wiring; opens nothing.
"""

import shlex
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
from lookup_core.version_columns import VersionColumns
from service.backends.interface import Backend
from service.backends.parquet import ParquetBackend
from service.backends.parquet_scan import ParquetScan
from service.backends.postgres import PostgresBackend
from service.backends.postgres_settings import PostgresSettings
from service.backends.row_match import RowMatch
from service.backends.row_versions import RowVersions
from service.config.changelog import Changelog, Security
from service.config.dimension import DimensionConfig
from service.config.notifications import Notifications
from service.config.source import ParquetSource, PostgresSource
from service.engine.runner_refresh import RefreshSources
from service.sources.interface import Source
from service.sources.kafka_changelog import KafkaChangelog
from service.sources.kafka_settings import KafkaSettings
from service.sources.parquet_row_groups import ParquetRowGroups
from service.sources.postgres_notifications import PostgresNotifications
from service.sources.postgres_notifications_session import PostgresNotificationsSettings
from service.sources.postgres_snapshot import PostgresSnapshot

log = structlog.get_logger()

_REMEDY = "rows are as old as the load: give refresh.changelog, refresh.listen or refresh.reload"


def dimension_backend(config: DimensionConfig) -> Backend:
    """Where rows are fetched from; several of one key as the configuration says."""
    store = _store(config)
    if (versions := _versions(config)) is not None:
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
        script = _script(name, file)
        changes = partial(_notifications, name, config, config.refresh.listen, script=script)
    whole = _whole_table(name, config) if config.cache.mode is CacheMode.FULL else None
    return RefreshSources(changes, origin, whole)


def _versions(config: DimensionConfig) -> VersionColumns | None:
    return None if config.versions is None else config.versions.engine_settings()


def _store(config: DimensionConfig) -> Backend:
    source = config.source
    if isinstance(source, ParquetSource):
        # Rows that are held whole need not be held twice.
        kind = ParquetScan if config.cache.mode is CacheMode.FULL else ParquetBackend
        return kind(source.path, config.key, columns=config.columns)
    return PostgresBackend(_postgres_settings(config, source))


def _whole_table(name: str, config: DimensionConfig) -> Source:
    source = config.source
    if isinstance(source, ParquetSource):
        return ParquetRowGroups(source.path, columns=config.columns)
    if config.refresh.feed is None and config.refresh.reload is None:
        log.warning("dimension.loaded_once", dimension=name, remedy=_REMEDY)
    return PostgresSnapshot(_postgres_settings(config, source))


def _postgres_settings(config: DimensionConfig, source: PostgresSource) -> PostgresSettings:
    return PostgresSettings(
        dsn=source.read_dsn(),
        table=source.table,
        key=config.key,
        columns=config.columns,
        max_connections=config.batch.max_in_flight,
        statement_timeout_s=config.timeout_s,
        has_several_rows=config.match is not None or config.versions is not None,
        versions=_versions(config),
        is_followed=config.refresh.feed is not None,
        has_triggers=config.refresh.listen is not None,
        require_index=source.require_index,
        pgbouncer=source.pgbouncer,
    )


def _notifications(
    name: str, config: DimensionConfig, listen: Notifications, *, script: str
) -> Source:
    source = _table(config)
    return PostgresNotifications(
        PostgresNotificationsSettings(
            source.read_dsn(), source.table, listen.channel_of(name), script=script
        )
    )


def _script(name: str, file: Path | None) -> str:
    """The command that prints the triggers of this dimension, from wherever it is run."""
    config = () if file is None else ("--config", str(file.absolute()))
    return shlex.join(("python", "-m", "service", "gen-triggers", name, *config))


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

    security = changelog.security
    settings = KafkaSettings(
        brokers=changelog.brokers,
        topic=changelog.topic,
        heartbeat_topic=changelog.heartbeat_topic,
        security_protocol=_protocol(security),
        sasl_mechanism=security.mechanism or "PLAIN",
        sasl_user=security.username,
        sasl_password=security.read_password(),
        ca_file=security.ca_file,
        certificate_file=security.certificate_file,
    )
    return KafkaChangelog(settings, decoder)


def _protocol(security: Security) -> str:
    transport = "SSL" if security.tls else "PLAINTEXT"
    return transport if security.mechanism is None else f"SASL_{transport}"


def _table(config: DimensionConfig) -> PostgresSource:
    assert isinstance(config.source, PostgresSource)  # as validated, wherever there is a feed
    return config.source
