"""Partition assignment: which partitions of a topic one consumer reads, from which offsets.

Independent of the messages' content. A partition whose next offset is gone, or whose log is another
one now, is `restarted`: it is read from the lookback on, and the changes in between are lost.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from aiokafka import TopicPartition

from lookup_core.changelog.change_decoder import ReplayFilter, level
from lookup_core.changelog.event_origin import EventSenders
from lookup_core.sources.splits import Split
from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.leader_epochs import LogEpochs
from service.connectors.kafka.progress import Clocks, KafkaProgress, Poll
from service.connectors.kafka.settings import KafkaSettings

_RECENT = -1  # the offset of the lookback
_CUT_OFF = "the next offset is no longer in the topic"
_SHORTENED = "the log lost messages that were read, as after an unclean election of a leader"
_OTHER_TOPIC = "the topic was deleted and created again"


@dataclass(slots=True)
class KafkaTopic:
    """The state of a topic that outlives its readers."""

    begins: Mapping[str, int] | None = None  # {split id: first offset to read}; None: unknown
    reported_id: bytes | None = None  # the topic whose changes were reported last
    epochs: LogEpochs = field(default_factory=LogEpochs)  # batches that were read
    senders: EventSenders = field(default_factory=EventSenders)
    _logs: dict[str, ReplayFilter] = field(default_factory=dict)  # {split id: its filter}

    def begin(self, split_id: str) -> int:
        """The first offset to read; 0 for partitions that were added later."""
        return (self.begins or {}).get(split_id, 0)

    def log(self, split_id: str) -> ReplayFilter:
        """The replay filter of a partition; a new partition may get any key of the others."""
        if split_id not in self._logs:
            self._logs[split_id] = ReplayFilter(self.senders)
            level(self._logs.values())
        return self._logs[split_id]


@dataclass(frozen=True, slots=True)
class KafkaPartition(Split):
    """A partition as a split, with an id like `planes-0`."""

    address: TopicPartition
    begin: int  # the first offset to read, if there is no later position


def partition_id(address: TopicPartition) -> str:
    """The split id of a partition."""
    return f"{address.topic}-{address.partition}"


class KafkaAssignment:
    """The consumer's partitions of the changelog and of its heartbeat topic."""

    def __init__(
        self, consumer: KafkaConsumer, settings: KafkaSettings, *, topic: KafkaTopic
    ) -> None:
        self.progress: dict[TopicPartition, KafkaProgress] = {}  # partitions in the consumer
        self.restarted: dict[TopicPartition, str] = {}  # {partition: reason}, to be reported
        self.waiting: dict[TopicPartition, int] = {}  # {partition: position}, not in the consumer
        self.paused: frozenset[TopicPartition] = frozenset()
        self._heartbeats: frozenset[TopicPartition] = frozenset()
        self._is_outdated = False  # the consumer's assignment
        self._consumer = consumer
        self._settings = settings
        self._topic = topic
        self._topic_id = topic.reported_id

    async def add_partition(self, address: TopicPartition, *, position: int) -> None:
        """Read one more partition from the next `update` on; raises what `mapped_errors` maps."""
        self.waiting[address] = position
        # The log may have changed since the last reader.
        self._topic.epochs.require_verification(address)
        if address not in self._consumer.changelog_partitions():
            await self._consumer.client.refresh()

    def restart_cut_off(self, addresses: Collection[TopicPartition]) -> None:
        """Restart partitions whose next offset is gone, or heartbeats from their end."""
        self._is_outdated = True
        self._heartbeats = self._heartbeats.difference(addresses)
        self._restart([each for each in addresses if each in self.progress], _CUT_OFF)

    def restart_shortened(self, addresses: Collection[TopicPartition]) -> None:
        """Restart partitions whose log lacks messages that were read."""
        self._restart(addresses, _SHORTENED)

    async def update(self, *, at: Clocks) -> None:
        """Apply changes of partitions to the consumer; raises what `mapped_errors` maps.

        After a cancellation it must be called again before a read.
        """
        if self._settings.topic not in self._consumer.client.topic_ids:
            await self._consumer.client.refresh()  # it may have been created again
        existing = self._consumer.changelog_partitions()
        self._follow_topic(self._consumer.client.topic_ids[self._settings.topic])
        due = {each: self.waiting[each] for each in existing if each in self.waiting}
        if due:
            await self._begin(due, at=at)
        self._follow_heartbeats()
        if self._is_outdated:
            await self._assign()

    def pause(self, addresses: Collection[TopicPartition], *, at: Clocks) -> None:
        """Pause these partitions, and resume all others."""
        resumed = self.paused.difference(addresses) & self.progress.keys()
        for address in resumed:
            self.progress[address].resume(at=at)
        self.paused = frozenset(addresses)
        if not self._is_outdated:  # otherwise `update` pauses them
            self._consumer.resume(*resumed)
            self._consumer.pause(*(self.paused & self.progress.keys()))

    def unanswered_s(self, *, at: Clocks) -> float:
        """The time since any broker responded for a partition that is not paused."""
        read = self.progress.keys() - self.paused
        return min((self.progress[each].unanswered_s(at=at) for each in read), default=0.0)

    async def update_progress(self, *, at: Clocks) -> None:
        """Update the progress of all partitions from the consumer, without waiting."""
        consumer = self._consumer
        for address, progress in self.progress.items():
            poll = Poll(
                await consumer.position(address),
                consumer.last_poll_timestamp(address),
                consumer.highwater(address),
                consumer.last_stable_offset(address),
            )
            progress.update(poll, at=at)

    def note_reported(self) -> None:
        """Record the topic's id once all restarts are reported."""
        if not self.restarted:
            self._topic.reported_id = self._topic_id

    def _follow_topic(self, topic_id: bytes) -> None:
        if self._topic_id not in (None, topic_id):
            self._restart([*self.progress, *self.waiting], _OTHER_TOPIC)
        self._topic_id = topic_id

    async def _begin(self, due: Mapping[TopicPartition, int], *, at: Clocks) -> None:
        firsts = await self._consumer.beginning_offsets(list(due))
        ends = await self._consumer.end_offsets(list(due))
        lost = [each for each, wanted in due.items() if not firsts[each] <= wanted <= ends[each]]
        recent = await self._consumer.recent_offsets(lost) if lost else {}
        self._is_outdated = True
        for address, wanted in due.items():
            position = recent.get(address, wanted)
            if address in recent:
                self.restarted.setdefault(address, _CUT_OFF)
                self._topic.epochs.forget(address)
            self.progress[address] = KafkaProgress(position, end=ends[address], at=at)
            del self.waiting[address]

    def _restart(self, addresses: Collection[TopicPartition], reason: str) -> None:
        for address in addresses:
            self.progress.pop(address, None)
            self._topic.epochs.forget(address)
            self.waiting[address] = _RECENT
            self.restarted[address] = reason

    def _follow_heartbeats(self) -> None:
        topic = self._settings.heartbeat_topic
        numbers = self._consumer.partitions_for_topic(topic) if topic else None
        found = frozenset(TopicPartition(topic, number) for number in numbers or ())
        self._is_outdated |= found != self._heartbeats
        self._heartbeats = found

    async def _assign(self) -> None:
        positions = await self._consumer.end_offsets(list(self._heartbeats))
        positions |= {address: each.poll.position for address, each in self.progress.items()}
        self._consumer.assign(list(positions))
        for address, position in positions.items():
            self._consumer.seek(address, position)
        self._consumer.pause(*(self.paused & self.progress.keys()))
        self._is_outdated = False
