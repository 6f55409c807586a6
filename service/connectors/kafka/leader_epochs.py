"""Leader epochs of a topic's log, which show that its end was cut off and grew again (KIP-320).

Each batch has the epoch of the leader that wrote it. If a later leader lacks records that we have
read, an earlier epoch ends before them in its log. Compaction and retention keep the epochs. A
restored cluster may use an epoch again: the last batch that was read is compared, too.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import TopicPartition
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

# Offset, bytes after the length, epoch, version, checksum, attributes, the last offset less the
# first; then times, producer, and the number of messages.
_BATCH = struct.Struct(">qiibiHi8x8x8x2x4xi")
_LENGTH_END = 12
_EPOCHS_SINCE = 2  # version of batches
_ANY_LEADER_EPOCH = -1
_CONSUMER = -1


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of the batches of one epoch that were read, an offset."""

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of a batch."""

    first: int  # offset
    end: int  # the offset after the last one
    epoch: int
    checksum: int
    messages: int

    def is_in_log(self, found: "BatchHeader | None") -> bool:
        """Whether a log has this batch, given what it has from its first offset on.

        Compaction may have removed messages, or the batch: then it may be in the log.
        """
        if found is None or found.first >= self.end or found.messages < self.messages:
            return True
        return self == found


def batches_of(content: bytes) -> Iterator[BatchHeader]:
    """The headers of the complete batches that have epochs."""
    at = 0
    while at + _BATCH.size <= len(content):
        first, nbytes, epoch, version, checksum, _, more, count = _BATCH.unpack_from(content, at)
        at += _LENGTH_END + nbytes
        if version >= _EPOCHS_SINCE and epoch >= 0 and at <= len(content):
            yield BatchHeader(first, first + more + 1, epoch, checksum, count)


@dataclass(slots=True)
class _ReadLog:
    """The epochs of one partition, in the order of reading."""

    ends: list[EpochEnd] = field(default_factory=list)
    last: BatchHeader | None = None
    compared: BatchHeader | None = None  # the last one before a verification was due
    leader_epoch: int | None = None
    is_unverified: bool = False  # another leader may have another log

    def require_verification(self) -> None:
        if not self.is_unverified:
            self.is_unverified, self.compared = True, self.last

    def add_batch(self, batch: BatchHeader) -> None:
        self.last, found = batch, EpochEnd(batch.epoch, batch.end)
        if self.ends and self.ends[-1].epoch == found.epoch:
            found = EpochEnd(found.epoch, max(found.end, self.ends.pop().end))
        self.ends.append(found)


class LogEpochs:
    """The epochs of the batches that were read, by partition; outlives its consumers."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, _ReadLog] = {}

    def add_batches(self, address: TopicPartition, batches: bytes) -> None:
        """Add the batches of a response, the last of which may be incomplete."""
        log = self._log(address)
        for batch in batches_of(batches):
            log.add_batch(batch)

    def last_batch(self, address: TopicPartition) -> BatchHeader | None:
        """The last batch before a change of the leader, which may have another one instead."""
        log = self._log(address)
        return log.compared if log.is_unverified else None

    def note_leader(self, address: TopicPartition, leader_epoch: int) -> None:
        """Note the epoch of the current leader; another one requires a verification."""
        log = self._log(address)
        if log.leader_epoch not in (None, leader_epoch):
            log.require_verification()
        log.leader_epoch = leader_epoch

    def require_verification(self, address: TopicPartition | None = None) -> None:
        """A leader may have changed: of one partition, or of all."""
        for log in self._logs.values() if address is None else [self._log(address)]:
            log.require_verification()

    def unverified(self) -> Mapping[TopicPartition, Sequence[EpochEnd]]:
        """The ends that the current leader must have, by partition, where they are not known."""
        due = {
            address: tuple(log.ends if log.is_unverified else log.ends[:-1])
            for address, log in self._logs.items()
        }
        return {address: ends for address, ends in due.items() if ends}

    def note_verified(self, address: TopicPartition, ends: Sequence[EpochEnd]) -> None:
        """The leader has these ends, which `unverified` returned."""
        log = self._log(address)
        log.is_unverified = False
        log.ends = [each for each in log.ends if each not in ends] or [ends[-1]]

    def forget(self, address: TopicPartition) -> None:
        """The partition is read from another position: no earlier batch counts."""
        log = self._log(address)
        log.ends, log.last, log.is_unverified = [], None, False

    def _log(self, address: TopicPartition) -> _ReadLog:
        return self._logs.setdefault(address, _ReadLog())


class EpochEndResponse(Response):  # type: ignore[misc]  # aiokafka has no types
    """The response of OffsetForLeaderEpoch."""

    API_KEY = 23
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader_epoch", Int32),
                        ("end_offset", Int64),
                    ),
                ),
            ),
        ),
    )


class EpochEndQuery(RequestStruct):  # type: ignore[misc]  # as above
    """The encoded request."""

    API_KEY = 23
    API_VERSION = 3
    RESPONSE_TYPE = EpochEndResponse
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(("partition", Int32), ("current_leader_epoch", Int32), ("epoch", Int32)),
                ),
            ),
        ),
    )


class EpochEndRequest(Request[EpochEndQuery]):  # type: ignore[misc]  # as above
    """A request for the offset at which an epoch, and all earlier ones, end in a partition."""

    API_KEY = 23

    def __init__(self, address: TopicPartition, epoch: int) -> None:
        self._address, self._epoch = address, epoch

    def build(self, request_struct_class: type[EpochEndQuery]) -> EpochEndQuery:
        """The request for a broker that supports this version."""
        partitions = [(self._address.partition, _ANY_LEADER_EPOCH, self._epoch)]
        return request_struct_class(_CONSUMER, [(self._address.topic, partitions)])
