"""Wiring: backends, sources, connector settings, tracer and instruments of a configuration."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from lookup_core.changelog.change_decoder import ChangeDecoder
from lookup_core.changelog.event_origin import EventOrigins
from lookup_core.dimension_schema import TableOrigin, VersionColumns
from lookup_core.statistics import InvalidationOrigin
from service.app import serving
from service.config.dimension import DimensionConfig
from service.config.refresh import Changelog
from service.config.settings import Settings
from service.connectors.kafka.changelog import KafkaChangelog
from service.connectors.parquet.backend import ParquetBackend, ParquetScan
from service.connectors.parquet.row_groups import ParquetRowGroups
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.notifications import PostgresNotifications
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.snapshot import PostgresSnapshot
from service.connectors.postgres.table import WatchedTable
from service.connectors.several_rows import RowMatch, RowVersions
from service.engine.refresher import RefreshSources
from service.engine.tracer import NullTracer
from service.observability.prometheus_observer import PrometheusObserver
from service.observability.tracing import OpenTelemetryTracer
from service.wiring.configured_parts import ConfiguredParts, database_shares
from service.wiring.configured_tracer import opened_tracer, query_attributes
from service.wiring.connector_settings import (
    event_origins,
    kafka_settings,
    notifications_settings,
    postgres_settings,
    trigger_script,
)
from tests.lookup_core.changelog.change_messages import listed, message, schema_of
from tests.service.config.configuration import (
    AIRPORTS,
    CHANGELOG,
    CUSTOMERS,
    MINIMAL,
    dimension,
    table,
)

FULL = {"mode": "full"}
ORIGIN = TableOrigin("shop", "Customers")
TELLING = replace(ORIGIN, reports_rows=True)
SOURCE = {"schema": "shop", "table": "Customers", "txId": 7}
ADDRESS = {"kind": "postgres", "table": "shop.t", "dsn": "postgresql://h/d", "require_index": True}


def decoder_of(mode: str, origin: TableOrigin) -> ChangeDecoder:
    """The decoder of Debezium's events for a dimension of this table."""
    refresh = {"changelog": CHANGELOG | {"format": "debezium_json"}}
    changes = ConfiguredParts("c", table(cache={"mode": mode}, refresh=refresh)).sources().changes
    source = changes and changes()
    assert isinstance(source, WatchedTable)
    assert isinstance(source._changes, KafkaChangelog)
    return source._changes._decoder(
        replace(schema_of({"id": pa.int64()}, {"name": pa.utf8()}), origin=origin)
    )


def test_table_is_queried_as_configured() -> None:
    """Every setting of the connector comes from the configuration, or from the address."""
    address = "postgresql://h/d?connect_timeout=9&search_path=shop"
    config = table(
        source=ADDRESS | {"dsn": address},
        key=["id"],
        columns=["a", "since"],
        versions={"valid_from": "since"},
        timeout="7s",
        refresh={"listen": {}},
    )

    assert postgres_settings(config, row_bytes=7) == PostgresSettings(
        "postgresql://h/d?search_path=shop",
        "shop.t",
        ("id",),
        ("a", "since"),
        connect_timeout_s=9.0,
        row_bytes=7,
        statement_timeout_s=7.0,
        has_several_rows=True,
        versions=VersionColumns("since"),
        is_followed=True,
        has_triggers=True,
        require_index=True,
    )


def test_dimensions_of_one_address_share_a_pool(tmp_path: Path) -> None:
    """Equal addresses have one pool, with the configured size and the longest timeout."""
    file = tmp_path / "dsn"
    file.write_text("postgresql://h/d")
    file.chmod(0o600)
    tables = {
        "a": table(source=ADDRESS),
        "b": table(source=ADDRESS | {"table": "shop.u"}, timeout="9s"),
        "c": table(source=ADDRESS | {"pgbouncer": True}),
        "d": table(source={"kind": "postgres", "table": "t", "dsn_file": str(file)}),
    }
    limits = {"database_connections": 3}
    airports = {"airports": AIRPORTS}  # in a file

    shares = database_shares(Settings({"limits": limits, "dimensions": airports | tables}))

    pools = [shares[name].pool for name in tables]
    assert [pools.index(each) for each in pools] == [0, 0, 2, 3]
    settings = [each.settings for each in pools]
    assert [(each.max_connections, each.statement_timeout_s) for each in settings] == [
        *[(3, 9.0)] * 2,
        *[(3, 2.0)] * 2,
    ]
    assert [shares[name].connections.limit for name in tables] == [2, 2, 3, 3]
    assert list(shares) == list(tables)


