"""What an operator does to topics of a real broker."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic, delete_records, delete_topic

pytestmark = pytest.mark.full


async def test_refusals_of_the_broker_are_raised(broker: KafkaBroker) -> None:
    """A topic is made once, and one that is not there cannot be deleted."""
    await create_topic(broker.address, "twice")

    with pytest.raises(TopicAlreadyExistsError):
        await create_topic(broker.address, "twice")
    with pytest.raises(UnknownTopicOrPartitionError):
        await delete_topic(broker.address, "never")


async def test_records_are_cut_off(broker: KafkaBroker) -> None:
    """What lies before the offset is gone, as after the retention time."""
    await create_topic(broker.address, "cut")
    producer = AIOKafkaProducer(bootstrap_servers=broker.address)
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address)
    async with producer, consumer:
        for value in (b"one", b"two", b"three"):
            await producer.send_and_wait("cut", value)

        await delete_records(broker.address, "cut", before=2)
        begins = await consumer.beginning_offsets([TopicPartition("cut", 0)])

    assert begins == {TopicPartition("cut", 0): 2}
