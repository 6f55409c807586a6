"""A source of changes: a topic of Apache Kafka that tells them, such as Debezium's.

Its splits are the topic's partitions. There is no group: each reader reads all of them, and nothing
is committed.
"""

from collections.abc import Callable

from lookup_core.changelog.change_decoder import ChangeDecoder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.reading_mode import ReadingMode
from service.sources.kafka_enumerator import KafkaEnumerator
from service.sources.kafka_reader import KafkaReader
from service.sources.kafka_settings import KafkaSettings
from service.sources.kafka_topic import KafkaTopic


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
