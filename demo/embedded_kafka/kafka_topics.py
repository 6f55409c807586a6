"""What an operator does to topics: create, enlarge, delete, cut off.

Not for messages: who writes and who reads them has clients of its own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import for_code


async def create_topic(brokers: str, topic: str, *, partitions: int = 1) -> None:
    """Make an empty topic; raises KafkaError if it is there."""
    async with _operator(brokers) as operator:
        reply = await operator.create_topics([NewTopic(topic, partitions, 1)])
    _check(reply.topic_errors)


async def delete_topic(brokers: str, topic: str) -> None:
    """Delete the topic with all that it holds."""
    async with _operator(brokers) as operator:
        reply = await operator.delete_topics([topic])
    _check(reply.topic_error_codes)


async def enlarge_topic(brokers: str, topic: str, *, partitions: int) -> None:
    """Add partitions until there are so many."""
    async with _operator(brokers) as operator:
        reply = await operator.create_partitions({topic: NewPartitions(partitions)})
    _check(reply.topic_errors)


async def delete_records(brokers: str, topic: str, *, before: int) -> None:
    """Cut off the first partition before this offset, as retention does."""
    partition = TopicPartition(topic, 0)
    async with _operator(brokers) as operator:
        await operator.delete_records({partition: RecordsToDelete(before)})


async def topic_names(brokers: str) -> list[str]:
    """All topics that there are."""
    async with _operator(brokers) as operator:
        return list(await operator.list_topics())


@asynccontextmanager
async def _operator(brokers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    operator = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await operator.start()
    try:
        yield operator
    finally:
        await operator.close()


def _check(errors: list[tuple[str, int]]) -> None:
    for _, code, *_ in errors:
        if code:
            raise for_code(code)
