"""What a dimension's configuration is made of: its store, and its sources."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import ChangeDecoder
from lookup_core.dimension_schema import TableOrigin
from lookup_core.statistics import InvalidationOrigin
from service.config.dimension import DimensionConfig
from service.connectors.kafka.changelog import KafkaChangelog
from service.connectors.parquet.backend import ParquetBackend, ParquetScan
from service.connectors.parquet.row_groups import ParquetRowGroups
from service.connectors.ports.several_rows import RowMatch, RowVersions
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications_source import PostgresNotifications
from service.connectors.postgres.snapshot_source import PostgresSnapshot
from service.dimension_parts import dimension_backend, refresh_sources
from service.engine.refresher import RefreshSources
from tests.lookup_core.changelog.change_messages import message, schema_of, told
from tests.service.config.configuration import dimension, table
from tests.service.config.test_changelog import CHANGELOG

FULL = {"mode": "full"}
ORIGIN = TableOrigin("shop", "Customers")
TELLING = replace(ORIGIN, tells_rows=True)
SOURCE = {"schema": "shop", "table": "Customers", "txId": 7}


def decoder_of(mode: str, origin: TableOrigin) -> ChangeDecoder:
    """What decodes Debezium's events for a dimension of this table."""
    refresh = {"changelog": CHANGELOG | {"format": "debezium_json"}}
    changes = refresh_sources("c", table(cache={"mode": mode}, refresh=refresh)).changes
    source = changes and changes()
    assert isinstance(source, KafkaChangelog)
    return source._decoder(
        replace(schema_of({"id": pa.int64()}, {"name": pa.utf8()}), origin=origin)
    )


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (dimension(), ParquetBackend),
        (dimension(cache=FULL), ParquetScan),
        (table(), PostgresBackend),
        (table(match="all"), RowMatch),
        (table(versions={"valid_from": "since"}), RowVersions),
    ],
)
def test_store_is_of_the_configured_kind(config: DimensionConfig, kind: type) -> None:
    """Several rows of a key are put together, in the way that is asked for.

    What is held whole is not held a second time.
    """
    assert type(dimension_backend(config)) is kind


def test_nothing_is_followed_unasked() -> None:
    """Rows that are read through and expire need no source."""
    assert refresh_sources("customers", table()) == RefreshSources()


def test_changes_come_from_the_feed() -> None:
    """Who is said to have told them is told by the metrics."""
    notified = refresh_sources("customers", table(refresh={"listen": {}}))
    logged = refresh_sources("customers", table(refresh={"changelog": CHANGELOG}))

    assert isinstance(notified.changes and notified.changes(), PostgresNotifications)
    assert isinstance(logged.changes and logged.changes(), KafkaChangelog)
    assert (notified.origin, logged.origin) == (
        InvalidationOrigin.NOTIFICATION,
        InvalidationOrigin.CHANGELOG,
    )


@pytest.mark.parametrize(
    ("file", "config"), [(None, ""), (Path("/etc/a b.yaml"), " --config '/etc/a b.yaml'")]
)
def test_feed_knows_what_prints_its_triggers(file: Path | None, config: str) -> None:
    """Where triggers are missing, people are told the command, as a shell takes it."""
    customers = table(refresh={"listen": {"channel": "told"}})

    changes = refresh_sources("customers", customers, file=file).changes

    source = changes and changes()
    assert isinstance(source, PostgresNotifications)
    script = f"python -m service gen-triggers customers{config}"
    assert (source._settings.script, source._settings.channel) == (script, "told")


def test_whole_table_is_read_from_its_store() -> None:
    """By ranges of its key, or by row groups."""
    tables = [refresh_sources("c", config(cache=FULL)).table for config in (table, dimension)]

    assert [type(each) for each in tables] == [PostgresSnapshot, ParquetRowGroups]


@pytest.mark.parametrize(
    ("config", "events"),
    [
        (table(cache=FULL), ["dimension.loaded_once"]),
        (table(cache=FULL, refresh={"reload": {"every": "1h"}}), []),
        (table(cache=FULL, refresh={"listen": {}}), []),
        (table(), []),
        (dimension(cache=FULL), []),  # a file may be for good
    ],
)
def test_table_that_is_loaded_once_is_told(config: DimensionConfig, events: list[str]) -> None:
    """A table that is held whole, and never refreshed, gets older and older: the log says so."""
    with capture_logs() as logs:
        refresh_sources("customers", config)

    assert [entry["event"] for entry in logs] == events
    assert all("refresh.reload" in entry["remedy"] for entry in logs)


@pytest.mark.parametrize("refresh", [{}, {"listen": {}}, {"changelog": CHANGELOG}])
def test_store_knows_how_it_is_followed(refresh: dict[str, Any]) -> None:
    """What its rows must come with, and which tables it must refuse, depends on it."""
    store = dimension_backend(table(refresh=refresh))

    assert isinstance(store, PostgresBackend)
    assert store._settings.is_followed == bool(refresh)
    assert store._settings.has_triggers == ("listen" in refresh)


@pytest.mark.parametrize(
    ("mode", "origin", "expected"),
    [
        ("full", TELLING, {"name": "Ada"}),
        ("full", ORIGIN, "changed"),
        ("partial", TELLING, "changed"),
    ],
)
def test_rows_are_taken_where_they_are_sure(
    mode: str, origin: TableOrigin, expected: object
) -> None:
    """In mode full, and if the catalog says so; the changes are those of the catalog's table."""
    row = {"id": 1, "name": "Ada"}
    events = [
        message({"id": 1}, {"op": "c", "after": row, "source": source})
        for source in (SOURCE, SOURCE | {"table": "customers"})
    ]

    decoded = decoder_of(mode, origin).decode(events)

    assert (told([*decoded.changes]), decoded.ignored) == ([((1,), expected, 7)], 1)


def test_full_identity_is_told_to_the_decoder() -> None:
    """The key that a row had is taken from its former values, if these are all known."""
    before = {"id": 1, "name": "Ada"}
    event = message({"number": 5}, {"op": "d", "before": before, "source": SOURCE})

    found = [
        told([*decoder_of("partial", origin).decode([event]).changes])
        for origin in (ORIGIN, replace(ORIGIN, has_full_identity=True))
    ]

    assert found == [[("table", 7)], [((1,), "changed", 7)]]


def test_brokers_are_reached_as_configured(tmp_path: Path) -> None:
    """TLS and login are two wishes; the password is read when the parts are made."""
    password = tmp_path / "password"
    password.write_text("secret")
    password.chmod(0o600)
    login = {"mechanism": "PLAIN", "username": "sidelook", "password_file": str(password)}
    protocols = []
    for security in ({}, {"tls": True}, login, login | {"tls": True}):
        refresh = {"changelog": CHANGELOG | {"security": security}}
        changes = refresh_sources("customers", table(refresh=refresh)).changes
        source = changes and changes()
        assert isinstance(source, KafkaChangelog)
        protocols.append((source._settings.security_protocol, source._settings.sasl_password))

    assert protocols == [
        ("PLAINTEXT", None),
        ("SSL", None),
        ("SASL_PLAINTEXT", "secret"),
        ("SASL_SSL", "secret"),
    ]
