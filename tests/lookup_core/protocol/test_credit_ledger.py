"""How credit is shared out, and that no more is given than there is."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.protocol.credit_ledger import NOTHING, RECORD_BYTES, CreditLedger, Grant

MIB = 1024 * 1024
MUCH = Grant(10**9, 0)
grants = st.builds(Grant, st.integers(0, 5_000), st.integers(0, 2_000_000))


def ledger_with(*channels: str, pool_bytes: int = 8 * MIB) -> CreditLedger[str]:
    """A ledger in which these channels are open."""
    ledger = CreditLedger[str](pool_bytes, max_channels=16)
    for channel in channels:
        assert ledger.open(channel) == ledger.share
    return ledger


def test_share_is_the_same_for_all() -> None:
    """Half of the pool is shared out to as many channels as there may be, half in records."""
    ledger = CreditLedger[int](128 * MIB, max_channels=1024)

    assert ledger.share == Grant(records=32 * 1024 // RECORD_BYTES, bytes=32 * 1024)
    assert all(ledger.open(channel) == ledger.share for channel in range(1024))
    assert ledger.open(1024) is None
    ledger.check_invariants()


@pytest.mark.parametrize(("pool_bytes", "cost_bytes"), [(MIB, 24 * 1024), (999 * MIB, MIB)])
def test_share_is_useful_and_bounded(pool_bytes: int, cost_bytes: int) -> None:
    """A share is never too small to be of use, nor larger than anybody needs without asking."""
    share = CreditLedger[str](pool_bytes, max_channels=100).share

    assert share == Grant(cost_bytes // 2 // RECORD_BYTES, cost_bytes // 2)


def test_small_pool_has_few_shares() -> None:
    """Where the shares do not reach, channels are refused instead of given less."""
    ledger = CreditLedger[int](MIB, max_channels=1000)

    opened = [ledger.open(channel) for channel in range(30)]

    assert opened == [ledger.share] * 21 + [None] * 9
    assert ledger.statistics().exclusive_records == 21 * ledger.share.records


def test_backlog_gets_floating_credit() -> None:
    """A channel with a backlog gets what it asks for, if there is enough."""
    ledger = ledger_with("a")

    assert ledger.lend("a", Grant(500, 10_000)) == Grant(500, 10_000)
    assert ledger.floating("a") == Grant(500, 10_000)
    assert ledger.statistics().floating_records == 500


def test_nothing_is_lent_while_it_may_not() -> None:
    """Then nobody gets more, everybody keeps what he has, and newcomers find it unchanged."""
    ledger = ledger_with("a", "b")
    lent = ledger.lend("a", Grant(500, 10_000))
    ledger.may_lend = False

    refused = ledger.lend("a", Grant(1, 1)), ledger.lend("b", Grant(1, 1))
    ledger.may_lend = True

    assert (refused, ledger.floating("a")) == ((NOTHING, NOTHING), lent)
    assert ledger.lend("b", Grant(1, 1)) == Grant(1, 1)


def test_greedy_channel_ends_with_half() -> None:
    """Alone a channel gets at most half of all floating credit, so a latecomer finds something."""
    ledger = ledger_with("a", "b")

    first = ledger.lend("a", MUCH)
    second = ledger.lend("b", MUCH)

    floating_bytes = 8 * MIB - 16 * ledger.share.cost_bytes
    assert first.records == floating_bytes // RECORD_BYTES // 2
    assert second.records == first.records // 2
    assert ledger.lend("a", Grant(1, 0)) == NOTHING


def test_scarce_credit_keeps_its_proportion() -> None:
    """Of what is wanted there is less of both, so that records and bytes still go together."""
    ledger = ledger_with("a")

    lent = ledger.lend("a", Grant(10_000, 10_000 * RECORD_BYTES))

    assert lent.cost_bytes == pytest.approx(2 * MIB, rel=0.001)
    assert lent.bytes / lent.records == pytest.approx(RECORD_BYTES, rel=0.001)


def test_steady_channel_keeps_its_credit() -> None:
    """While there is enough for all, what a lookup cost goes back to its channel."""
    ledger = ledger_with("a")
    lent = ledger.lend("a", Grant(1000, 10_000))

    assert ledger.take_back("a", lent, record_bytes=10) == NOTHING
    assert ledger.floating("a") == lent


def test_excess_goes_back_to_the_pool() -> None:
    """When others have come, each end of a lookup brings a channel nearer to its fair part."""
    ledger = ledger_with("a", "b")
    first = ledger.lend("a", MUCH)
    ledger.lend("b", MUCH)

    taken = ledger.take_back("a", first, record_bytes=0)

    # a had 1/2, b got 1/4, and 1/4 was free: an eighth evens a out with what is free then.
    assert taken.records == pytest.approx(first.records / 4, abs=1)
    assert taken.bytes == 0
    assert ledger.take_back("a", first, record_bytes=0) == NOTHING


def test_bytes_for_large_keys_go_first() -> None:
    """Who sends small keys now gives up bytes that it was lent for large ones, not its records."""
    ledger = ledger_with("a", "b")
    ledger.lend("a", Grant(500, 500 * 3000))
    ledger.lend("b", MUCH)

    taken = ledger.take_back("a", Grant(500, 10_000), record_bytes=20)

    assert taken == Grant(0, 10_000)
    assert ledger.floating("a") == Grant(500, 500 * 3000 - 10_000)


def test_little_is_taken_of_little() -> None:
    """Never more is taken back than the lookup cost, and never of the exclusive share."""
    ledger = ledger_with("a", "b")
    ledger.lend("a", MUCH)
    ledger.lend("b", MUCH)

    assert ledger.take_back("a", Grant(3, 40), record_bytes=13) == Grant(3, 0)
    assert ledger.take_back("b", Grant(0, 0), record_bytes=0) == NOTHING
    ledger.check_invariants()


def test_all_comes_back_once() -> None:
    """Closing gives share and floating credit back; again, or for a stranger, nothing."""
    ledger = ledger_with("a")
    before = CreditLedger[str](8 * MIB, max_channels=16).statistics()
    ledger.lend("a", Grant(100, 100))

    assert ledger.close("a")
    assert not ledger.close("a")
    assert not ledger.close("b")
    assert ledger.statistics() == before


def test_channel_has_one_share() -> None:
    """A second share for the same channel would be lost for good."""
    with pytest.raises(AssertionError):
        ledger_with("a").open("a")


def test_shares_of_few_channels_are_lent() -> None:
    """Half of what is kept for channels that may come goes to those with a backlog."""
    ledger = CreditLedger[int](64 * MIB, max_channels=1000)
    ledger.open(1)

    lent = ledger.lend(1, MUCH)

    kept_bytes = (1 + 999 // 2) * ledger.share.cost_bytes
    assert lent.records == (64 * MIB - kept_bytes) // 2 // RECORD_BYTES


def test_half_of_the_others_may_come() -> None:
    """However much is lent, and never given back, half of those who are not there find a share."""
    ledger = CreditLedger[int](64 * MIB, max_channels=1000)
    for channel in range(100):
        ledger.open(channel)
    for channel in [*range(100)] * 10:
        ledger.lend(channel, MUCH)

    assert all(ledger.open(channel) for channel in range(100, 550))
    assert ledger.lend(549, Grant(1, 0)) == NOTHING
    ledger.check_invariants()


def test_crowd_waits_for_what_is_lent() -> None:
    """When more come than shares are kept, the next ones follow as lookups of others end."""
    ledger = CreditLedger[int](64 * MIB, max_channels=1000)
    for channel in range(10):
        ledger.open(channel)
        ledger.lend(channel, MUCH)
    newcomers = range(10, 1000)
    refused = [channel for channel in newcomers if ledger.open(channel) is None]

    for channel in [*range(10)] * 10:
        ledger.take_back(channel, MUCH, record_bytes=0)

    assert 0 < len(refused) <= 990 // 2
    assert all(ledger.open(channel) for channel in refused[:200])
    ledger.check_invariants()


class LedgerMachine(RuleBasedStateMachine):
    """Channels open, ask, answer and close as they like."""

    max_channels = 8  # so few that the shares of all are kept

    def __init__(self) -> None:
        super().__init__()
        self.pool_bytes = self.max_channels * 128 * 1024
        self.ledger = CreditLedger[int](self.pool_bytes, max_channels=self.max_channels)
        self.floating: dict[int, Grant] = {}  # what the model thinks that each has
        self.opened = 0

    @rule(count=st.integers(1, 9))
    def open(self, count: int) -> None:
        """Newcomers are let in exactly while there is a share that is not lent."""
        for _ in range(count):
            self.opened += 1
            may_open = len(self.floating) < self.max_channels and self.is_share_free()
            grant = self.ledger.open(self.opened)
            assert (grant is not None) == may_open
            if grant is not None:
                self.floating[self.opened] = NOTHING

    @precondition(lambda self: self.floating)
    @rule(data=st.data(), wanted=grants)
    def lend(self, data: st.DataObject, wanted: Grant) -> None:
        """Nobody is lent more than is left free afterwards, or than was asked for."""
        channel = data.draw(st.sampled_from(sorted(self.floating)))
        lent = self.ledger.lend(channel, wanted)
        self.floating[channel] = self.floating[channel].plus(lent)
        assert 0 <= lent.records <= wanted.records
        assert 0 <= lent.bytes <= wanted.bytes
        assert lent == NOTHING or self.floating[channel].cost_bytes <= self.free_bytes()

    @precondition(lambda self: self.floating)
    @rule(data=st.data(), ended=grants, record_bytes=st.integers(0, 2_000))
    def take_back(self, data: st.DataObject, ended: Grant, record_bytes: int) -> None:
        """Only what a channel has beyond the others' due is taken, of records or of bytes."""
        channel = data.draw(st.sampled_from(sorted(self.floating)))
        surplus_bytes = self.floating[channel].cost_bytes - self.free_bytes()
        taken = self.ledger.take_back(channel, ended, record_bytes=record_bytes)
        self.floating[channel] = self.floating[channel].minus(taken)
        assert 0 <= taken.records <= ended.records
        assert 0 <= taken.bytes <= ended.bytes
        assert taken.cost_bytes < max(surplus_bytes // 2, 0) + RECORD_BYTES
        if surplus_bytes > 1 and _share_something(ended, self.floating[channel].plus(taken)):
            assert taken != NOTHING

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """Somebody leaves, or one who is not there."""
        channel = data.draw(st.integers(0, self.opened))
        assert self.ledger.close(channel) is (self.floating.pop(channel, None) is not None)

    @invariant()
    def books_agree(self) -> None:
        """What is granted and what is free is the pool."""
        self.ledger.check_invariants()
        statistics = self.ledger.statistics()
        floating = sum(grant.records for grant in self.floating.values())
        assert statistics.floating_records == floating
        assert self.pool_bytes - self.granted_bytes() == statistics.free_bytes >= 0

    def is_share_free(self) -> bool:
        """Whether nobody has what a newcomer gets."""
        return self.pool_bytes - self.granted_bytes() >= self.ledger.share.cost_bytes

    def granted_bytes(self) -> int:
        """What all channels have."""
        lent = sum(grant.cost_bytes for grant in self.floating.values())
        return len(self.floating) * self.ledger.share.cost_bytes + lent

    def free_bytes(self) -> int:
        """Floating credit that nobody has, and that is not kept for newcomers either."""
        channels = len(self.floating)
        absent = self.max_channels - channels
        kept = min(max(absent // 2, 64), absent)
        return self.pool_bytes - self.granted_bytes() - kept * self.ledger.share.cost_bytes


class CrowdMachine(LedgerMachine):
    """The same with so many channels that the shares of most are lent."""

    max_channels = 400


def _share_something(ended: Grant, held: Grant) -> bool:
    """Whether there is something to take back of what has ended."""
    return bool(ended.records and ended.bytes and held != NOTHING)


TestLedger = LedgerMachine.TestCase
TestCrowd = CrowdMachine.TestCase
