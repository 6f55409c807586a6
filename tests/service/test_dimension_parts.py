"""What a dimension's configuration is made of: its store, and its sources."""

from pathlib import Path

import pytest

from lookup_core.statistics import InvalidationOrigin
from service.backends.parquet import ParquetBackend
from service.backends.postgres import PostgresBackend
from service.backends.row_match import RowMatch
from service.backends.row_versions import RowVersions
from service.config.dimension import DimensionConfig
from service.dimension_parts import dimension_backend, refresh_sources
from service.engine.runner_refresh import RefreshSources
from service.sources.kafka_changelog import KafkaChangelog
from service.sources.parquet_row_groups import ParquetRowGroups
from service.sources.postgres_notifications import PostgresNotifications
from service.sources.postgres_snapshot import PostgresSnapshot
from tests.service.config.configuration import dimension, table
from tests.service.config.test_changelog import CHANGELOG

FULL = {"mode": "full"}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (dimension(), ParquetBackend),
        (table(), PostgresBackend),
        (table(match="all"), RowMatch),
        (table(versions={"valid_from": "since"}), RowVersions),
    ],
)
def test_store_is_of_the_configured_kind(config: DimensionConfig, kind: type) -> None:
    """Several rows of a key are put together, in the way that is asked for."""
    assert type(dimension_backend(config)) is kind


def test_nothing_is_followed_unasked() -> None:
    """Rows that are read through and expire need no source."""
    assert refresh_sources("customers", table()) == RefreshSources()


def test_changes_come_from_the_feed() -> None:
    """Who is said to have told them is told by the metrics."""
    notified = refresh_sources("customers", table(refresh={"listen": {}}))
    logged = refresh_sources("customers", table(refresh={"changelog": CHANGELOG}))

    assert isinstance(notified.changes, PostgresNotifications)
    assert isinstance(logged.changes, KafkaChangelog)
    assert (notified.origin, logged.origin) == (
        InvalidationOrigin.NOTIFICATION,
        InvalidationOrigin.CHANGELOG,
    )


def test_whole_table_is_read_from_its_store() -> None:
    """By ranges of its key, or by row groups."""
    tables = [refresh_sources("c", config(cache=FULL)).table for config in (table, dimension)]

    assert [type(each) for each in tables] == [PostgresSnapshot, ParquetRowGroups]


def test_brokers_are_reached_as_configured(tmp_path: Path) -> None:
    """TLS and login are two wishes; the password is read when the parts are made."""
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    login = {"mechanism": "PLAIN", "username": "sidelook", "password_file": str(password)}
    protocols = []
    for security in ({}, {"tls": True}, login, login | {"tls": True}):
        refresh = {"changelog": CHANGELOG | {"security": security}}
        source = refresh_sources("customers", table(refresh=refresh)).changes
        assert isinstance(source, KafkaChangelog)
        protocols.append((source._settings.security_protocol, source._settings.sasl_password))

    assert protocols == [
        ("PLAINTEXT", None),
        ("SSL", None),
        ("SASL_PLAINTEXT", "secret"),
        ("SASL_SSL", "secret"),
    ]
