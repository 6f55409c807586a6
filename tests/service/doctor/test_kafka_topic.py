"""Asking brokers for a topic; for real ones see tests/integration/test_doctor_kafka.py."""

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.settings import KafkaSettings
from service.doctor.backends.kafka_check import read_kafka_topic


async def test_brokers_that_are_away_are_an_error() -> None:
    """Nobody there is an error of the source, as the sidecar has it."""
    with pytest.raises(BackendError) as caught:
        await read_kafka_topic(KafkaSettings(("127.0.0.1:1",), "t"))

    assert caught.value.code is ErrorCode.BACKEND_UNAVAILABLE
