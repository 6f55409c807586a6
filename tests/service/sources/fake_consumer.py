"""A consumer without brokers, for tests of who uses one: it knows what it was told, and notes.

Not a model of fetching: nothing comes by itself.
"""

from collections.abc import Iterable, Sequence

from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from service.connectors.kafka.settings import KafkaSettings

ONE, TWO = b"1" * 16, b"2" * 16  # ids of topics


class FakeConsumer:
    """The topic has as many partitions as it is said to; each begins and ends somewhere."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.topic_ids: dict[str, bytes] = {settings.topic: ONE}
        self.counts = {settings.topic: 1}  # {topic: partitions}
        self.ranges: dict[TopicPartition, tuple[int, int]] = {}  # {partition: begin, end}
        self.positions: dict[TopicPartition, int] = {}  # of those that are assigned
        self.paused: set[TopicPartition] = set()
        self.refreshed_total = 0
        self.assigned_total = 0
        self._topic = settings.topic

    @property
    def client(self) -> "FakeConsumer":
        """Its connections, which it is itself."""
        return self

    async def refresh(self) -> None:
        """Count it."""
        self.refreshed_total += 1

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Their numbers."""
        return set(range(self.counts[topic])) if topic in self.counts else None

    def changelog_partitions(self) -> list[TopicPartition]:
        """As the real one does."""
        if self._topic not in self.topic_ids:
            raise UnknownTopicOrPartitionError(self._topic)
        return [TopicPartition(self._topic, each) for each in range(self.counts[self._topic])]

    async def beginning_offsets(self, addresses: Sequence[TopicPartition]) -> dict[object, int]:
        """Where they begin."""
        return {each: self.ranges.get(each, (0, 0))[0] for each in addresses}

    async def end_offsets(self, addresses: Sequence[TopicPartition]) -> dict[object, int]:
        """Where they end."""
        return {each: self.ranges.get(each, (0, 0))[1] for each in addresses}

    def assign(self, addresses: Sequence[TopicPartition]) -> None:
        """Forget what was before, pauses included."""
        self.assigned_total += 1
        self.positions = dict.fromkeys(addresses, -1)
        self.paused = set()

    def seek(self, address: TopicPartition, offset: int) -> None:
        """Go there."""
        assert address in self.positions
        self.positions[address] = offset

    def pause(self, *addresses: TopicPartition) -> None:
        """Note it."""
        self._check_assigned(addresses)
        self.paused |= set(addresses)

    def resume(self, *addresses: TopicPartition) -> None:
        """Note it."""
        self._check_assigned(addresses)
        self.paused -= set(addresses)

    async def position(self, address: TopicPartition) -> int:
        """Where it is."""
        return self.positions[address]

    def last_poll_timestamp(self, address: TopicPartition) -> int | None:
        """Nobody has answered."""
        self._check_assigned([address])
        return None

    highwater = last_stable_offset = last_poll_timestamp

    def _check_assigned(self, addresses: Iterable[TopicPartition]) -> None:
        assert set(addresses) <= self.positions.keys()