QUERY = {"kind": "postgres", "dsn": "postgresql://h/d", "query": "SELECT 1 AS id, 2 AS a"}


@pytest.mark.parametrize(
    ("source", "publication", "expected"),
    [
        (ADDRESS | {"where": "is_open"}, None, ("shop.t", None, "is_open", True, None)),
        (ADDRESS, "p", ("shop.t", None, None, True, "p")),
        (ADDRESS, "none", ("shop.t", None, None, False, "none")),
        (QUERY, "", ("source.query", QUERY["query"], None, False, None)),
    ],
)
def test_relation_and_publication_reach_the_connector(
    source: dict[str, Any], publication: str | None, expected: tuple[object, ...]
) -> None:
    """Any publication counts, or the named one; `none`, and no changelog, turn the check off."""
    changelog = CHANGELOG | {"format": "debezium_json", "publication": publication}
    refresh = {} if publication == "" else {"changelog": changelog}

    found = postgres_settings(table(source=source, refresh=refresh))

    needs = (found.needs_publication, found.publication)
    assert (found.table, found.query, found.where, *needs) == expected


def test_changes_come_from_the_feed() -> None:
    """The feed has a source and an origin; the backend knows whether it has a feed and triggers."""
    notified = ConfiguredParts("customers", table(refresh={"listen": {}})).sources()
    logged = ConfiguredParts("customers", table(refresh={"changelog": CHANGELOG})).sources()

    assert ConfiguredParts("customers", table()).sources() == RefreshSources()
    assert isinstance(notified.changes and notified.changes(), PostgresNotifications)
    assert isinstance(logged.changes and logged.changes(), WatchedTable)
    assert (notified.origin, logged.origin) == (
        InvalidationOrigin.NOTIFICATION,
        InvalidationOrigin.CHANGELOG,
    )
    followed = []
    refreshes: list[dict[str, object]] = [{}, {"listen": {}}, {"changelog": CHANGELOG}]
    for refresh in refreshes:
        backend = ConfiguredParts("c", table(refresh=refresh)).backend()
        assert isinstance(backend, PostgresBackend)
        followed.append((backend._settings.is_followed, backend._settings.has_triggers))
    assert followed == [(False, False), (True, True), (True, False)]


def test_notifications_know_their_triggers() -> None:
    """Channel, table and the command that prints the triggers reach the connector."""
    file = Path("/etc/a b.yaml")
    customers = table(refresh={"listen": {"channel": "shop"}})
    changes = ConfiguredParts("customers", customers, file=file).sources().changes

    source = changes and changes()
    default = notifications_settings("a", table(source=ADDRESS))

    assert isinstance(source, PostgresNotifications)
    command = "python -m service gen-triggers customers"
    assert source._settings.channel == "shop"
    assert source._settings.script == f"{command} --config '/etc/a b.yaml'"
    assert trigger_script("customers", None) == command
    assert trigger_script("a", Path("c.yaml")).endswith(f" --config {Path.cwd()}/c.yaml")
    assert (default.table, default.channel) == ("shop.t", "sidelook_a")


@pytest.mark.parametrize(
    ("tls", "mechanism", "protocol"),
    [
        (False, None, "PLAINTEXT"),
        (True, None, "SSL"),
        (False, "PLAIN", "SASL_PLAINTEXT"),
        (True, "SCRAM-SHA-256", "SASL_SSL"),
    ],
)
def test_brokers_are_reached_as_configured(
    *, tmp_path: Path, tls: bool, mechanism: str | None, protocol: str
) -> None:
    """TLS and login determine the protocol; the password is read from its file."""
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    password.chmod(0o400)
    login = {"mechanism": mechanism, "username": "me", "password_file": str(password)}
    security = {"tls": tls} | (login if mechanism else {})

    settings = kafka_settings(Changelog.model_validate(CHANGELOG | {"security": security}))

    found = (settings.security_protocol, settings.sasl_password, settings.sasl_user)
    assert found == ((protocol, "s3cret", "me") if mechanism else (protocol, None, None))


@pytest.mark.parametrize(
    ("config", "kind", "whole"),
    [
        (dimension(), ParquetBackend, None),
        (dimension(cache=FULL), ParquetScan, ParquetRowGroups),
        (table(), PostgresBackend, None),
        (table(cache=FULL), PostgresBackend, PostgresSnapshot),
        (table(match="all"), RowMatch, None),
        (table(versions={"valid_from": "since"}), RowVersions, None),
    ],
)
def test_backend_is_of_the_configured_kind(
    config: DimensionConfig, kind: type, whole: type | None
) -> None:
    """In full mode a table is read by ranges of its key, a file by row groups, and not held too."""
    parts = ConfiguredParts("c", config)
    source = parts.sources().table

    assert type(parts.backend()) is kind
    assert type(source) is (whole or type(None))


