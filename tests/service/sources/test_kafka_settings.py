"""How a topic is reached."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from service.connectors.kafka.settings import KafkaSettings

SETTINGS = KafkaSettings(("one:9092", "two:9092"), "planes")


def test_password_stays_out_of_texts() -> None:
    """Whoever prints the settings does not see the password."""
    settings = replace(SETTINGS, sasl_user="reader", sasl_password="opens-sesame")

    assert "opens-sesame" not in f"{settings} {settings!r} {settings.address}"


def test_address_names_topic_and_brokers() -> None:
    """People are told which topic, and where."""
    assert SETTINGS.address == "topic planes of one:9092, two:9092"


def test_heartbeats_are_a_topic_too() -> None:
    """Both topics are asked for, if there are heartbeats."""
    assert SETTINGS.topics == ("planes",)
    assert replace(SETTINGS, heartbeat_topic="beats").topics == ("planes", "beats")


def test_connection_is_plain_unless_asked() -> None:
    """Without TLS there is no context; user and password go as they are."""
    settings = replace(SETTINGS, security_protocol="SASL_PLAINTEXT", sasl_user="reader")

    assert settings.connection_options() == {
        "client_id": "sidelook",
        "request_timeout_ms": 10_000,
        "security_protocol": "SASL_PLAINTEXT",
        "ssl_context": None,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "reader",
        "sasl_plain_password": None,
    }


def test_tls_checks_the_name_of_the_broker() -> None:
    """With TLS a broker must show a certificate for its host."""
    context = replace(SETTINGS, security_protocol="SSL").connection_options()["ssl_context"]

    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname


def test_missing_authorities_are_an_error(tmp_path: Path) -> None:
    """A file that is not there is not passed over."""
    settings = replace(SETTINGS, security_protocol="SASL_SSL", ca_file=tmp_path / "ca.pem")

    with pytest.raises(FileNotFoundError):
        settings.connection_options()
