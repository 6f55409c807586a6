"""Connector settings of one dimension, derived from its configuration; opens nothing."""

import shlex
from collections.abc import Callable
from pathlib import Path

from lookup_core.changelog.event_origin import EventOrigins
from lookup_core.changelog.format import ChangelogFormat
from lookup_core.dimension_schema import TableOrigin
from lookup_core.row_bytes import ROW_BYTES
from lookup_core.settings import CacheMode, Match
from service.config.dimension import DimensionConfig
from service.config.refresh import UNCHECKED, Changelog, Notifications, Security
from service.config.settings import Settings
from service.config.source import DatabaseAddress, PostgresSource
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.postgres.notifications import PostgresNotificationsSettings
from service.connectors.postgres.sessions import CONNECT_TIMEOUT_S, PostgresSettings
from service.postgres_dsn import RotatedDsn
from service.version import program_name

_HEARTBEATS = "__debezium-heartbeat."


def postgres_settings(config: DimensionConfig, *, row_bytes: int = ROW_BYTES) -> PostgresSettings:
    """Settings of queries to the table; raises OSError if its address cannot be read."""
    source, changelog = _postgres(config), config.refresh.changelog
    return PostgresSettings(
        dsn=source.read_dsn(),
        table=source.relation,
        key=config.key,
        columns=config.columns,
        types=config.arrow_types(),
        connect_timeout_s=source.read_connect_timeout_s() or CONNECT_TIMEOUT_S,
        query=source.query,
        where=source.where,
        statement_timeout_s=config.timeout_s,
        row_bytes=row_bytes,
        has_several_rows=config.match is not None or config.versions is not None,
        is_first=config.match is Match.FIRST,
        versions=config.version_columns,
        is_followed=config.refresh.feed is not None,
        has_triggers=config.refresh.listen is not None,
        is_whole=config.cache.mode is CacheMode.FULL,
        needs_publication=_needs_publication(config),
        publication=None if changelog is None else changelog.publication,
        require_index=source.require_index,
        pgbouncer=source.pgbouncer,
        dsn_now=_dsn_now(source),
    )


def settings_by_address(settings: Settings) -> dict[DatabaseAddress, dict[str, PostgresSettings]]:
    """The settings of the tables at each address, by dimension; each address has a pool."""
    found: dict[DatabaseAddress, dict[str, PostgresSettings]] = {}
    for name, config in settings.dimensions.items():
        if isinstance(config.source, PostgresSource):
            found.setdefault(config.source.address, {})[name] = postgres_settings(config)
    return found


def _needs_publication(config: DimensionConfig) -> bool:
    changelog = config.refresh.changelog
    has_debezium = changelog and changelog.format is ChangelogFormat.DEBEZIUM_JSON
    return bool(changelog and has_debezium and changelog.publication != UNCHECKED)


def _postgres(config: DimensionConfig) -> PostgresSource:
    assert isinstance(config.source, PostgresSource)  # validated for each feed
    return config.source


def notifications_settings(
    name: str, config: DimensionConfig, *, file: Path | None = None
) -> PostgresNotificationsSettings:
    """Settings of the notifications; raises OSError if the table's address cannot be read.

    `file` is the configuration file, for the command in messages.
    """
    source, listen = _postgres(config), config.refresh.listen or Notifications()
    return PostgresNotificationsSettings(
        source.read_dsn(),
        source.relation,
        listen.channel_of(name),
        script=trigger_script(name, file),
        connect_timeout_s=source.read_connect_timeout_s() or CONNECT_TIMEOUT_S,
        dsn_now=_dsn_now(source),
    )


def trigger_script(name: str, file: Path | None) -> str:
    """The command that prints the triggers of this dimension; works in any folder."""
    config = () if file is None else ("--config", str(file.absolute()))
    return f"{program_name()} {shlex.join(('gen-triggers', name, *config))}"


def kafka_settings(changelog: Changelog) -> KafkaSettings:
    """Settings of the changelog's consumer; raises OSError if a secret cannot be read."""
    security = changelog.security
    return KafkaSettings(
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


def event_origins(changelog: Changelog, origin: TableOrigin) -> EventOrigins:
    """Which events of the topic are of the table."""
    # Events of a subscribed table may name the publisher's database.
    own = None if origin.is_subscribed else origin.database
    return EventOrigins(
        origin.name,
        database=changelog.database or own,
        server=changelog.server or _server_of_topics(changelog, origin.name),
        is_server_configured=changelog.server is not None,
    )


def _server_of_topics(changelog: Changelog, table: str) -> str | None:
    """The connector's `topic.prefix`, if a topic has the name that Debezium gives it."""
    heartbeats = changelog.heartbeat_topic or ""
    if heartbeats.startswith(_HEARTBEATS):
        return heartbeats.removeprefix(_HEARTBEATS)
    topic, ending = changelog.topic, f".{table}"
    return topic.removesuffix(ending) if topic.endswith(ending) else None


def _dsn_now(source: PostgresSource) -> Callable[[], str] | None:
    if source.dsn_file is None:
        return None
    return RotatedDsn(source.dsn_file, source.read_new_dsn, first=source.read_dsn()).now


def _protocol(security: Security) -> str:
    transport = "SSL" if security.tls else "PLAINTEXT"
    return transport if security.mechanism is None else f"SASL_{transport}"
