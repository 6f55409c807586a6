"""Connections to a cluster that is not there; tests/integration has one that is."""

import asyncio

import pytest
from aiokafka.errors import KafkaConnectionError

from service.connectors.kafka.consumer import KafkaClient
from service.connectors.kafka.settings import KafkaSettings

NOBODY = KafkaSettings(("127.0.0.1:1",), "planes")


async def test_unknown_brokers_cannot_be_asked() -> None:
    """Before it is connected, there is nobody to ask for the topic."""
    client = KafkaClient(NOBODY)

    with pytest.raises(KafkaConnectionError):
        await client.refresh()

    assert client.topic_ids == {}


async def test_login_fails_with_its_own_reason() -> None:
    """Where the library says only that it could not connect, what a connection raises is told."""
    settings = KafkaSettings(
        NOBODY.brokers,
        NOBODY.topic,
        security_protocol="SASL_PLAINTEXT",
        sasl_user="reader",
        sasl_password="opens-sesame",
    )

    with pytest.raises(ConnectionRefusedError):
        await KafkaClient(settings).bootstrap()


async def test_failed_refresh_is_not_raised_in_the_background() -> None:
    """The library's own task goes on asking, with a rest."""
    client, loop = KafkaClient(NOBODY), asyncio.get_running_loop()
    began = loop.time()

    is_known = await client._metadata_update(client.cluster, {"planes"})

    assert not is_known
    assert loop.time() - began > 0.05
