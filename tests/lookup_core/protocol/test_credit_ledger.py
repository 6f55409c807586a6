"""How credit is shared out, and that no more is given than there is."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lookup_core.protocol.credit_ledger import CreditLedger, Grant

MIB = 1024 * 1024


def test_grant_is_bounded() -> None:
    """One channel gets at most 20,000 records, however large the pool is."""
    ledger = CreditLedger[str](1024 * MIB)

    assert ledger.open("a") == Grant(records=20_000, bytes=20_000 * 128)


def test_newcomer_gets_a_share_of_the_rest() -> None:
    """Each newcomer gets an eighth of what is left, so the pool does not end with the first."""
    ledger = CreditLedger[str](8 * MIB)

    assert ledger.open("a") == Grant(records=8192, bytes=MIB)
    assert ledger.open("b") == Grant(records=7168, bytes=7 * MIB // 8)


def test_useless_share_is_refused() -> None:
    """A channel that could hardly send anything is not opened at all; nothing is granted."""
    ledger = CreditLedger[str](8 * 128 * 500 - 1)

    assert ledger.open("a") is None
    ledger.check_invariants()
    assert not ledger.close("a")


def test_closed_share_goes_to_others() -> None:
    """What a channel had is there for the next one."""
    ledger = CreditLedger[str](8 * MIB)
    first = ledger.open("a")

    assert ledger.close("a")
    assert ledger.open("b") == first


def test_share_comes_back_once() -> None:
    """Closing again, or what was never opened, gives nothing back."""
    ledger = CreditLedger[str](8 * MIB)
    ledger.open("a")
    ledger.close("a")

    assert not ledger.close("a")
    assert not ledger.close("b")
    ledger.check_invariants()


def test_channel_has_one_share() -> None:
    """A second share for the same channel would be lost for good."""
    ledger = CreditLedger[str](8 * MIB)
    ledger.open("a")

    with pytest.raises(AssertionError):
        ledger.open("a")


class LedgerMachine(RuleBasedStateMachine):
    """Channels open and close as they like."""

    def __init__(self) -> None:
        super().__init__()
        self.pool_bytes = 4 * MIB
        self.ledger = CreditLedger[int](self.pool_bytes)
        self.grants: dict[int, Grant] = {}
        self.opened = 0

    @rule()
    def open(self) -> None:
        """A newcomer."""
        self.opened += 1
        grant = self.ledger.open(self.opened)
        if grant is not None:
            self.grants[self.opened] = grant

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """Somebody leaves, or one who is not there."""
        channel = data.draw(st.integers(0, self.opened))
        assert self.ledger.close(channel) is (self.grants.pop(channel, None) is not None)

    @invariant()
    def grants_fit_the_pool(self) -> None:
        """Nothing is granted twice, and a pool that is mostly free opens another channel."""
        self.ledger.check_invariants()
        assert sum(grant.bytes for grant in self.grants.values()) <= self.pool_bytes


TestLedger = LedgerMachine.TestCase
