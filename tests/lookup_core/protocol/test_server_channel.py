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
from lookup_core.protocol.credit_ledger import Grant
from lookup_core.protocol.frames import Credit, Lookup
from lookup_core.protocol.server_channel import ChannelStatistics, ServerChannel


@pytest.fixture
def channel() -> ServerChannel:
    """Channel 3, for 10 records of 100 bytes."""
    return ServerChannel(3, "customers", "task 7", grant=Grant(10, 100))


def lookup(sequence: int, *, size: int = 10, backlog: int = 0) -> Lookup:
    """A LOOKUP with so many bytes of keys."""
    return Lookup(3, sequence, 1000, backlog, bytes(size))


def refused(channel: ServerChannel, frame: Lookup, records: int) -> ErrorCode:
    """Why the lookup is refused; asserts that nothing was changed by it."""
    before = channel.statistics(1)
    with pytest.raises(ProtocolViolation) as caught:
        channel.on_lookup(frame, records)
    assert channel.statistics(1) == before
    channel.check_invariants()
    return caught.value.code


def test_lookup_uses_credit(channel: ServerChannel) -> None:
    """A lookup costs its records and its bytes, and tells what else is waiting at the peer."""
    channel.on_lookup(lookup(1, backlog=5), 4)

    assert channel.statistics(8) == ChannelStatistics(
        connection=8,
        channel=3,
        dimension="customers",
        origin="task 7",
        credit_records=6,
        backlog_records=5,
        in_flight_records=4,
        watermark_ms=None,
        is_idle=False,
    )


def test_all_credit_may_be_used(channel: ServerChannel) -> None:
    """The bound itself is allowed, in records and in bytes."""
    channel.on_lookup(lookup(1, size=100), 10)

    assert refused(channel, lookup(2, size=0), 1) is ErrorCode.CREDIT_VIOLATION


@pytest.mark.parametrize(("records", "size"), [(11, 10), (1, 101)])
def test_too_much_is_a_violation(channel: ServerChannel, records: int, size: int) -> None:
    """More records, or more bytes, than there is credit for break the protocol."""
    assert refused(channel, lookup(1, size=size), records) is ErrorCode.CREDIT_VIOLATION


@pytest.mark.parametrize("sequence", [0, 1, 3])
def test_sequences_have_no_gaps(channel: ServerChannel, sequence: int) -> None:
    """Each lookup has the number after the last one."""
    channel.on_lookup(lookup(1), 1)

    assert refused(channel, lookup(sequence), 1) is ErrorCode.SEQUENCE_GAP


def test_first_sequence_is_one(channel: ServerChannel) -> None:
    """A channel begins at 1."""
    assert refused(channel, lookup(2), 1) is ErrorCode.SEQUENCE_GAP


def test_closed_channel_takes_no_lookup(channel: ServerChannel) -> None:
    """After CLOSE nothing more may be asked."""
    channel.is_closing = True

    assert refused(channel, lookup(1), 1) is ErrorCode.UNKNOWN_CHANNEL


def test_credit_comes_back_once(channel: ServerChannel) -> None:
    """The end of a lookup gives back what it used; a second end gives nothing."""
    channel.on_lookup(lookup(1, size=30), 4)

    assert channel.on_ended(1) == Credit(3, 4, 30)
    assert channel.on_ended(1) is None
    assert channel.on_ended(2) is None


def test_unsent_credit_cannot_be_used(channel: ServerChannel) -> None:
    """A peer that reads nothing does not learn of credit, so it may not use it either."""
    channel.on_lookup(lookup(1), 10)
    channel.on_ended(1)

    assert refused(channel, lookup(2), 1) is ErrorCode.CREDIT_VIOLATION
    channel.on_credit_sent()
    channel.on_lookup(lookup(2), 10)


def test_channel_drains_with_its_last_credit(channel: ServerChannel) -> None:
    """After CLOSE a channel ends when everything is answered and the credit is on its way."""
    channel.on_lookup(lookup(1), 1)
    assert not channel.is_drained
    channel.is_closing = True

    assert not channel.is_drained
    channel.on_ended(1)
    assert not channel.is_drained
    channel.on_credit_sent()
    assert channel.is_drained


def test_open_channel_is_not_drained(channel: ServerChannel) -> None:
    """A channel that is idle but open goes on."""
    assert not channel.is_drained


@pytest.mark.parametrize(
    ("told", "known"), [([5], 5), ([5, 3], 5), ([3, 5], 5), ([0, -7], 0), ([-7, -9, -8], -7)]
)
def test_watermark_never_goes_back(channel: ServerChannel, told: list[int], known: int) -> None:
    """The latest watermark counts, also around the epoch and before it."""
    for watermark_ms in told:
        channel.on_watermark(watermark_ms)

    assert channel.statistics(1).watermark_ms == known


class ChannelMachine(RuleBasedStateMachine):
    """A peer that keeps the rules, and one that tries to break them."""

    def __init__(self) -> None:
        super().__init__()
        self.channel = ServerChannel(3, "customers", "task", grant=Grant(10, 100))
        self.sequence = 0
        self.held: dict[int, Grant] = {}
        self.unsent: deque[Grant] = deque()

    @rule(records=st.integers(0, 12), size=st.integers(0, 120))
    def ask(self, records: int, size: int) -> None:
        """A lookup is taken exactly when there is credit for it."""
        used = [*self.held.values(), *self.unsent, Grant(records, size)]
        fits = sum(g.records for g in used) <= 10 and sum(g.bytes for g in used) <= 100
        frame = lookup(self.sequence + 1, size=size)
        if not fits:
            assert refused(self.channel, frame, records) is ErrorCode.CREDIT_VIOLATION
            return
        self.channel.on_lookup(frame, records)
        self.sequence += 1
        self.held[self.sequence] = Grant(records, size)

    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        """A lookup ends, or one that is not there."""
        sequence = data.draw(st.integers(0, self.sequence + 1))
        cost = self.held.pop(sequence, None)
        expected = None if cost is None else Credit(3, cost.records, cost.bytes)
        assert self.channel.on_ended(sequence) == expected
        if cost is not None:
            self.unsent.append(cost)

    @precondition(lambda self: self.unsent)
    @rule()
    def send_credit(self) -> None:
        """The peer reads."""
        self.unsent.popleft()
        self.channel.on_credit_sent()

    @invariant()
    def books_agree(self) -> None:
        """What is used is what was not given back."""
        self.channel.check_invariants()
        used = sum(grant.records for grant in (*self.held.values(), *self.unsent))
        assert self.channel.statistics(1).credit_records == 10 - used


TestChannel = ChannelMachine.TestCase
