"""Changelog source: a Kafka topic whose partitions are splits, found also while it runs."""

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from aiokafka import TopicPartition

from lookup_core.changelog.change_decoder import ChangeDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.splits import ReadingMode
from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.errors import mapped_errors
from service.connectors.kafka.reader import KafkaReader
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.kafka.topic import KafkaPartition, KafkaTopic, partition_id


class KafkaEnumerator:
    """Asks the brokers anew each time."""

    def __init__(self, settings: KafkaSettings, topic: KafkaTopic) -> None:
        self._settings = settings
        self._topic = topic

    @property
    def discovery_interval_s(self) -> float | None:
        """How soon a partition that is added is found."""
        return self._settings.discovery_interval_s

    async def __aenter__(self) -> Self:
        """Connect; raises BackendError."""
        self._consumer = await KafkaConsumer.opened(self._settings)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect, at the latest after a second; never raises."""
        await self._consumer.close()

    async def discover(self) -> Sequence[KafkaPartition]:
        """All partitions that there are now; raises BackendError, also if there is no topic."""
        with mapped_errors(self._settings):
            await self._consumer.client.refresh()
            addresses = self._consumer.changelog_partitions()
            if self._topic.begins is None:
                self._topic.begins = await self._recent(addresses)
        begin = self._topic.begin
        return [KafkaPartition.of(each, begin=begin(partition_id(each))) for each in addresses]

    async def _recent(self, addresses: Sequence[TopicPartition]) -> Mapping[str, int]:
        since_ms = int((time.time() - self._settings.lookback_s) * 1000)
        # The ends first: what comes between both questions must lie behind them.
        ends = await self._consumer.end_offsets(addresses)
        found = await self._consumer.offsets_for_times(dict.fromkeys(addresses, since_ms))
        firsts = await self._consumer.beginning_offsets(addresses)
        return {
            partition_id(address): max(
                (first.offset if first else ends[address]) - self._settings.lookback_messages,
                firsts[address],
            )
            for address, first in found.items()
        }


class KafkaChangelog:
    """Unbounded; begins a bit more than a minute before its partitions are looked for first."""

    def __init__(
        self, settings: KafkaSettings, decoder: Callable[[DimensionSchema], ChangeDecoder]
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._topic = KafkaTopic()

    @property
    def is_bounded(self) -> bool:
        """It has no end."""
        return False

    @property
    def reading_mode(self) -> ReadingMode:
        """One consumer reads all partitions."""
        return ReadingMode.MULTIPLEXED

    def enumerator(self, schema: DimensionSchema) -> KafkaEnumerator:  # noqa: ARG002  # of the port
        """What finds the partitions."""
        return KafkaEnumerator(self._settings, self._topic)

    def reader(self, schema: DimensionSchema) -> KafkaReader:
        """What reads them."""
        return KafkaReader(self._settings, self._decoder(schema), topic=self._topic)
