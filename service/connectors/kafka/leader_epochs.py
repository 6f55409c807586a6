"""Leader epochs of a topic's log, which show that its end was cut off and grew again (KIP-320).

Each batch has the epoch of the leader that wrote it. If a later leader lacks records that we have
read, an earlier epoch ends before them in its log. Compaction and retention keep the epochs.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aiokafka import TopicPartition
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Int64, Schema, String

# Offset, bytes after the length, epoch, version; then checksum, attributes, and the last offset
# less the first.
_BATCH = struct.Struct(">qiibiHi")
_LENGTH_END = 12
_EPOCHS_SINCE = 2  # version of batches
_ANY_EPOCH = -1  # of the leader
_CONSUMER = -1


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The end of the batches of one epoch that were read, an offset."""

    epoch: int
    end: int


@dataclass(slots=True)
class _ReadLog:
    """The epochs of one partition, in the order of reading."""

    ends: list[EpochEnd] = field(default_factory=list)
    leader_epoch: int | None = None
    is_suspect: bool = False  # another leader may have another log

    def add(self, found: EpochEnd) -> None:
        if self.ends and self.ends[-1].epoch == found.epoch:
            found = EpochEnd(found.epoch, max(found.end, self.ends.pop().end))
        self.ends.append(found)


class LogEpochs:
    """The epochs of the batches that were read, by partition; outlives its consumers."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, _ReadLog] = {}

    def add_batches(self, address: TopicPartition, batches: bytes) -> None:
        """Add the batches of a response, the last of which may be incomplete."""
        log, at = self._log(address), 0
        while at + _BATCH.size <= len(batches):
            first, nbytes, epoch, version, _, _, more = _BATCH.unpack_from(batches, at)
            at += _LENGTH_END + nbytes
            if version >= _EPOCHS_SINCE and epoch >= 0 and at <= len(batches):
                log.add(EpochEnd(epoch, first + more + 1))

    def note_leader(self, address: TopicPartition, leader_epoch: int) -> None:
        """Note the epoch of the current leader; another one makes the partition suspect."""
        log = self._log(address)
        log.is_suspect |= log.leader_epoch not in (None, leader_epoch)
        log.leader_epoch = leader_epoch

    def suspect(self, address: TopicPartition | None = None) -> None:
        """A leader may have changed: of one partition, or of all."""
        for log in self._logs.values() if address is None else [self._log(address)]:
            log.is_suspect = True

    def unverified(self) -> Mapping[TopicPartition, Sequence[EpochEnd]]:
        """The ends that the current leader must have, by partition, where they are not known."""
        due = {
            address: tuple(log.ends if log.is_suspect else log.ends[:-1])
            for address, log in self._logs.items()
        }
        return {address: ends for address, ends in due.items() if ends}

    def note_verified(self, address: TopicPartition, ends: Sequence[EpochEnd]) -> None:
        """The leader has these ends, which `unverified` returned."""
        log = self._log(address)
        log.is_suspect = False
        log.ends = [each for each in log.ends if each not in ends] or [ends[-1]]

    def forget(self, address: TopicPartition) -> None:
        """The partition is read from another position: no earlier batch counts."""
        log = self._log(address)
        log.ends, log.is_suspect = [], False

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
        partitions = [(self._address.partition, _ANY_EPOCH, self._epoch)]
        return request_struct_class(_CONSUMER, [(self._address.topic, partitions)])
