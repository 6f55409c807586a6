"""Changelog reader: all partitions with one consumer, in bounded reads."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

import structlog
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from lookup_core.changelog.change_decoder import Change, ChangeDecoder, Decoded, TableChange
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.event_rate_limit import EventRateLimit
from lookup_core.sources.splits import Split
from lookup_core.watermark_valve import NO_WATERMARK_MS
from service.connectors.kafka.assignment import KafkaAssignment
from service.connectors.kafka.consumer import KafkaConsumer
from service.connectors.kafka.errors import mapped_errors
from service.connectors.kafka.progress import Clocks, KafkaProgress
from service.connectors.kafka.settings import KafkaSettings
from service.connectors.kafka.topic import KafkaPartition, KafkaTopic, partition_id
from service.connectors.ports.source import SplitPiece

_MOST_MESSAGES = 1000
_FIRST_MESSAGES = 100  # while it is not known how large they are
_READ_BYTES = 384 * 2**10  # some 5 ms of decoding


class KafkaReadSize:
    """As many messages as the last ones had room for in what may be read at once."""

    def __init__(self) -> None:
        self.messages = _FIRST_MESSAGES

    def note(self, sizes_bytes: Iterable[int]) -> None:
        """So large were the messages of one read."""
        sizes = [*sizes_bytes]
        if sizes:
            fitting = _READ_BYTES * len(sizes) // max(sum(sizes), 1)
            self.messages = min(max(fitting, 1), _MOST_MESSAGES)


log = structlog.get_logger()

_WAIT_MS = 500
_SHORT_WAIT_MS = 50  # while it is not known yet whether there is something to read

Records = Mapping[TopicPartition, Sequence[ConsumerRecord]]


class KafkaReader:
    """One consumer of all partitions that it is given."""

    def __init__(
        self, settings: KafkaSettings, decoder: ChangeDecoder, *, topic: KafkaTopic
    ) -> None:
        self._settings = settings
        self._decoder = decoder
        self._topic = topic
        self._addresses: dict[str, TopicPartition] = {}  # {split id: partition}
        self._read_size = KafkaReadSize()
        self._warnings = EventRateLimit()

    async def __aenter__(self) -> Self:
        """Connect; raises BackendError."""
        self._consumer = await KafkaConsumer.opened(self._settings)
        self._assignment = KafkaAssignment(self._consumer, self._settings, topic=self._topic)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect, at the latest after a second; never raises."""
        await self._consumer.close()

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read this partition, too; raises BackendError."""
        assert isinstance(split, KafkaPartition)
        self._addresses[split.id] = split.address
        self._topic.log(split.id)  # before anything is read of those that come with it
        begin = split.begin if position is None else position
        with mapped_errors(self._settings):
            await self._assignment.add(split.address, position=begin)

    async def read(self) -> Sequence[SplitPiece]:
        """What came meanwhile, and how long nothing was heard; raises BackendError."""
        await asyncio.sleep(0)  # the consumer does not wait as long as it has something
        with mapped_errors(self._settings):
            await self._assignment.update(at=_now())
            try:
                records = await self._consumer.getmany(
                    timeout_ms=self._wait_ms(), max_records=self._read_size.messages
                )
            except OffsetOutOfRangeError as error:
                self._assignment.lose(error.args[0])
                await self._consumer.client.refresh()  # it may be another topic by now
                await self._assignment.update(at=_now())
                records = {}
        self._read_size.note(_sizes_bytes(records))
        return await self._pieces(records, at=_now())

    def pause(self, split_ids: Collection[str]) -> None:
        """Read nothing of these."""
        addresses = [self._addresses[split_id] for split_id in split_ids]
        self._assignment.pause(addresses, at=_now())

    def _wait_ms(self) -> int:
        progress = self._assignment.progress.values()
        is_idle = all(each.is_caught_up for each in progress) and not self._assignment.restarted
        return _WAIT_MS if is_idle else _SHORT_WAIT_MS

    async def _pieces(self, records: Records, *, at: Clocks) -> list[SplitPiece]:
        await self._assignment.look(at=at)
        self._check_silence(at)
        pieces = [
            self._piece(address, records.get(address, ()), at=at)
            for address in self._assignment.progress
            if address not in self._assignment.paused
        ]
        self._note_heartbeats(records, at=at)
        pieces += [self._missing(address) for address in self._assignment.waiting]
        self._assignment.note_told()
        return pieces

    def _piece(
        self, address: TopicPartition, messages: Sequence[ConsumerRecord], *, at: Clocks
    ) -> SplitPiece:
        progress = self._assignment.progress[address]
        split_id = partition_id(address)
        decoded = self._decoder.decode(messages, self._topic.log(split_id))
        self._log_faults(messages, decoded, at=at)
        self._note_time(progress, decoded.source_time_ms)
        return SplitPiece(
            split_id=split_id,
            position=progress.position,
            changes=(*self._restart(address), *decoded.changes),
            nbytes=decoded.nbytes,
            watermark_ms=progress.watermark_ms,
            silent_s=progress.silent_s(at=at),
            is_caught_up=progress.is_caught_up,
            total=progress.total,
            ignored=decoded.ignored,
            undecodable=len(decoded.faults),
        )

    def _missing(self, address: TopicPartition) -> SplitPiece:
        # Its topic is there, with fewer partitions: there is nothing in it that could be missed.
        changes = self._restart(address)
        return SplitPiece(partition_id(address), position=0, changes=changes, is_caught_up=True)

    def _restart(self, address: TopicPartition) -> Sequence[Change]:
        reason = self._assignment.restarted.pop(address, None)
        if reason is None:
            return ()
        log.warning("changelog.restarted", partition=partition_id(address), reason=reason)
        return (TableChange(reason),)

    def _note_time(self, progress: KafkaProgress, source_time_ms: int) -> None:
        if source_time_ms == NO_WATERMARK_MS:
            return
        progress.told(source_time_ms)
        for each in self._assignment.progress.values():
            each.overtaken(source_time_ms)

    def _note_heartbeats(self, records: Records, *, at: Clocks) -> None:
        told = [
            self._decoder.decode(messages).source_time_ms
            for address, messages in records.items()
            if address.topic == self._settings.heartbeat_topic
        ]
        for progress in self._assignment.progress.values() if told else ():
            progress.heartbeat(max(told), at=at)

    def _log_faults(
        self, messages: Sequence[ConsumerRecord], decoded: Decoded, *, at: Clocks
    ) -> None:
        counts = Counter(decoded.faults.values())
        for index, reason in decoded.faults.items():
            count = counts.pop(reason, 0)  # the first one of each reason stands for all
            if count and self._warnings.is_due(reason, at.monotonic_s):
                first = messages[index]  # its value stays out of the log: it may be a secret
                log.warning(
                    "changelog.not_understood",
                    topic=first.topic,
                    partition=first.partition,
                    offset=first.offset,
                    reason=reason,
                    messages=count,
                )

    def _check_silence(self, at: Clocks) -> None:
        silence_s = self._assignment.unanswered_s(at=at)
        if silence_s > self._settings.give_up_after_s:
            # New connections tell what is wrong, and find brokers that have moved.
            detail = f"{self._settings.address}: no answer for {silence_s:.0f} s"
            raise BackendError(ErrorCode.BACKEND_UNAVAILABLE, detail)


def _sizes_bytes(records: Records) -> Iterator[int]:
    for messages in records.values():
        for message in messages:  # a part that is not there counts as -1
            yield message.serialized_key_size + message.serialized_value_size + 2


def _now() -> Clocks:
    return Clocks(time.monotonic(), time.time() * 1000)
