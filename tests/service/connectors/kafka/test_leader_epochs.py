"""Leader epochs: which ends of the log the current leader must have."""

import struct

import pytest
from aiokafka import TopicPartition

from service.connectors.kafka.leader_epochs import BatchHeader, EpochEnd, LogEpochs

PLACE = TopicPartition("planes", 0)


def batch(first: int, last: int, epoch: int, *, version: int = 2) -> bytes:
    """A batch of messages from `first` to `last`."""
    rest = struct.pack(">ibiHi", epoch, version, 0, 0, last - first) + bytes(40)
    return struct.pack(">qi", first, len(rest)) + rest


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ([batch(0, 9, 0), batch(10, 19, 0)], []),
        ([batch(0, 9, 0), batch(10, 14, 2), batch(15, 19, 2)], [EpochEnd(0, 10)]),
        # After a restart at an earlier position, batches repeat.
        ([batch(0, 9, 0) + batch(10, 14, 1), batch(5, 9, 0)], [EpochEnd(0, 10), EpochEnd(1, 15)]),
        ([batch(0, 9, 0) + batch(10, 14, 1)[:-1]], []),  # incomplete
        ([batch(0, 9, 0) + batch(10, 14, -1)], []),  # unknown
        ([batch(0, 9, 0) + batch(10, 14, 1, version=1)], []),  # without an epoch
        ([b"", bytes(12)], []),
    ],
)
def test_earlier_epochs_are_verified(batches: list[bytes], expected: list[EpochEnd]) -> None:
    """The end of each epoch is verified once another epoch follows, and only once."""
    epochs = LogEpochs()
    for each in batches:
        epochs.add_batches(PLACE, each)

    found = epochs.unverified()
    for address, ends in found.items():
        epochs.note_verified(address, ends)

    assert found == ({PLACE: (*expected,)} if expected else {})
    assert epochs.unverified() == {}


def test_other_leader_requires_a_verification() -> None:
    """After a change of the leader, or a failed fetch, the last epoch is verified, too."""
    epochs = LogEpochs()
    epochs.note_leader(PLACE, 3)
    epochs.add_batches(PLACE, batch(0, 9, 3))
    epochs.note_leader(PLACE, 5)
    after_change = epochs.unverified()
    epochs.note_verified(PLACE, after_change[PLACE])
    epochs.require_verification()
    after_fault = epochs.unverified()
    epochs.note_verified(PLACE, after_fault[PLACE])

    assert after_change == after_fault == {PLACE: (EpochEnd(3, 10),)}
    assert epochs.unverified() == {}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (BatchHeader(10, 15, 2, checksum=7, messages=5), True),
        (BatchHeader(10, 15, 2, checksum=8, messages=5), False),
        (BatchHeader(10, 16, 2, checksum=7, messages=6), False),
        (BatchHeader(8, 15, 2, checksum=7, messages=7), False),
        (BatchHeader(10, 15, 3, checksum=7, messages=5), False),
        # Compaction removed some messages, or all.
        (BatchHeader(10, 15, 2, checksum=8, messages=4), True),
        (BatchHeader(15, 16, 2, checksum=8, messages=9), True),
        (None, True),
    ],
)
def test_other_batch_is_of_another_log(found: BatchHeader | None, *, expected: bool) -> None:
    """A log with another batch in its place is another log, unless compaction rewrote the batch."""
    assert BatchHeader(10, 15, 2, checksum=7, messages=5).is_in_log(found) is expected


def test_forgotten_log_needs_no_check() -> None:
    """If a partition is read from another position, no earlier batch counts."""
    epochs = LogEpochs()
    epochs.add_batches(PLACE, batch(0, 9, 0))
    epochs.require_verification()

    epochs.forget(PLACE)

    assert epochs.unverified() == {}
