"""Where a changelog is, and how it is read."""

from pathlib import Path

import pytest

from lookup_core.changelog.format import ChangelogFormat
from service.config.refresh import Changelog, Security
from tests.service.config.configuration import table_faults

CHANGELOG = {"brokers": ["kafka:9092"], "topic": "shop.customers", "format": "upsert_json"}


def changelog_faults(**values: object) -> list[str]:
    """What is wrong with these values of a changelog, without the way to it."""
    found = table_faults(refresh={"changelog": CHANGELOG | values})
    return [fault.removeprefix("refresh.changelog.") for fault in found]


def test_little_suffices() -> None:
    """Brokers, topic and format make a changelog; nothing is secured that nobody asked for."""
    changelog = Changelog.model_validate(CHANGELOG)

    assert (changelog.brokers, changelog.topic) == (("kafka:9092",), "shop.customers")
    assert (changelog.format, changelog.security) == (ChangelogFormat.UPSERT_JSON, Security())


def test_format_is_never_guessed() -> None:
    """A changelog that is read as another one would delete the wrong keys."""
    assert changelog_faults(format="avro") == ["format: must be 'debezium_json' or 'upsert_json'"]


@pytest.mark.parametrize(("brokers", "fault"), [([], "must not be empty"), (["kafka"], "'kafka'")])
def test_brokers_are_addresses(brokers: list[str], fault: str) -> None:
    """Each has a host and a port, and there is one at least."""
    [found] = changelog_faults(brokers=brokers)

    assert found.startswith(f"brokers: {fault}")


def test_topic_is_kafkas_name() -> None:
    """What Kafka would refuse is refused here."""
    [fault] = changelog_faults(topic="shop/customers")

    assert fault.startswith("topic: ")


def test_login_is_given_as_a_whole() -> None:
    """A name without a password, or a password for nobody, is a typing error."""
    assert changelog_faults(security={"username": "sidelook", "password_file": None}) == [
        "security.password_file: give all or none of mechanism, username and password_file"
    ]


def test_certificates_are_for_tls() -> None:
    """A file that nobody would read is a mistake."""
    assert changelog_faults(security={"ca_file": "/etc/ca.pem"}) == [
        "security.ca_file: has no effect without tls: true"
    ]


def test_password_is_read_from_its_file(tmp_path: Path) -> None:
    """A new password counts from the next connection on."""
    file = tmp_path / "password"
    file.write_text("secret\n")
    file.chmod(0o600)
    login = {"mechanism": "PLAIN", "username": "sidelook", "password_file": str(file)}

    assert (Security.model_validate(login).read_password(), Security().read_password()) == (
        "secret",
        None,
    )


def test_heartbeats_have_their_own_topic() -> None:
    """Without one nothing could be too old, and the topic of the changes is none."""
    assert changelog_faults(max_staleness="1m") == [
        "max_staleness: has no effect without changelog.heartbeat_topic"
    ]
    assert changelog_faults(heartbeat_topic="shop.customers") == [
        "heartbeat_topic: is the topic of the changes; heartbeats have one of their own"
    ]
