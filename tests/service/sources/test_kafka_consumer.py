"""A consumer that is closed, however far it came; tests/integration has brokers that die."""

import asyncio

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.settings import KafkaSettings

NOBODY = KafkaSettings(("127.0.0.1:1",), "planes")


async def test_closing_twice_is_harmless() -> None:
    """Nothing is left of a consumer that never found its broker."""
    consumer, others = KafkaConsumer(NOBODY), asyncio.all_tasks()
    with pytest.raises(KafkaConnectionError):
        await consumer.start()

    await consumer.close()
    await consumer.close()

    assert asyncio.all_tasks() == others


async def test_unknown_topic_has_no_partitions() -> None:
    """A topic that no metadata tells of, and one that may not be seen, are two errors."""
    consumer = KafkaConsumer(NOBODY)

    with pytest.raises(UnknownTopicOrPartitionError):
        consumer.changelog_partitions()
    consumer.client.cluster.unauthorized_topics.add("planes")
    with pytest.raises(TopicAuthorizationFailedError):
        consumer.changelog_partitions()
    await consumer.close()


async def hangs() -> None:
    """Something that does not close."""
    await asyncio.Event().wait()


async def fails() -> None:
    """Something whose connection breaks as it closes."""
    raise KafkaConnectionError


async def ends_cancelled() -> None:
    """What aiokafka's `stop` does when a request was cut off: nobody cancelled the caller."""
    raise asyncio.CancelledError


@pytest.mark.parametrize("closing", [hangs, fails, ends_cancelled])
async def test_closing_never_raises(closing: object) -> None:
    """Whatever a dead broker makes of it, closing is over in time."""
    consumer = KafkaConsumer(NOBODY)

    async with asyncio.timeout(2.0):
        await consumer._within_time(closing())  # type: ignore[operator]  # one of the above
    await consumer.close()


async def test_cancelled_closing_is_cancelled() -> None:
    """A caller that was told to stop is not held up."""
    consumer = KafkaConsumer(NOBODY)
    task = asyncio.create_task(consumer._within_time(hangs()))
    await asyncio.sleep(0)

    task.cancel()
    await asyncio.wait([task])
    await consumer.close()

    assert task.cancelled()
