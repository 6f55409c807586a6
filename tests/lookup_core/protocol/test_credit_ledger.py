"""The credit pool: equal shares for channels, floating credit for backlogs, never more than all."""

import pytest

from lookup_core.protocol.credit_ledger import NOTHING, RECORD_BYTES, CreditLedger, Grant

MIB = 1024 * 1024
MUCH = Grant(10**9, 0)


def ledger_with(*channels: str) -> CreditLedger[str]:
    """A ledger of 8 MiB with these channels."""
    ledger = CreditLedger[str](8 * MIB, max_channels=16)
    assert [ledger.open(channel) for channel in channels] == [ledger.share] * len(channels)
    return ledger


def crowded(channels: int) -> CreditLedger[int]:
    """A ledger of 64 MiB for 1000 channels, of which the first ones are open."""
    ledger = CreditLedger[int](64 * MIB, max_channels=1000)
    assert None not in [ledger.open(channel) for channel in range(channels)]
    return ledger


@pytest.mark.parametrize(
    ("pool_bytes", "max_channels", "count"), [(MIB, 1000, 21), (128 * MIB, 1024, 1024)]
)
def test_channels_beyond_shares_are_refused(pool_bytes: int, max_channels: int, count: int) -> None:
    """Channels beyond the shares or the limit are refused; shares do not shrink."""
    ledger = CreditLedger[int](pool_bytes, max_channels=max_channels)

    opened = [ledger.open(channel) for channel in range(count + 9)]

    assert opened == [ledger.share] * count + [None] * 9
    assert ledger.is_full == (count == max_channels)
    ledger.check_invariants()


def test_one_channel_gets_half() -> None:
    """A channel gets at most as much as then stays free: a half, the next one a quarter."""
    ledger = ledger_with("a", "b")

    first, second = ledger.lend("a", MUCH), ledger.lend("b", MUCH)

    floating_bytes = 8 * MIB - 16 * ledger.share.cost_bytes
    assert first.records == floating_bytes // RECORD_BYTES // 2
    assert second.records == first.records // 2
    assert [ledger.lend("a", each) for each in (Grant(1, 0), Grant(0, 1))] == [NOTHING] * 2


def test_excess_returns_to_the_pool() -> None:
    """After other channels open, ended lookups reduce a channel to its fair part."""
    ledger = ledger_with("a", "b")
    first = ledger.lend("a", MUCH)
    ledger.lend("b", MUCH)

    taken = ledger.take_back("a", first, record_bytes=0)

    # a had 1/2, b got 1/4, and 1/4 was free: an eighth makes a equal to what is free then.
    assert taken.records == pytest.approx(first.records / 4, abs=1)
    assert taken.bytes == 0
    assert ledger.take_back("a", first, record_bytes=0) == NOTHING


@pytest.mark.parametrize(
    ("ended", "record_bytes", "taken"),
    [
        (Grant(100, 10_000), 100, Grant(0, 10_000)),
        (Grant(3000, 800_000), 100, Grant(0, 199_184)),
        (Grant(3000, 800_000), 300, Grant(509, 52_592)),
        (Grant(3000, 800_000), 1000, Grant(692, 0)),
    ],
)
def test_excess_follows_the_key_size(ended: Grant, record_bytes: int, taken: Grant) -> None:
    """A channel returns bytes if its keys became small, records if they became large."""
    ledger = ledger_with("a", "b")
    lent = ledger.lend("a", Grant(3000, 800_000))
    ledger.lend("b", MUCH)

    assert ledger.take_back("a", ended, record_bytes=record_bytes) == taken
    assert ledger.floating("a") == lent.minus(taken)
    ledger.check_invariants()


def test_closed_channel_returns_all_once() -> None:
    """Closing returns share and floating credit once; an open channel cannot open again."""
    ledger = ledger_with("a")
    lent = ledger.lend("a", MUCH)
    with pytest.raises(AssertionError):
        ledger.open("a")

    assert [ledger.close("a"), ledger.close("a"), ledger.close("b")] == [True, False, False]
    ledger.open("a")
    assert ledger.lend("a", MUCH) == lent


def test_half_of_absent_channels_may_open() -> None:
    """Half of the absent channels get a share, independent of lent credit."""
    ledger = crowded(100)
    for channel in [*range(100)] * 10:
        ledger.lend(channel, MUCH)

    assert all(ledger.open(channel) for channel in range(100, 550))
    assert ledger.lend(549, Grant(1, 0)) == NOTHING
    ledger.check_invariants()
