"""Changelog source: a Kafka topic, with its partitions as splits."""

from collections.abc import Callable, Sequence
from typing import Self

from lookup_core.changelog.change_decoder import ChangeDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.splits import ReadingMode
from service.connectors.kafka.assignment import KafkaPartition, KafkaTopic, partition_id
from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.errors import mapped_errors
from service.connectors.kafka.reader import KafkaReader
from service.connectors.kafka.settings import KafkaSettings


class KafkaEnumerator:
    """Lists the partitions of the topic, from current metadata."""

    def __init__(self, settings: KafkaSettings, topic: KafkaTopic) -> None:
        self.discovery_interval_s = settings.discovery_interval_s
        self._settings = settings
        self._topic = topic

    async def __aenter__(self) -> Self:
        """Connect; raises BackendError."""
        self._consumer = await KafkaConsumer.opened(self._settings)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._consumer.close()

    async def discover(self) -> Sequence[KafkaPartition]:
        """All partitions; raises BackendError, also if the topic does not exist."""
        with mapped_errors(self._settings):
            await self._consumer.client.refresh()
            addresses = self._consumer.changelog_partitions()
            if self._topic.begins is None:
                recent = await self._consumer.recent_offsets(addresses)
                self._topic.begins = {partition_id(each): at for each, at in recent.items()}
        named = {partition_id(each): each for each in addresses}
        return [KafkaPartition(id_, each, self._topic.begin(id_)) for id_, each in named.items()]


class KafkaChangelog:
    """Unbounded; begins `lookback_s` and `lookback_messages` before its first discovery."""

    is_bounded = False
    reading_mode = ReadingMode.MULTIPLEXED

    def __init__(
        self, settings: KafkaSettings, decoder: Callable[[DimensionSchema], ChangeDecoder]
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._topic = KafkaTopic()

    def enumerator(self, schema: DimensionSchema) -> KafkaEnumerator:  # noqa: ARG002  # of the port
        """An enumerator of the partitions, not opened yet."""
        return KafkaEnumerator(self._settings, self._topic)

    def reader(self, schema: DimensionSchema) -> KafkaReader:
        """A reader of all partitions, not opened yet."""
        return KafkaReader(self._settings, self._decoder(schema), topic=self._topic)
