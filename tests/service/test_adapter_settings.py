"""What adapters are told, out of a dimension's configuration."""

from pathlib import Path

import pytest

from lookup_core.dimension_schema import VersionColumns
from service.adapter_settings import (
    kafka_settings,
    notifications_settings,
    postgres_settings,
    trigger_script,
)
from service.config.refresh import Changelog, Notifications
from service.config.source import PostgresSource
from service.connectors.postgres.settings import PostgresSettings
from tests.service.config.configuration import table

SOURCE = {"kind": "postgres", "table": "shop.t", "dsn": "postgresql://h/d", "require_index": True}


def test_table_is_asked_as_configured() -> None:
    """Every setting that the adapter has comes from the configuration."""
    config = table(
        source=SOURCE,
        key=["id"],
        columns=["a", "since"],
        versions={"valid_from": "since"},
        batch={"max_in_flight": 3},
        timeout="7s",
        refresh={"listen": {}},
    )
    assert isinstance(config.source, PostgresSource)

    assert postgres_settings(config, config.source) == PostgresSettings(
        "postgresql://h/d",
        "shop.t",
        ("id",),
        ("a", "since"),
        max_connections=3,
        statement_timeout_s=7.0,
        has_several_rows=True,
        versions=VersionColumns("since"),
        is_followed=True,
        has_triggers=True,
        require_index=True,
    )


def test_channel_is_listened_to() -> None:
    """The channel's name is the dimension's, unless another one is given."""
    source = PostgresSource.model_validate(SOURCE)

    settings = notifications_settings("a", source, Notifications(), script="gen")

    assert (settings.table, settings.channel, settings.script) == ("shop.t", "sidelook_a", "gen")


def test_script_can_be_run_from_anywhere(tmp_path: Path) -> None:
    """It names the file by its whole path, quoted for a shell."""
    script = trigger_script("a", tmp_path / "my file.yaml")

    assert script == f"python -m service gen-triggers a --config '{tmp_path}/my file.yaml'"
    assert trigger_script("a", None) == "python -m service gen-triggers a"


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
    """TLS and login decide on the protocol; the password comes from its file."""
    password = tmp_path / "password"
    password.write_text("s3cret\n")
    password.chmod(0o400)
    login = {"mechanism": mechanism, "username": "me", "password_file": str(password)}
    security = {"tls": tls} | (login if mechanism else {})
    values = {"brokers": ["h:1"], "topic": "t", "format": "upsert_json", "security": security}

    settings = kafka_settings(Changelog.model_validate(values))

    assert settings.security_protocol == protocol
    assert settings.sasl_password == ("s3cret" if mechanism else None)
