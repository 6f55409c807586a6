"""Changelog source: a Kafka topic, with its partitions as splits.

One consumer reads all partitions, in bounded reads.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack

import structlog
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from lookup_core.changelog.change_decoder import Change, ChangeDecoder, TableChange
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.rate_limits import EventRateLimit
from lookup_core.sources.splits import ReadingMode, Split
from service.connectors.kafka.assignment import (
    KafkaAssignment,
    KafkaPartition,
    KafkaTopic,
    partition_id,
)
from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.errors import mapped_errors
from service.connectors.kafka.progress import Clocks, KafkaProgress
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.ports.resource import Resource
from service.connectors.ports.source import Source, SplitEnumerator, SplitPiece, SplitReader

log = structlog.get_logger()

_MAX_MESSAGES = 1000  # per read
_FIRST_MESSAGES = 100  # per read, while their size is unknown
_READ_BYTES = 384 * 2**10  # about 5 ms of decoding
_WAIT_MS = 500
_VERIFY_TIMEOUT_S = 3.0  # two requests, each after a fetch
_SHORT_WAIT_MS = 50  # while a partition is behind

Records = Mapping[TopicPartition, Sequence[ConsumerRecord]]


class KafkaChangelog(Source):
    """Unbounded; begins `lookback_s` and `lookback_messages` before its first discovery."""

    reading_mode = ReadingMode.MULTIPLEXED

    def __init__(
        self, settings: KafkaSettings, decoder: Callable[[DimensionSchema], ChangeDecoder]
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._topic = KafkaTopic()

    def enumerator(self, schema: DimensionSchema) -> "KafkaEnumerator":  # noqa: ARG002  of the port
        """An enumerator of the partitions, not opened yet."""
        return KafkaEnumerator(self._settings, self._topic)

    def reader(self, schema: DimensionSchema) -> "KafkaReader":
        """A reader of all partitions, not opened yet."""
        return KafkaReader(self._settings, self._decoder(schema), topic=self._topic)


class KafkaEnumerator(Resource, SplitEnumerator):
    """Lists the partitions of the topic, from current metadata."""

    def __init__(self, settings: KafkaSettings, topic: KafkaTopic) -> None:
        self.discovery_interval_s = settings.discovery_interval_s
        self._settings = settings
        self._topic = topic

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect; raises BackendError."""
        self._consumer = await KafkaConsumer.opened(self._settings, stack)

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


def messages_per_read(sizes_bytes: Sequence[int]) -> int:
    """The number of messages to read next, given the sizes in a non-empty last read."""
    fitting = _READ_BYTES * len(sizes_bytes) // max(sum(sizes_bytes), 1)
    return min(max(fitting, 1), _MAX_MESSAGES)


