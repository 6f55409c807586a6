"""What one consumer reads: which partitions, from where, and which are paused.

Not what the messages say. A partition that cannot be read from where it should is read from its
beginning, and is said to be `restarted`: what was in between is lost.
"""

from collections.abc import Collection, Mapping

from aiokafka import TopicPartition

from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.progress import Clocks, KafkaProgress, Poll
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.kafka.topic import KafkaTopic

_FIRST = -1  # wherever the partition begins
_CUT_OFF = "what was to be read next is not in the changelog any more"
_OTHER_TOPIC = "the topic of the changelog is another one"


class KafkaAssignment:
    """The consumer's partitions: those of the changelog, and those of its heartbeats."""

    def __init__(
        self, consumer: KafkaConsumer, settings: KafkaSettings, *, topic: KafkaTopic
    ) -> None:
        self.progress: dict[TopicPartition, KafkaProgress] = {}  # of partitions that are read
        self.restarted: dict[TopicPartition, str] = {}  # {partition: why}, to be told
        self.waiting: dict[TopicPartition, int] = {}  # {partition: position}, those not yet read
        self.paused: frozenset[TopicPartition] = frozenset()
        self._heartbeats: frozenset[TopicPartition] = frozenset()
        self._is_outdated = False  # the consumer reads something else
        self._consumer = consumer
        self._settings = settings
        self._topic = topic
        self._topic_id = topic.id

    async def add(self, address: TopicPartition, *, position: int) -> None:
        """Read this partition, too, from the next `update` on; raises what `mapped_errors` maps."""
        self.waiting[address] = position
        if address not in self._consumer.changelog_partitions():
            await self._consumer.client.refresh()

    def lose(self, addresses: Collection[TopicPartition]) -> None:
        """Read these from their beginnings; of heartbeats, only the next ones count."""
        self._is_outdated = True
        self._heartbeats = self._heartbeats.difference(addresses)
        for address in addresses:
            if self.progress.pop(address, None) is not None:
                self._restart(address, _CUT_OFF)

    async def update(self, *, at: Clocks) -> None:
        """Follow what there is by now; raises what `mapped_errors` maps.

        Cancelled, it has to be called again before anything is read.
        """
        if self._settings.topic not in self._consumer.client.topic_ids:
            await self._consumer.client.refresh()  # it may be there again
        existing = self._consumer.changelog_partitions()
        self._follow_topic(self._consumer.client.topic_ids[self._settings.topic])
        due = {each: self.waiting[each] for each in existing if each in self.waiting}
        if due:
            await self._begin(due, at=at)
        self._follow_heartbeats()
        if self._is_outdated:
            await self._assign()

    def pause(self, addresses: Collection[TopicPartition], *, at: Clocks) -> None:
        """Read nothing of these, and all others."""
        resumed = self.paused.difference(addresses) & self.progress.keys()
        for address in resumed:
            self.progress[address].resumed(at=at)
        self.paused = frozenset(addresses)
        if not self._is_outdated:  # else the next `update` does it
            self._consumer.resume(*resumed)
            self._consumer.pause(*(self.paused & self.progress.keys()))

    def unanswered_s(self, *, at: Clocks) -> float:
        """How long no broker has answered, of those that are asked."""
        asked = self.progress.keys() - self.paused
        return min((self.progress[each].unanswered_s(at=at) for each in asked), default=0.0)

    async def look(self, *, at: Clocks) -> None:
        """Take over what the consumer knows; nothing is waited for."""
        consumer = self._consumer
        for address, progress in self.progress.items():
            poll = Poll(
                await consumer.position(address),
                consumer.last_poll_timestamp(address),
                consumer.highwater(address),
                consumer.last_stable_offset(address),
            )
            progress.look(poll, at=at)

    def note_told(self) -> None:
        """All that is read belongs to the topic that is there now, and who follows it knows."""
        if not self.restarted:
            self._topic.id = self._topic_id

    def _follow_topic(self, topic_id: bytes) -> None:
        if self._topic_id not in (None, topic_id):
            for address in [*self.progress, *self.waiting]:
                self._restart(address, _OTHER_TOPIC)
            self.progress.clear()
        self._topic_id = topic_id

    async def _begin(self, due: Mapping[TopicPartition, int], *, at: Clocks) -> None:
        firsts = await self._consumer.beginning_offsets(list(due))
        ends = await self._consumer.end_offsets(list(due))
        self._is_outdated = True
        for address, wanted in due.items():
            position = wanted
            if not firsts[address] <= wanted <= ends[address]:
                position = firsts[address]
                if wanted != _FIRST:
                    self.restarted[address] = _CUT_OFF
            self.progress[address] = KafkaProgress(position, end=ends[address], at=at)
            del self.waiting[address]

    def _restart(self, address: TopicPartition, reason: str) -> None:
        self.waiting[address] = _FIRST
        self.restarted[address] = reason

    def _follow_heartbeats(self) -> None:
        topic = self._settings.heartbeat_topic
        numbers = self._consumer.partitions_for_topic(topic) if topic else None
        found = frozenset(TopicPartition(topic, number) for number in numbers or ())
        self._is_outdated |= found != self._heartbeats
        self._heartbeats = found

    async def _assign(self) -> None:
        positions = await self._consumer.end_offsets(list(self._heartbeats))
        positions |= {address: each.position for address, each in self.progress.items()}
        self._consumer.assign(list(positions))
        for address, position in positions.items():
            self._consumer.seek(address, position)
        self._consumer.pause(*(self.paused & self.progress.keys()))
        self._is_outdated = False
