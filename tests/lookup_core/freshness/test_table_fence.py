"""Changes of anything: what a read has to be beyond."""

import numpy as np
import pytest

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION
from lookup_core.freshness.change_fence import TableFence
from lookup_core.freshness.table_snapshot import TableSnapshot


class Fence(TableFence):
    """One with a hold-off of 5 s, and an age of 60 s."""

    def __init__(self) -> None:
        super().__init__(age_s=60.0, hold_off_s=5.0)

    def told(self, *ids: int, at: float = 0.0) -> None:
        """These transactions have changed something, and too many to name what."""
        self.fold(np.array(ids, np.uint32), at)

    def lets_in(self, snapshot: str | None, *, sent_at: float = 1.0, now: float = 1.0) -> bool:
        """A read lands."""
        saw = None if snapshot is None else TableSnapshot.parse(snapshot)
        return self.admits(saw, sent_at=sent_at, now=now)


@pytest.fixture
def fence() -> Fence:
    """Nothing has changed yet."""
    return Fence()


def test_nothing_changed_lets_all_in(fence: Fence) -> None:
    """Before the first change every read is good, also one that cannot tell what it saw."""
    fence.told()

    assert fence.lets_in("7:9:7")
    assert fence.lets_in(None)


def test_all_before_the_latest_must_have_ended(fence: Fence) -> None:
    """A read must see the latest transaction and each before it, in whatever order they came."""
    fence.told(100, 103, 101)
    fence.told(102)

    assert not fence.lets_in("103:110:103")
    assert fence.lets_in("104:110:104")


def test_latest_is_found_across_the_wrap(fence: Fence) -> None:
    """Of ids that have begun again the small one is the later one."""
    fence.told(2**32 - 1)
    fence.told(3)
    fence.told(2**32 - 2)

    assert not fence.lets_in(f"{2**32 + 3}:{2**32 + 9}:")
    assert fence.lets_in(f"{2**32 + 4}:{2**32 + 9}:")


@pytest.mark.parametrize(("sent_at", "is_let_in"), [(4.9, False), (5.0, True)])
def test_unproved_changes_hold_off(fence: Fence, sent_at: float, *, is_let_in: bool) -> None:
    """Without a transaction id, or without a snapshot, reads that are sent later are good."""
    fence.told(UNKNOWN_TRANSACTION)
    assert fence.lets_in("100:100:", sent_at=sent_at) is is_let_in

    fence = Fence()
    fence.told(7)
    assert fence.lets_in(None, sent_at=sent_at) is is_let_in


def test_older_changes_do_not_turn_back_time(fence: Fence) -> None:
    """What was told before and comes later leaves the hold-off where it is."""
    fence.told(UNKNOWN_TRANSACTION, at=3.0)
    fence.told(UNKNOWN_TRANSACTION, at=1.0)

    assert not fence.lets_in(None, sent_at=7.9)
    assert fence.lets_in("1:1:", sent_at=8.0)


def test_passed_change_is_forgotten(fence: Fence) -> None:
    """Its id would lie ahead again after half of all ids; until then late reads are refused."""
    fence.told(100)
    assert fence.lets_in("101:101:", now=10.0)
    assert not fence.lets_in("100:101:100", now=69.0)

    assert fence.lets_in("101:101:", now=70.0)

    assert fence.lets_in(f"{100 - 2**31 + 1 + 2**32}:{2**33}:", now=71.0)


def test_named_change_waits_for_itself_alone(fence: Fence) -> None:
    """An older transaction that stays open holds up nobody who sees the change."""
    fence.note(100, 0.0)
    fence.note(103, 0.0)

    assert fence.lets_in("90:110:90")
    assert not fence.lets_in("90:110:100")
    assert not fence.lets_in("90:102:90")


def test_many_named_changes_become_a_line(fence: Fence) -> None:
    """What is remembered is bounded: the oldest of them have to have ended, with all before."""
    for transaction_id in range(100, 165):
        fence.note(transaction_id, 0.0)

    assert not fence.lets_in("90:200:90")
    assert fence.lets_in("101:200:")


def test_named_change_is_forgotten_in_time(fence: Fence) -> None:
    """Its id will lie in the future again."""
    fence.note(100, 0.0)
    fence.lets_in("104:110:", now=1.0)
    fence.lets_in("104:110:", now=61.0)

    assert fence.lets_in("90:95:", now=62.0)


def test_unknown_change_holds_off_by_name_too(fence: Fence) -> None:
    """Nobody can see a transaction that was not told."""
    fence.note(UNKNOWN_TRANSACTION, 0.0)

    assert not fence.lets_in("104:110:", sent_at=4.9)
    assert fence.lets_in("104:110:", sent_at=5.0)
