"""Who finds partitions, where there is no broker; tests/integration has one."""

from dataclasses import replace
from pathlib import Path

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.changelog import KafkaEnumerator
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.kafka.topic import KafkaTopic

NOBODY = KafkaSettings(("127.0.0.1:1",), "planes", discovery_interval_s=3.0)


async def test_nobody_at_the_address_is_an_error() -> None:
    """It cannot be opened, and has nothing to close."""
    with pytest.raises(BackendError) as caught:
        await KafkaEnumerator(NOBODY, KafkaTopic()).__aenter__()

    assert caught.value.code == ErrorCode.BACKEND_UNAVAILABLE


async def test_missing_certificate_is_an_error(tmp_path: Path) -> None:
    """Files that are named and not there are told as such, and nobody is asked without them."""
    settings = replace(NOBODY, security_protocol="SSL", ca_file=tmp_path / "ca.pem")

    with pytest.raises(BackendError) as caught:
        await KafkaEnumerator(settings, KafkaTopic()).__aenter__()

    assert caught.value.detail == f"{NOBODY.address}: a file of a certificate is missing"


def test_interval_is_that_of_the_settings() -> None:
    """New partitions are looked for as often as is configured."""
    assert KafkaEnumerator(NOBODY, KafkaTopic()).discovery_interval_s == 3.0
