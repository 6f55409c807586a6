"""What a peer may send on a channel, and when what it used is its own again."""

from collections import deque

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.credit_ledger import RECORD_BYTES, CreditLedger, Grant
from lookup_core.protocol.frames import Credit, Lookup
from lookup_core.protocol.server_channel import ChannelStatistics, ServerChannel

SHARE = Grant(12 * 1024 // RECORD_BYTES, 12 * 1024)  # of every channel in a pool of this size
POOL_BYTES = 2 * 24 * 1024  # for each channel that there may be


def new_channel(most: int = 1) -> ServerChannel[int]:
    """Channel 3, of `most` that there may be; it has its share, and what it is lent."""
    ledger = CreditLedger[int](most * POOL_BYTES, max_channels=most)
    assert ledger.open(7) == SHARE
    return ServerChannel(3, "customers", "task 7", ledger=ledger, owner=7)


@pytest.fixture
def channel() -> ServerChannel[int]:
    """A channel that has what all have."""
    return new_channel()


def lookup(sequence: int, *, size: int = 10, backlog: int = 0) -> Lookup:
    """A LOOKUP with so many bytes of keys."""
    return Lookup(3, sequence, 1000, backlog, bytes(size))


def refused(channel: ServerChannel[int], frame: Lookup, records: int) -> ErrorCode:
    """Why the lookup is refused; asserts that nothing was changed by it."""
    before = channel.statistics(1)
    with pytest.raises(ProtocolViolation) as caught:
        channel.on_lookup(frame, records)
    assert channel.statistics(1) == before
    channel.check_invariants()
    return caught.value.code


def test_lookup_uses_credit(channel: ServerChannel[int]) -> None:
    """A lookup costs its records and its bytes."""
    assert channel.share == SHARE
    assert channel.on_lookup(lookup(1), 4) is None

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


def test_all_credit_may_be_used(channel: ServerChannel[int]) -> None:
    """The bound itself is allowed, in records and in bytes."""
    channel.on_lookup(lookup(1, size=SHARE.bytes), SHARE.records)

    assert refused(channel, lookup(2, size=0), 1) is ErrorCode.CREDIT_VIOLATION


@pytest.mark.parametrize(("records", "size"), [(SHARE.records + 1, 10), (1, SHARE.bytes + 1)])
def test_too_much_is_a_violation(channel: ServerChannel[int], records: int, size: int) -> None:
    """More records, or more bytes, than there is credit for break the protocol."""
    assert refused(channel, lookup(1, size=size), records) is ErrorCode.CREDIT_VIOLATION


@pytest.mark.parametrize("sequence", [0, 1, 3])
def test_sequences_have_no_gaps(channel: ServerChannel[int], sequence: int) -> None:
    """Each lookup has the number after the last one."""
    channel.on_lookup(lookup(1), 1)

    assert refused(channel, lookup(sequence), 1) is ErrorCode.SEQUENCE_GAP


def test_first_sequence_is_one(channel: ServerChannel[int]) -> None:
    """A channel begins at 1."""
    assert refused(channel, lookup(2), 1) is ErrorCode.SEQUENCE_GAP


def test_closed_channel_takes_no_lookup(channel: ServerChannel[int]) -> None:
    """After CLOSE nothing more may be asked."""
    channel.is_closing = True

    assert refused(channel, lookup(1), 1) is ErrorCode.UNKNOWN_CHANNEL


def test_credit_comes_back_once(channel: ServerChannel[int]) -> None:
    """The end of a lookup gives back what it used; a second end gives nothing."""
    channel.on_lookup(lookup(1, size=30), 4)

    assert channel.on_ended(1) == Credit(3, 4, 30)
    assert channel.on_ended(1) is None
    assert channel.on_ended(2) is None


def test_unsent_credit_cannot_be_used(channel: ServerChannel[int]) -> None:
    """A peer that reads nothing does not learn of credit, so it may not use it either."""
    channel.on_lookup(lookup(1), SHARE.records)
    channel.on_ended(1)

    assert refused(channel, lookup(2), 1) is ErrorCode.CREDIT_VIOLATION
    channel.on_credit_sent()
    channel.on_lookup(lookup(2), SHARE.records)


def test_backlog_is_lent_credit() -> None:
    """Who has more ready gets credit for what it has none for yet; its own when it is sent."""
    channel = new_channel(10)

    lent = channel.on_lookup(lookup(1, size=8_000, backlog=100), 10)

    bytes_each = 800 + 16  # as its records were so far, and headroom
    left = SHARE.minus(Grant(10, 8_000))
    assert lent == Credit(3, 100 - left.records, 100 * bytes_each - left.bytes)
    statistics = channel.statistics(1)
    assert (statistics.backlog_records, statistics.floating_records) == (100, lent.records)
    assert statistics.credit_records == left.records
    channel.on_credit_sent()
    assert channel.statistics(1).credit_records == 100


def test_backlog_told_twice_is_lent_once() -> None:
    """Lookups that were sent together tell of the same records, and there is CREDIT on its way."""
    channel = new_channel(10)
    lent = channel.on_lookup(lookup(1, backlog=110), 10)

    assert lent == Credit(3, 110 - (SHARE.records - 10), 0)
    assert channel.on_lookup(lookup(2, backlog=100), 10) is None


def test_channel_drains_with_its_last_credit(channel: ServerChannel[int]) -> None:
    """After CLOSE a channel ends when everything is answered and the credit is on its way."""
    channel.on_lookup(lookup(1), 1)
    assert not channel.is_drained
    channel.is_closing = True

    assert not channel.is_drained
    channel.on_ended(1)
    assert not channel.is_drained
    channel.on_credit_sent()
    assert channel.is_drained


def test_closing_channel_has_no_backlog(channel: ServerChannel[int]) -> None:
    """What stood behind its last lookup does not come any more."""
    channel.on_lookup(lookup(1, backlog=5), 1)

    channel.is_closing = True

    assert channel.statistics(1).backlog_records == 0


def test_open_channel_is_not_drained(channel: ServerChannel[int]) -> None:
    """A channel that is idle but open goes on."""
    assert not channel.is_drained


@pytest.mark.parametrize(
    ("told", "known"), [([5], 5), ([5, 3], 5), ([3, 5], 5), ([0, -7], 0), ([-7, -9, -8], -7)]
)
def test_watermark_never_goes_back(
    channel: ServerChannel[int], told: list[int], known: int
) -> None:
    """The latest watermark counts, also around the epoch and before it."""
    for watermark_ms in told:
        channel.on_watermark(watermark_ms)

    assert channel.statistics(1).watermark_ms == known


class ChannelMachine(RuleBasedStateMachine):
    """A peer that keeps the rules, and one that tries to break them."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = new_channel(10)
        self.sequence = 0
        self.held: dict[int, Grant] = {}
        self.unsent: deque[Credit] = deque()
        self.left = SHARE  # what the peer may send, as it knows

    @rule(records=st.integers(0, 60), size=st.integers(0, 15_000), backlog=st.integers(0, 100))
    def ask(self, records: int, size: int, backlog: int) -> None:
        """A lookup is taken exactly when the peer has been sent credit for it."""
        frame = lookup(self.sequence + 1, size=size, backlog=backlog)
        if records > self.left.records or size > self.left.bytes:
            assert refused(self.channel, frame, records) is ErrorCode.CREDIT_VIOLATION
            return
        lent = self.channel.on_lookup(frame, records)
        self.sequence += 1
        self.held[self.sequence] = Grant(records, size)
        self.left = self.left.minus(Grant(records, size))
        self.unsent += [] if lent is None else [lent]

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """A lookup ends, or one that is not there; no more comes back than it cost."""
        sequence = data.draw(st.integers(0, self.sequence + 1))
        cost = self.held.pop(sequence, Grant(0, 0))
        back = self.channel.on_ended(sequence)
        if back is not None:
            assert back.records <= cost.records
            assert back.bytes <= cost.bytes
            self.unsent.append(back)

    @precondition(lambda self: self.unsent)
    @rule()
    def send_credit(self) -> None:
        """The peer reads."""
        credit = self.unsent.popleft()
        self.left = self.left.plus(Grant(credit.records, credit.bytes))
        self.channel.on_credit_sent()

    @invariant()
    def books_agree(self) -> None:
        """What the peer may send is what it was granted and has not used."""
        self.channel.check_invariants()
        assert self.channel.statistics(1).credit_records == self.left.records


TestChannel = ChannelMachine.TestCase
