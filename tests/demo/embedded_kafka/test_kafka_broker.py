"""A real broker: its life and its data."""

from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker, KafkaUnavailable
from demo.embedded_kafka.kafka_topics import create_topic, delete_topic, enlarge_topic, topic_names

pytestmark = pytest.mark.full


async def test_killed_broker_keeps_ports_and_data(broker: KafkaBroker) -> None:
    """Started again, it is the same broker at the same address."""
    await create_topic(broker.address, "kept")
    address = broker.address

    broker.kill()
    broker.start()

    assert broker.address == address
    assert "kept" in await topic_names(broker.address)


async def test_frozen_broker_goes_on(broker: KafkaBroker) -> None:
    """What it was asked meanwhile it answers when it is thawed."""
    broker.freeze()
    broker.thaw()

    await create_topic(broker.address, "thawed")
    await enlarge_topic(broker.address, "thawed", partitions=3)
    await delete_topic(broker.address, "thawed")

    assert "thawed" not in await topic_names(broker.address)


def test_broker_without_libraries_says_so(tmp_path: Path) -> None:
    """What does not start is an error with the log in it."""
    with pytest.raises(KafkaUnavailable, match=r"StorageTool"):
        KafkaBroker(tmp_path / "broker", libraries=tmp_path).start()
