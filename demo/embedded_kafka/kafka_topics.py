"""Topic administration: create, enlarge, delete, truncate."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import InvalidReplicationFactorError, for_code

_SPREAD_TIMEOUT_S = 10.0
_POLL_INTERVAL_S = 0.01


async def create_topic(brokers: str, topic: str, *, partitions: int = 1) -> None:
    """Create an empty topic; raises KafkaError if it exists."""
    async with operating(brokers) as operator:
        _check(await _creation_errors(operator, NewTopic(topic, partitions, 1)))
        await _until(operator, lambda counts: counts.get(topic) == partitions)


async def delete_topic(brokers: str, topic: str) -> None:
    """Delete the topic and its records."""
    async with operating(brokers) as operator:
        reply = await operator.delete_topics([topic])
        _check(reply.topic_error_codes)
        await _until(operator, lambda counts: topic not in counts)


async def enlarge_topic(brokers: str, topic: str, *, partitions: int) -> None:
    """Add partitions to the topic, up to `partitions`."""
    async with operating(brokers) as operator:
        reply = await operator.create_partitions({topic: NewPartitions(partitions)})
        _check(reply.topic_errors)
        await _until(operator, lambda counts: counts.get(topic) == partitions)


async def delete_records(brokers: str, topic: str, *, before: int) -> None:
    """Delete the records of the first partition before an offset, as retention does."""
    partition = TopicPartition(topic, 0)
    async with operating(brokers) as operator:
        await operator.delete_records({partition: RecordsToDelete(before)})


async def has_controller(brokers: str) -> bool:
    """Return whether the cluster has a controller, which manages topics."""
    async with _client(brokers) as client:
        return _knows_controller(client)


@asynccontextmanager
async def operating(brokers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """Connect a client once the cluster has a controller, which the library does not wait for.

    A broker that was frozen has none for a moment.
    """
    async with _client(brokers) as client:
        async with asyncio.timeout(_SPREAD_TIMEOUT_S):
            while not _knows_controller(client):
                await client._client.force_metadata_update()  # noqa: SLF001
                await asyncio.sleep(_POLL_INTERVAL_S)
        yield client


@asynccontextmanager
async def _client(brokers: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=brokers)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


def _knows_controller(client: AIOKafkaAdminClient) -> bool:
    return client._client.cluster.controller is not None  # noqa: SLF001


async def _creation_errors(operator: AIOKafkaAdminClient, topic: NewTopic) -> list[tuple[str, int]]:
    # One replica is too many only while the controller does not know the broker.
    async with asyncio.timeout(_SPREAD_TIMEOUT_S):
        while True:
            errors = (await operator.create_topics([topic])).topic_errors
            if InvalidReplicationFactorError.errno not in {code for _, code, *_ in errors}:
                return errors
            await asyncio.sleep(_POLL_INTERVAL_S)


async def _until(
    operator: AIOKafkaAdminClient, is_done: Callable[[Mapping[str, int]], bool]
) -> None:
    # The broker learns of the controller's change a moment after the answer.
    async with asyncio.timeout(_SPREAD_TIMEOUT_S):
        while not is_done(await _partition_counts(operator)):  # noqa: ASYNC110  no event exists
            await asyncio.sleep(_POLL_INTERVAL_S)


async def _partition_counts(operator: AIOKafkaAdminClient) -> Mapping[str, int]:
    return {each["topic"]: len(each["partitions"]) for each in await operator.describe_topics()}


def _check(errors: list[tuple[str, int]]) -> None:
    for _, code, *_ in errors:
        if code:
            raise for_code(code)