@pytest.mark.parametrize(
    ("config", "events"),
    [
        (table(cache=FULL), ["dimension.loaded_once"]),
        (table(cache=FULL, refresh={"reload": {"every": "1h"}}), []),
        (table(cache=FULL, refresh={"listen": {}}), []),
        (table(), []),
        (dimension(cache=FULL), []),  # a file may never change
    ],
)
def test_table_that_is_loaded_once_is_logged(config: DimensionConfig, events: list[str]) -> None:
    """A full table without a refresh ages, and the log has the remedies."""
    with capture_logs() as logs:
        ConfiguredParts("customers", config).sources()

    assert [entry["event"] for entry in logs] == events
    assert all("refresh.reload" in entry["remedy"] for entry in logs)


@pytest.mark.parametrize(
    ("mode", "origin", "expected"),
    [
        ("full", TELLING, {"name": "Ada"}),
        ("full", ORIGIN, "changed"),
        ("partial", TELLING, "changed"),
    ],
)
def test_rows_are_applied_if_certain(mode: str, origin: TableOrigin, expected: object) -> None:
    """Full mode applies rows of events if the catalog permits it, and only of its own table."""
    row = {"id": 1, "name": "Ada"}
    events = [
        message({"id": 1}, {"op": "c", "after": row, "source": source})
        for source in (SOURCE, SOURCE | {"table": "customers"})
    ]

    decoded = decoder_of(mode, origin).decode(events)

    assert (listed([*decoded.changes]), decoded.ignored) == ([((1,), expected, 7)], 1)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, (ORIGIN.name, "shop_db", None, False)),
        ({"topic": "a.b.shop.Customers"}, (ORIGIN.name, "shop_db", "a.b", False)),
        (
            {"topic": "a.shop.Customers", "heartbeat_topic": "__debezium-heartbeat.c"},
            (ORIGIN.name, "shop_db", "c", False),
        ),
        ({"database": "d", "server": "e"}, (ORIGIN.name, "d", "e", True)),
    ],
)
def test_server_of_events_is_known(
    changed: dict[str, str], expected: tuple[str, str, str | None, bool]
) -> None:
    """The server is the configured one, or that of the names of the topics."""
    changelog = Changelog.model_validate(CHANGELOG | changed)

    origins = event_origins(changelog, replace(ORIGIN, database="shop_db"))

    assert origins == EventOrigins(*expected)


def test_full_identity_reaches_the_decoder() -> None:
    """If events have all former values, they include the former key of a row."""
    before = {"id": 1, "name": "Ada"}
    event = message({"number": 5}, {"op": "d", "before": before, "source": SOURCE})

    found = [
        listed([*decoder_of("partial", origin).decode([event]).changes])
        for origin in (ORIGIN, replace(ORIGIN, has_full_identity=True))
    ]

    assert found == [[("table", 7)], [((1,), "changed", 7)]]


async def test_endpoint_switches_tracing_on() -> None:
    """Without an endpoint nothing is traced; queries have OpenTelemetry's attributes."""
    collector = {"tracing": {"endpoint": "http://127.0.0.1:9"}}  # nothing is sent there
    dimensions = Settings({"dimensions": {"customers": CUSTOMERS, "airports": AIRPORTS}})

    async with opened_tracer(Settings(MINIMAL), version="1") as off:
        assert isinstance(off, NullTracer)
    async with opened_tracer(Settings(collector, MINIMAL), version="1") as on:
        assert isinstance(on, OpenTelemetryTracer)
    assert query_attributes(dimensions) == {
        "airports": {},
        "customers": {
            "db.system.name": "postgresql",
            "db.operation.name": "SELECT",
            "db.collection.name": "public.customers",
        },
    }


def test_sidecar_shows_its_figures() -> None:
    """Metrics of process, streams and lookups are one text; memory is unknown at first."""
    served = serving(Settings(MINIMAL), {}, observer=PrometheusObserver(), tracer=NullTracer())
    process = served.parts.process

    resident = [process.resident_bytes()]
    served.guard.check()
    resident.append(process.resident_bytes())
    text = served.parts.metrics().decode()

    families = {family.name: family.samples for family in text_string_to_metric_families(text)}
    (read,) = families["sidelook_memory_resident_bytes"]
    assert (resident, read.value > 0) == ([0, read.value], True)
    assert {"sidelook_channels", "sidelook_lookup_seconds"} <= families.keys()
    assert not families["sidelook_tls_certificate_expiry_seconds"]
