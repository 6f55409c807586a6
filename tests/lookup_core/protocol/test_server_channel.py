"""Server side of a channel: charged and returned credit, sequences, end; ping rate limit."""

import pytest

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.credit_ledger import RECORD_BYTES, CreditLedger, Grant
from lookup_core.protocol.frames import Credit, Lookup
from lookup_core.protocol.server_channel import (
    PING_BURST,
    PINGS_PER_SECOND,
    ChannelStatistics,
    ServerChannel,
    ping_limit,
)
from lookup_core.rate_limits import TokenBucket

MIB = 1024 * 1024
SHARE = Grant(12 * 1024 // RECORD_BYTES, 12 * 1024)  # of every channel in a pool of this size
POOL_BYTES = 2 * 24 * 1024  # for each possible channel


def new_channels(count: int, pool_bytes: int, most: int = 10) -> list[ServerChannel[int]]:
    """Open channels of one pool."""
    ledger = CreditLedger[int](pool_bytes, max_channels=most)
    assert None not in [ledger.open(owner) for owner in range(count)]
    return [
        ServerChannel(3, "customers", "task 7", ledger=ledger, owner=owner)
        for owner in range(count)
    ]


@pytest.fixture
def channel() -> ServerChannel[int]:
    """A channel with its share only."""
    (channel,) = new_channels(1, POOL_BYTES, most=1)
    return channel


def lookup(sequence: int, *, size: int = 10, backlog: int = 0) -> Lookup:
    """A LOOKUP frame whose keys take this number of bytes."""
    return Lookup(3, sequence, 1000, backlog, bytes(size))


def turn(
    channel: ServerChannel[int], sequence: int, *, backlog: int = 10**6, each_bytes: int = 8
) -> None:
    """The peer uses its credit, gets its answers and reads them."""
    records = min(channel.statistics(1).credit_records, 1_000)
    frame = lookup(sequence, size=records * each_bytes, backlog=backlog)
    if channel.on_lookup(frame, records) is not None:
        channel.on_credit_sent()
    channel.on_ended(sequence)
    channel.on_credit_sent()


def test_lookup_uses_credit(channel: ServerChannel[int]) -> None:
    """A lookup uses credit until its answer; statistics show all levels."""
    lent = channel.on_lookup(lookup(1), 4)

    assert (lent, channel.share) == (None, SHARE)
    assert channel.statistics(8) == ChannelStatistics(
        connection=8,
        channel=3,
        dimension="customers",
        origin="task 7",
        exclusive_records=SHARE.records,
        floating_records=0,
        credit_records=SHARE.records - 4,
        backlog_records=0,
        in_flight_records=4,
        watermark_ms=None,
        is_idle=False,
    )


@pytest.mark.parametrize(
    ("frame", "records", "code"),
    [
        (lookup(2), SHARE.records, ErrorCode.CREDIT_VIOLATION),
        (lookup(2, size=SHARE.bytes - 9), 1, ErrorCode.CREDIT_VIOLATION),
        *((lookup(sequence), 1, ErrorCode.SEQUENCE_GAP) for sequence in (0, 1, 3)),
        (lookup(2, size=SHARE.bytes - 10), SHARE.records - 1, None),
    ],
)
def test_violations_change_nothing(
    channel: ServerChannel[int], frame: Lookup, records: int, code: ErrorCode | None
) -> None:
    """A lookup beyond the credit or out of sequence is refused; all credit may be used."""
    channel.on_lookup(lookup(1), 1)
    before = channel.statistics(1)

    if code is None:
        channel.on_lookup(frame, records)
        assert channel.statistics(1).credit_records == 0
        return
    with pytest.raises(ProtocolViolation) as caught:
        channel.on_lookup(frame, records)

    assert (caught.value.code, channel.statistics(1)) == (code, before)
    channel.check_invariants()


def test_credit_returns_once_when_sent(channel: ServerChannel[int]) -> None:
    """The end of a lookup returns its cost once; the peer may use it once it is sent."""
    channel.on_lookup(lookup(1, size=30), SHARE.records)

    back = [channel.on_ended(sequence) for sequence in (1, 1, 2)]
    with pytest.raises(ProtocolViolation) as caught:
        channel.on_lookup(lookup(2), 1)
    channel.on_credit_sent()

    assert back == [Credit(3, SHARE.records, 30), None, None]
    assert caught.value.code is ErrorCode.CREDIT_VIOLATION
    assert channel.on_lookup(lookup(2), SHARE.records) is None


def test_answered_keys_return_their_credit(channel: ServerChannel[int]) -> None:
    """Each answer returns its records, and bytes in proportion; the end returns the rest."""
    channel.on_lookup(lookup(1, size=100), 7)

    back = [channel.on_answered(1, 6), channel.on_answered(1, 0), channel.on_answered(9, 1)]
    left = channel.statistics(1).in_flight_records
    channel.on_credit_sent()
    rest = channel.on_ended(1)
    channel.on_credit_sent()

    assert back == [Credit(3, 6, 85), None, None]
    assert (left, rest) == (7, Credit(3, 1, 15))
    assert channel.statistics(1).credit_records == SHARE.records
    channel.check_invariants()


def test_credit_of_answers_goes_to_pool() -> None:
    """No frame is sent for answers whose whole credit goes to other channels."""
    greedy, late = new_channels(2, 10 * POOL_BYTES)
    greedy.on_lookup(lookup(1, size=0, backlog=10**6), 2)
    greedy.on_credit_sent()
    late.on_lookup(lookup(1, size=0, backlog=10**6), 1)

    assert greedy.on_answered(1, 1) is None
    greedy.check_invariants()


def test_silence_begins_without_lookups(channel: ServerChannel[int]) -> None:
    """A channel is silent since its last use, unless it has a lookup, unsent credit or CLOSE."""
    channel.used_at_s = 5.0
    silent = [channel.silent_for_s(7.0)]
    channel.on_lookup(lookup(1), 1)
    silent.append(channel.silent_for_s(7.0))
    channel.on_ended(1)
    silent.append(channel.silent_for_s(7.0))
    channel.on_credit_sent()
    silent.append(channel.silent_for_s(7.0))
    channel.is_closing = True

    assert [*silent, channel.silent_for_s(7.0)] == [2.0, 0.0, 0.0, 2.0, 0.0]


def test_channel_drains_after_close(channel: ServerChannel[int]) -> None:
    """After CLOSE a channel refuses lookups and ends when its last credit is sent."""
    drained = [channel.is_drained]
    channel.on_lookup(lookup(1, backlog=5), 1)
    channel.is_closing = True

    with pytest.raises(ProtocolViolation) as caught:
        channel.on_lookup(lookup(2), 1)
    drained.append(channel.is_drained)
    channel.on_ended(1)
    drained.append(channel.is_drained)
    channel.on_credit_sent()

    assert [*drained, channel.is_drained] == [False, False, False, True]
    assert caught.value.code is ErrorCode.UNKNOWN_CHANNEL
    assert channel.statistics(1).backlog_records == 0


@pytest.mark.parametrize(
    ("marks", "known"), [([5], 5), ([5, 3], 5), ([3, 5], 5), ([0, -7], 0), ([-7, -9, -8], -7)]
)
def test_watermark_never_goes_back(
    channel: ServerChannel[int], marks: list[int], known: int
) -> None:
    """The largest watermark counts, also before 1970."""
    for watermark_ms in marks:
        channel.on_watermark(watermark_ms)

    assert channel.statistics(1).watermark_ms == known


def test_backlog_gets_floating_credit() -> None:
    """A backlog gets credit beyond the rest of the share, once, by the mean size of its keys."""
    (channel,) = new_channels(1, 10 * POOL_BYTES)

    lent = channel.on_lookup(lookup(1, size=8_000, backlog=100), 10)
    again = channel.on_lookup(lookup(2, size=800, backlog=99), 1)
    statistics = channel.statistics(1)
    channel.on_credit_sent()

    bytes_each = 800 + 16  # the mean of its records, and headroom
    left = SHARE.minus(Grant(10, 8_000))
    assert lent == Credit(3, 100 - left.records, 100 * bytes_each - left.bytes)
    assert again is None
    assert (statistics.backlog_records, statistics.floating_records) == (99, lent.records)
    assert statistics.credit_records == left.records - 1
    assert channel.statistics(1).credit_records == 99


def test_recent_key_size_sets_credit() -> None:
    """Credit in bytes follows the size of recent keys."""
    (channel,) = new_channels(1, 1024 * MIB)
    for sequence in range(1, 201):
        turn(channel, sequence, backlog=0, each_bytes=0 if sequence <= 100 else 500)

    lent = channel.on_lookup(lookup(201, backlog=100_000), 1)

    assert lent is not None
    assert lent.bytes / lent.records == pytest.approx(500 + 16, rel=0.02)


def test_bytes_for_large_keys_return() -> None:
    """A channel whose keys became small returns bytes and keeps its records."""
    changed, other = new_channels(2, 42 * MIB)  # of which 32 MiB float
    turn(changed, 1, each_bytes=500)
    records = changed.statistics(1).floating_records
    for sequence in range(1, 1_000):
        turn(other, sequence)
        turn(changed, sequence + 1)

    assert changed.statistics(1).floating_records > records * 0.9
    costs = [changed._ledger.floating(owner).cost_bytes for owner in (0, 1)]
    assert costs == pytest.approx([32 * MIB / 3] * 2, rel=0.01)


def test_contended_credit_goes_to_pool() -> None:
    """Credit that other channels need does not return to the channel that used it."""
    greedy, late = new_channels(2, 10 * POOL_BYTES)
    lent = greedy.on_lookup(lookup(1, backlog=10**6), 1)
    assert lent is not None
    greedy.on_credit_sent()
    greedy.on_lookup(lookup(2, size=0, backlog=10**6), lent.records)
    late.on_lookup(lookup(1, backlog=10**6), 1)

    back = greedy.on_ended(2)

    assert back is not None
    assert 0 < back.records < lent.records
    assert greedy.statistics(1).floating_records == back.records
    greedy.check_invariants()


def test_empty_credit_closes_the_channel() -> None:
    """A closing channel whose credit goes to others still ends behind its last answer."""
    greedy, late = new_channels(2, 10 * POOL_BYTES)
    greedy.on_lookup(lookup(1, size=0, backlog=10**6), 1)
    greedy.on_credit_sent()
    late.on_lookup(lookup(1, size=0, backlog=10**6), 1)
    greedy.is_closing = True

    back, was_drained = greedy.on_ended(1), greedy.is_drained
    greedy.on_credit_sent()

    assert (back, was_drained, greedy.is_drained) == (Credit(3, 0, 0), False, True)


def accepted_pings(limit: TokenBucket, now: float) -> int:
    """How many pings are accepted at this moment."""
    count = 0
    while limit.take(now):
        count += 1
    return count


def test_pings_are_limited() -> None:
    """A burst of pings is accepted, later two a second; unused ones are saved up to one burst."""
    limit = ping_limit()

    accepted = [accepted_pings(limit, now) for now in (5.0, 8.0, 8.25, 8.5, 3600.0)]

    assert accepted == [PING_BURST, 3 * PINGS_PER_SECOND, 0, 1, PING_BURST]


def test_shared_lookups_are_counted(channel: ServerChannel[int]) -> None:
    """Keys that the client looked up in shared memory count as keys, and use no credit."""
    channel.on_cached(5, now=7.0)
    channel.on_cached(2, now=8.0)

    assert (channel.keys_total, channel.used_at_s) == (7, 8.0)
    statistics = channel.statistics(1)
    assert (statistics.shared_keys, statistics.in_flight_records) == (7, 0)
    assert statistics.credit_records == SHARE.records
