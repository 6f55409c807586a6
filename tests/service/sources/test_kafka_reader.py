"""A reader that finds no broker; tests/integration has one."""

import asyncio

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.kafka.reader import KafkaReader
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.kafka.topic import KafkaTopic
from tests.service.sources.keys_decoder import KeysDecoder

NOBODY = KafkaSettings(("127.0.0.1:1",), "planes")


async def test_nobody_at_the_address_is_an_error() -> None:
    """It cannot be opened, says whom it did not find, and leaves nothing behind."""
    others = asyncio.all_tasks()

    with pytest.raises(BackendError) as caught:
        await KafkaReader(NOBODY, KeysDecoder(), topic=KafkaTopic()).__aenter__()

    assert caught.value.code == ErrorCode.BACKEND_UNAVAILABLE
    assert "127.0.0.1:1" in caught.value.detail
    assert asyncio.all_tasks() == others
