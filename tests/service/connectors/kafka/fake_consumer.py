"""Fake consumer without brokers: returns what a test sets, and records requests."""

from collections.abc import Iterable, Sequence

from aiokafka import TopicPartition
from aiokafka.errors import UnknownTopicOrPartitionError

from service.connectors.kafka.settings import KafkaSettings

ONE, TWO = b"1" * 16, b"2" * 16  # ids of topics


class FakeConsumer:
    """The topic has this number of partitions; each has a begin and an end."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.topic_ids: dict[str, bytes] = {settings.topic: ONE}
        self.counts = {settings.topic: 1}  # {topic: partitions}
        self.ranges: dict[TopicPartition, tuple[int, int]] = {}  # {partition: begin, end}
        self.positions: dict[TopicPartition, int] = {}  # of assigned partitions
        self.paused: set[TopicPartition] = set()
        self.refreshed_total = 0
        self.assigned_total = 0
        self._topic = settings.topic

    @property
    def client(self) -> "FakeConsumer":
        """Its connections: itself."""
        return self

    async def refresh(self) -> None:
        """Count a request for metadata."""
        self.refreshed_total += 1

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of its partitions."""
        return set(range(self.counts[topic])) if topic in self.counts else None

    def changelog_partitions(self) -> list[TopicPartition]:
        """The partitions of the topic; raises if the topic does not exist."""
        if self._topic not in self.topic_ids:
            raise UnknownTopicOrPartitionError(self._topic)
        return [TopicPartition(self._topic, each) for each in range(self.counts[self._topic])]

    async def beginning_offsets(self, addresses: Sequence[TopicPartition]) -> dict[object, int]:
        """The first offsets."""
        return {each: self.ranges.get(each, (0, 0))[0] for each in addresses}

    async def end_offsets(self, addresses: Sequence[TopicPartition]) -> dict[object, int]:
        """The offsets behind the last message."""
        return {each: self.ranges.get(each, (0, 0))[1] for each in addresses}

    async def recent_offsets(self, addresses: Sequence[TopicPartition]) -> dict[object, int]:
        """All messages are recent."""
        return await self.beginning_offsets(addresses)

    def assign(self, addresses: Sequence[TopicPartition]) -> None:
        """Replace the assignment; pauses are lost."""
        self.assigned_total += 1
        self.positions = dict.fromkeys(addresses, -1)
        self.paused = set()

    def seek(self, address: TopicPartition, offset: int) -> None:
        """Set a position."""
        assert address in self.positions
        self.positions[address] = offset

    def pause(self, *addresses: TopicPartition) -> None:
        """Record a pause."""
        self._check_assigned(addresses)
        self.paused |= set(addresses)

    def resume(self, *addresses: TopicPartition) -> None:
        """Record the end of a pause."""
        self._check_assigned(addresses)
        self.paused -= set(addresses)

    async def position(self, address: TopicPartition) -> int:
        """The position of a partition."""
        return self.positions[address]

    def last_poll_timestamp(self, address: TopicPartition) -> int | None:
        """No broker answered."""
        self._check_assigned([address])
        return None

    highwater = last_stable_offset = last_poll_timestamp

    def _check_assigned(self, addresses: Iterable[TopicPartition]) -> None:
        assert set(addresses) <= self.positions.keys()