class KafkaReader(Resource, SplitReader):
    """Reads the assigned partitions of one topic."""

    def __init__(
        self, settings: KafkaSettings, decoder: ChangeDecoder, *, topic: KafkaTopic
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._topic = topic
        self._addresses: dict[str, TopicPartition] = {}  # {split id: partition}
        self._max_messages = _FIRST_MESSAGES
        self._warnings = EventRateLimit()

    async def open(self, stack: AsyncExitStack) -> None:
        """Connect; raises BackendError."""
        self._consumer = await KafkaConsumer.opened(self._settings, stack, self._topic.epochs)
        self._assignment = KafkaAssignment(self._consumer, self._settings, topic=self._topic)

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read one more partition; raises BackendError."""
        assert isinstance(split, KafkaPartition)
        self._addresses[split.id] = split.address
        self._topic.log(split.id)  # before any message of a new partition is read
        begin = split.begin if position is None else position
        with mapped_errors(self._settings):
            await self._assignment.add_partition(split.address, position=begin)

    async def read(self) -> Sequence[SplitPiece]:
        """Read the next messages of all partitions; raises BackendError."""
        await asyncio.sleep(0)  # `getmany` does not wait if it has messages
        with mapped_errors(self._settings):
            await self._assignment.update(at=_now())
            records = await self._fetch()
            lost = await self._shortened_logs(has_records=bool(records))
            if lost:
                records = {each: found for each, found in records.items() if each not in lost}
                self._assignment.restart_shortened(lost)
                await self._assignment.update(at=_now())
        if sizes_bytes := _sizes_bytes(records):
            self._max_messages = messages_per_read(sizes_bytes)
        return await self._pieces(records, at=_now(), is_verified=lost is not None)

    async def _fetch(self) -> Records:
        try:
            records: Records = await self._consumer.getmany(
                timeout_ms=self._wait_ms(), max_records=self._max_messages
            )
        except OffsetOutOfRangeError as error:
            self._assignment.restart_cut_off(error.args[0])
            await self._consumer.client.refresh()  # the topic may have been created again
            await self._assignment.update(at=_now())
            return {}
        return records

    async def _shortened_logs(self, *, has_records: bool) -> Collection[TopicPartition] | None:
        """The partitions whose log lost messages; None if the leaders were not reached.

        Raises KafkaError instead if there are records.
        """
        try:
            async with asyncio.timeout(_VERIFY_TIMEOUT_S):
                return await self._consumer.shortened_logs()
        except (KafkaError, TimeoutError):
            if has_records:
                raise
            return None  # no broker responds: the silence counts

    def pause(self, split_ids: Collection[str]) -> None:
        """Pause these partitions, and resume all others."""
        addresses = [self._addresses[split_id] for split_id in split_ids]
        self._assignment.pause(addresses, at=_now())

    def _wait_ms(self) -> int:
        progress = self._assignment.progress.values()
        is_idle = all(each.is_caught_up for each in progress) and not self._assignment.restarted
        return _WAIT_MS if is_idle else _SHORT_WAIT_MS

    async def _pieces(self, records: Records, *, at: Clocks, is_verified: bool) -> list[SplitPiece]:
        if is_verified:
            await self._assignment.update_progress(at=at)
        self._check_silence(at)
        pieces = [
            self._piece(address, records.get(address, ()), at=at)
            for address in self._assignment.progress
            if address not in self._assignment.paused or address in records
        ]
        self._note_heartbeats(records, at=at)
        pieces += [self._missing(address) for address in self._assignment.waiting]
        self._assignment.note_reported()
        return pieces

    def _piece(
        self, address: TopicPartition, messages: Sequence[ConsumerRecord], *, at: Clocks
    ) -> SplitPiece:
        progress = self._assignment.progress[address]
        split_id = partition_id(address)
        decoded = self._decoder.decode(messages, self._topic.log(split_id))
        self._log_reasons("changelog.not_understood", messages, decoded.faults, at=at)
        self._log_reasons("changelog.not_used", messages, decoded.hints, at=at)
        self._note_time(progress, decoded.source_time_ms)
        return SplitPiece(
            split_id=split_id,
            position=progress.poll.position,
            changes=(*self._restart(address), *decoded.changes),
            watermark_ms=progress.watermark_ms,
            silent_s=progress.silent_s(at=at),
            requested_s=progress.requested_s(at=at),
            is_caught_up=progress.is_caught_up,
            total=progress.poll.high_watermark,
            ignored=decoded.ignored,
            undecodable=len(decoded.faults),
            doubt=self._topic.senders.doubt,
        )

    def _missing(self, address: TopicPartition) -> SplitPiece:
        # The topic has fewer partitions now: no message of this one can be missed.
        changes = self._restart(address)
        return SplitPiece(partition_id(address), position=0, changes=changes, is_caught_up=True)

    def _restart(self, address: TopicPartition) -> Sequence[Change]:
        reason = self._assignment.restarted.pop(address, None)
        if reason is None:
            return ()
        self._topic.log(partition_id(address)).deleted_key = None
        log.warning("changelog.restarted", partition=partition_id(address), reason=reason)
        return (TableChange(reason),)

    def _note_time(self, progress: KafkaProgress, source_time_ms: int) -> None:
        if source_time_ms == NO_WATERMARK_MS:
            return
        progress.advance(source_time_ms)
        for each in self._assignment.progress.values():
            each.drop_early_heartbeats(source_time_ms)

    def _note_heartbeats(self, records: Records, *, at: Clocks) -> None:
        times_ms = [
            self._decoder.decode(messages).source_time_ms
            for address, messages in records.items()
            if address.topic == self._settings.heartbeat_topic
        ]
        for progress in self._assignment.progress.values() if times_ms else ():
            progress.add_heartbeat(max(times_ms), at=at)

    def _log_reasons(
        self,
        event: str,
        messages: Sequence[ConsumerRecord],
        reasons: Mapping[int, str],
        *,
        at: Clocks,
    ) -> None:
        counts = Counter(reasons.values())
        for index, reason in reasons.items():
            count = counts.pop(reason, 0)  # one warning per reason
            if count and self._warnings.is_due(reason, at.monotonic_s):
                first = messages[index]  # logged without its content, which may be secret
                log.warning(
                    event,
                    topic=first.topic,
                    partition=first.partition,
                    offset=first.offset,
                    reason=reason,
                    messages=count,
                )

    def _check_silence(self, at: Clocks) -> None:
        silence_s = self._assignment.unanswered_s(at=at)
        if silence_s > self._settings.give_up_after_s:
            # New connections show the cause, and find brokers that have moved.
            detail = f"{self._settings.address}: no response for {silence_s:.0f} s"
            raise BackendError(ErrorCode.BACKEND_UNAVAILABLE, detail)


def _sizes_bytes(records: Records) -> list[int]:
    return [  # a missing key or value has the size -1
        message.serialized_key_size + message.serialized_value_size + 2
        for messages in records.values()
        for message in messages
    ]


def _now() -> Clocks:
    return Clocks(time.monotonic(), time.time() * 1000)
