"""What channels of one pool leave to each other when all of them have a backlog."""

import pytest

from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.frames import Credit, Lookup
from lookup_core.protocol.server_channel import ServerChannel

MIB = 1024 * 1024
SMALL_POOL_BYTES = 20 * 24 * 1024  # of which half floats


def two_channels(pool_bytes: int) -> tuple[CreditLedger[int], list[ServerChannel[int]]]:
    """Channels that share a pool, in which they are 1 and 2."""
    ledger = CreditLedger[int](pool_bytes, max_channels=10)
    owners = [owner for owner in (1, 2) if ledger.open(owner)]
    return ledger, [ServerChannel(3, "customers", "", ledger=ledger, owner=it) for it in owners]


def lookup(sequence: int, *, size: int = 0, backlog: int = 10**6) -> Lookup:
    """A LOOKUP with so many bytes of keys; by default with more behind it than there is room."""
    return Lookup(3, sequence, 1000, backlog, bytes(size))


def turn(
    channel: ServerChannel[int], sequence: int, *, backlog: int = 10**6, each_bytes: int = 8
) -> None:
    """All that there is credit for is asked and answered, and everything is sent."""
    records = min(channel.statistics(1).credit_records, 1_000)
    frame = lookup(sequence, size=records * each_bytes, backlog=backlog)
    if channel.on_lookup(frame, records) is not None:
        channel.on_credit_sent()
    channel.on_ended(sequence)
    channel.on_credit_sent()


def test_busy_channel_leaves_its_neighbour_enough() -> None:
    """With ten times the backlog of another, first and for long, a channel does not starve it."""
    _, (busy, neighbour) = two_channels(8 * MIB)
    for sequence in range(1, 100):
        turn(busy, sequence, backlog=100_000)

    turn(neighbour, 1, backlog=1_000)

    assert neighbour.statistics(1).credit_records >= 1_000
    assert busy.statistics(1).floating_records > 3_000


def test_size_of_keys_is_learned_anew() -> None:
    """Credit follows the keys of late: long ago there were others."""
    _, (channel, _) = two_channels(1024 * MIB)
    for sequence in range(1, 101):
        turn(channel, sequence, backlog=0, each_bytes=0)
    for sequence in range(101, 201):
        turn(channel, sequence, backlog=0, each_bytes=500)

    lent = channel.on_lookup(lookup(201, backlog=100_000), 1)

    assert lent is not None
    assert lent.bytes / lent.records == pytest.approx(500 + 16, rel=0.02)


def test_bytes_for_large_keys_are_given_up() -> None:
    """A channel that was lent bytes for large keys, and sends small ones now, keeps its records."""
    ledger, (changed, other) = two_channels(42 * MIB)  # of which 32 float
    turn(changed, 1, each_bytes=500)
    records = changed.statistics(1).floating_records
    for sequence in range(1, 1_000):
        turn(other, sequence)
        turn(changed, sequence + 1)

    assert changed.statistics(1).floating_records > records * 0.9
    costs = [ledger.floating(owner).cost_bytes for owner in (1, 2)]
    assert costs == pytest.approx([32 * MIB / 3] * 2, rel=0.01)
    ledger.check_invariants()


def test_contended_credit_does_not_come_back() -> None:
    """What others need goes to them at the end of a lookup, and its sender gets the rest."""
    ledger, (greedy, late) = two_channels(SMALL_POOL_BYTES)
    lent = greedy.on_lookup(lookup(1), 1)
    assert lent is not None
    greedy.on_credit_sent()
    greedy.on_lookup(lookup(2), lent.records)
    late.on_lookup(lookup(1), 1)

    back = greedy.on_ended(2)

    assert back is not None
    assert 0 < back.records < lent.records
    assert greedy.statistics(1).floating_records == back.records
    greedy.check_invariants()
    ledger.check_invariants()


def test_drained_channel_has_sent_its_last_answer() -> None:
    """Also if others get all credit of the last lookup, what closes the channel comes behind it."""
    ledger, (greedy, late) = two_channels(SMALL_POOL_BYTES)
    greedy.on_lookup(lookup(1), 1)
    greedy.on_credit_sent()
    late.on_lookup(lookup(1), 1)
    greedy.is_closing = True

    back, was_drained = greedy.on_ended(1), greedy.is_drained
    greedy.on_credit_sent()

    assert (back, was_drained, greedy.is_drained) == (Credit(3, 0, 0), False, True)
    ledger.check_invariants()
