"""A consumer of partitions that we choose, without a group, that closes in time.

Decides nothing: what is read from where, and what it means, stands in the reader.
"""

import asyncio
from collections.abc import Awaitable
from typing import Self

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from service.sources.kafka_client import KafkaClient
from service.sources.kafka_errors import mapped_errors
from service.sources.kafka_settings import RETRY_BACKOFF_MS, KafkaSettings

log = structlog.get_logger()

_CLOSE_TIMEOUT_S = 1.0


class KafkaConsumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """A consumer of committed messages; to be opened with `start` and closed with `close`."""

    def __init__(self, settings: KafkaSettings) -> None:
        client = KafkaClient(settings)  # first: if it raises, there is nothing to close
        super().__init__(
            group_id=None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_bytes=settings.fetch_bytes,
            max_partition_fetch_bytes=settings.partition_fetch_bytes,
            request_timeout_ms=round(settings.request_timeout_s * 1000),
            retry_backoff_ms=RETRY_BACKOFF_MS,
        )
        # In place of its own, which has not connected yet: that one would create topics.
        self.client = self._client = client
        self._topic = settings.topic

    @classmethod
    async def opened(cls, settings: KafkaSettings) -> Self:
        """A consumer that is connected, to be closed with `close`; raises BackendError."""
        with mapped_errors(settings):
            consumer = cls(settings)
            try:
                await consumer.start()
            except BaseException:
                await consumer.close()
                raise
        return consumer

    async def start(self) -> None:
        """Connect, and learn what there is of our topics; raises what `mapped_errors` maps."""
        await super().start()
        await self.client.refresh()

    def changelog_partitions(self) -> list[TopicPartition]:
        """What the last metadata told of the topic; raises KafkaError if it cannot be read."""
        if self._topic in self.client.cluster.unauthorized_topics:
            raise TopicAuthorizationFailedError(self._topic)
        if self._topic not in self.client.topic_ids:
            raise UnknownTopicOrPartitionError(self._topic)
        numbers = self.partitions_for_topic(self._topic)
        return [TopicPartition(self._topic, number) for number in sorted(numbers)]

    async def close(self) -> None:
        """Disconnect, after a second at the latest, whatever the brokers do; never raises."""
        await self._within_time(self.stop())
        # `stop` comes to no end when a request of its was cut off: it raises CancelledError.
        await self._within_time(self.client.close())

    async def _within_time(self, closing: Awaitable[None]) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S / 2):
                await closing
        except asyncio.CancelledError:
            if task.cancelling():
                raise
        except (KafkaError, OSError) as error:  # TimeoutError, too
            log.debug("kafka.not_closed", error=repr(error))
